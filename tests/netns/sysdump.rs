//! `braid sysdump`: content of the archive, judged by `tar`, `ip`, `bridge` and `nft`, and secrets that
//! it must not have.

use crate::conf;
use braid_tests::{Ns, Sandbox, Value, binary, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Text that is in every configuration of these tests and must be nowhere in an archive.
const SECRET: &str = "s3cret-words";
/// A secret that is a number, and one in the form of an address.
const NUMBER: u64 = 531_700_531;
const ADDRESS: &str = "2001:db8:5317:5317::1";
const ARCHIVE: &str = "/run/dump.tar.gz";

/// A foreign plugin that passes its previous result on, with a secret of its own.
const THEIRS: &str = r#"#!/bin/sh
conf=$(cat)
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.2.0.2/24"}], "token": "s3cret-words",
    "dns": {"domain": "s3cret-words"}}'
"#;

fn sysdump(output: &str) -> Output {
    Command::new(binary::braid())
        .args(["sysdump", "--output", output])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the folder of an archive, unpacked by `tar`.
fn unpacked(archive: &str) -> PathBuf {
    let to = Path::new("/run/unpacked");
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    let tar = Command::new("tar")
        .args(["xzf", archive, "-C"])
        .arg(to)
        .output()
        .unwrap();
    assert!(tar.status.success(), "{tar:?}");
    let mut folders = fs::read_dir(to).unwrap();
    let folder = folders.next().unwrap().unwrap();
    assert!(folders.next().is_none());
    let name = folder.file_name().into_string().unwrap();
    assert!(name.starts_with("braid-sysdump-"), "{name}");
    folder.path()
}

fn text(dump: &Path, name: &str) -> String {
    fs::read_to_string(dump.join(name)).unwrap_or_else(|err| panic!("{name}: {err}"))
}

fn list(dump: &Path, name: &str) -> Vec<Value> {
    serde_json::from_str(&text(dump, name)).unwrap_or_else(|err| panic!("{name}: {err}"))
}

/// Returns these keys of each object.
fn columns(objects: &[Value], keys: &[&str]) -> Vec<Vec<Value>> {
    let row = |object: &Value| keys.iter().map(|key| object[key].clone()).collect();
    let mut rows: Vec<Vec<Value>> = objects.iter().map(row).collect();
    rows.sort_by_key(|row| json!(row).to_string());
    rows
}

/// Attaches a pod by a list with every kind of state, and with secrets in its configuration.
fn attached(host: &Sandbox, pod: &Ns) -> Value {
    host.script("theirs", THEIRS);
    let mut ptp = conf::ptp();
    ptp["ipMasq"] = json!(true);
    ptp["password"] = json!(SECRET);
    ptp["ipam"]["token"] = json!([{"type": SECRET}]);
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [
        ptp,
        {"type": "bandwidth", "ingressRate": 20_000_000, "ingressBurst": 800_000},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.stable_secret": ADDRESS}},
        {"type": "theirs", "auth": {"name": SECRET, "mtu": NUMBER}, "master": SECRET},
    ]});
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "note": SECRET}]});
    host.call("braid", pod, conf.clone())
        .with("runtimeConfig", ports)
        .with("args", json!({"cni": {"token": SECRET}}))
        .args(&format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;TOKEN={SECRET}"
        ))
        .add()
        .result();
    conf
}

/// Writes further files with secrets: lists of the node, the token of calls, a lease that is a note.
fn add_secrets(conf: &Value) {
    let mut list = conf.clone();
    list.as_object_mut().unwrap().remove("type");
    let folder = Path::new("/etc/cni/net.d");
    fs::create_dir_all(folder.join("braid.d")).unwrap();
    fs::write(folder.join("10-net.conflist"), list.to_string()).unwrap();
    fs::write(
        folder.join("20-cut.conf"),
        format!("{{\"token\": \"{SECRET}\""),
    )
    .unwrap();
    fs::write(folder.join("braid.d/kubeconfig"), SECRET).unwrap();
    fs::create_dir_all("/run/braid/api").unwrap();
    fs::write("/run/braid/api/token", SECRET).unwrap();
    fs::write(
        "/var/lib/cni/networks/net/10.2.0.9",
        format!("the {SECRET}"),
    )
    .unwrap();
}

#[test]
fn an_archive_has_the_state_of_the_node_and_no_secret() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = attached(&host, &pod);
    add_secrets(&conf);
    host.run("nft add table ip theirs");
    host.run("nft add chain ip theirs forward { type filter hook forward priority 0 ; }");
    host.run("nft add rule ip theirs forward tcp dport 99 drop comment s3cret-words");
    // The end of duplicate address detection adds a route, which must not come after the archive.
    for ns in [host.host(), &pod] {
        ns.await_own_addresses();
    }
    let before = host.state();

    let dumped = sysdump(ARCHIVE);
    assert!(dumped.status.success(), "{dumped:?}");
    before.assert_same(&host.state());
    let meta = fs::metadata(ARCHIVE).unwrap();
    let said = String::from_utf8(dumped.stdout).unwrap();
    assert_eq!(said, format!("{ARCHIVE}  {} bytes\n", meta.len()));
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);

    let dump = unpacked(ARCHIVE);
    let found = Command::new("grep")
        .args([
            "-r",
            "-e",
            "s3cret",
            "-e",
            &NUMBER.to_string(),
            "-e",
            ADDRESS,
        ])
        .arg(&dump)
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found, "");
    assert_kernel(&dump.join("host"), host.host());
    assert_kernel(&dump.join("netns/a"), &pod);
    assert_tables(&dump, &host);

    let records = list(&dump, "records.json");
    assert_eq!(
        columns(&records, &["container_id", "network"]),
        [["a", "net"]]
    );
    let attached = &records[0]["attachments"][0];
    let reduced = json!({"type": "theirs", "auth": "<object>", "master": "<string>"});
    assert_eq!(attached["conf"]["plugins"][4], reduced);
    assert_eq!(
        attached["conf"]["plugins"][0]["ipam"]["subnet"],
        "10.2.0.0/24"
    );
    let steps = attached["steps"].to_string();
    assert!(
        steps.contains("ip addr") && steps.contains("stable_secret=<string>"),
        "{steps}"
    );
    assert_eq!(list(&dump, "foreign-records.json").len(), 1);
    let leases = columns(
        &list(&dump, "leases.json"),
        &["network", "address", "owner"],
    );
    assert_eq!(
        leases,
        [
            ["net", "10.2.0.2", "a eth0"],
            ["net", "10.2.0.9", "<string>"]
        ]
    );
    let conflist: Value = serde_json::from_str(&text(&dump, "conflists/10-net.conflist")).unwrap();
    assert_eq!(conflist["plugins"][4], reduced);

    assert!(text(&dump, "version.txt").starts_with("braid "));
    assert!(text(&dump, "features.txt").lines().count() > 10);
    let errors = text(&dump, "errors.txt");
    for error in [
        "conflists/20-cut.conf: configuration: invalid JSON",
        "metrics.txt: no agent listens on port 4628",
        "logs: ",
    ] {
        assert!(
            errors.lines().any(|line| line.starts_with(error)),
            "{error}: {errors}"
        );
    }
    assert_eq!(errors.lines().count(), 3, "{errors}");
}

/// Compares the objects of a namespace with the output of `ip` and `bridge`.
fn assert_kernel(dump: &Path, ns: &Ns) {
    let same = |name: &str, keys: &[&str], command: &str, theirs: &[&str]| {
        let (ours, others) = (list(dump, name), ns.list(command));
        assert_eq!(
            columns(&ours, keys),
            columns(&others, theirs),
            "{name}: {command}"
        );
    };
    let keys = [
        "ifindex",
        "ifname",
        "mtu",
        "address",
        "txqlen",
        "link_netnsid",
        "ifalias",
    ];
    same("links.json", &keys, "ip -j link show", &keys);
    let kinds = |links: Vec<Value>| -> Vec<Value> {
        links
            .iter()
            .map(|link| link["linkinfo"]["info_kind"].clone())
            .collect()
    };
    let ours: Vec<Value> = list(dump, "links.json")
        .iter()
        .map(|link| link["info_kind"].clone())
        .collect();
    assert_eq!(ours, kinds(ns.list("ip -j -d link show")));
    for family in ["-4", "-6"] {
        let routes = ns.list(&format!("ip -j -N {family} route show table all"));
        let number = if family == "-4" { 2 } else { 10 };
        let ours = list(dump, "routes.json");
        let ours = ours.iter().filter(|route| route["family"] == number);
        assert_eq!(ours.count(), routes.len(), "{family}");
    }
    let gateways = |routes: &[Value]| columns(routes, &["gateway"]);
    let mut theirs = ns.list("ip -j -N -4 route show table all");
    theirs.extend(ns.list("ip -j -N -6 route show table all"));
    assert_eq!(gateways(&list(dump, "routes.json")), gateways(&theirs));
    let mut rules = ns.list("ip -j -4 rule show");
    rules.extend(ns.list("ip -j -6 rule show"));
    // `ip` lists the rules of multicast routing only if asked.
    let mut ours: Vec<Value> = list(dump, "rules.json");
    ours.retain(|rule| rule["family"] == 2 || rule["family"] == 10);
    let priorities = |rules: &[Value]| {
        let priority = |rule: &Value| rule["priority"].as_u64().unwrap_or(0);
        let mut all: Vec<u64> = rules.iter().map(priority).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(priorities(&ours), priorities(&rules));
    let permanent: Vec<Value> = list(dump, "neighbours.json")
        .into_iter()
        .filter(|one| one["state"] == 0x80)
        .collect();
    let theirs = ns.list("ip -j neigh show nud permanent");
    let keys = ["dst", "lladdr"];
    assert_eq!(columns(&permanent, &keys), columns(&theirs, &keys));
    let macs = |entries: &[Value], key: &str| columns(entries, &[key]);
    let fdb = list(dump, "fdb.json");
    assert_eq!(
        macs(&fdb, "lladdr"),
        macs(&ns.list("bridge -j fdb show"), "mac")
    );
    same("qdiscs.json", &["kind"], "tc -j qdisc show", &["kind"]);
    let mut ours = columns(&list(dump, "addresses.json"), &["address", "prefixlen"]);
    let mut theirs = Vec::new();
    for link in ns.list("ip -j addr show") {
        for addr in link["addr_info"].as_array().unwrap() {
            let address = addr.get("address").unwrap_or(&addr["local"]);
            theirs.push(vec![address.clone(), addr["prefixlen"].clone()]);
        }
    }
    for rows in [&mut ours, &mut theirs] {
        rows.sort_by_key(|row| json!(row).to_string());
    }
    assert_eq!(ours, theirs);
}

/// Compares the tables of the host with the output of `nft`.
fn assert_tables(dump: &Path, host: &Sandbox) {
    let tables = list(dump, "host/nftables.json");
    let ruleset = host.json("nft -j list ruleset");
    let objects = ruleset["nftables"].as_array().unwrap();
    let all = |kind: &str| -> Vec<Value> {
        objects
            .iter()
            .filter_map(|object| object.get(kind).cloned())
            .collect()
    };
    let keys = ["family", "name"];
    assert_eq!(columns(&tables, &keys), columns(&all("table"), &keys));
    for table in &tables {
        let is_of = |object: &&Value| {
            object["table"] == table["name"] && object["family"] == table["family"]
        };
        let of = |kind: &str| -> Vec<Value> { all(kind).iter().filter(is_of).cloned().collect() };
        let chains = table["chains"].as_array().unwrap();
        assert_eq!(columns(chains, &["name"]), columns(&of("chain"), &["name"]));
        if table["name"] == "theirs" {
            assert_eq!(table["chains"], json!([{"name": "forward"}]));
            continue;
        }
        let mut handles = Vec::new();
        for chain in chains {
            handles.extend(columns(chain["rules"].as_array().unwrap(), &["handle"]));
        }
        handles.sort_by_key(|row| json!(row).to_string());
        assert_eq!(handles, columns(&of("rule"), &["handle"]));
        for set in table["sets"].as_array().unwrap() {
            let mut theirs = of("set");
            theirs.extend(of("map"));
            let theirs = theirs
                .iter()
                .find(|one| one["name"] == set["name"])
                .unwrap();
            let count = |set: &Value, key: &str| set[key].as_array().map_or(0, Vec::len);
            assert_eq!(
                count(set, "elements"),
                count(theirs, "elem"),
                "{set} {theirs}"
            );
        }
    }
}

#[test]
fn an_archive_goes_to_standard_output() {
    let _host = Sandbox::new();
    let dumped = sysdump("-");
    assert!(
        dumped.status.success() && dumped.stderr.is_empty(),
        "{dumped:?}"
    );
    fs::write(ARCHIVE, dumped.stdout).unwrap();
    let dump = unpacked(ARCHIVE);
    assert_eq!(list(&dump, "records.json"), [Value::Null; 0]);
    assert!(text(&dump, "errors.txt").contains("no agent listens"));
}

#[test]
fn an_existing_file_a_symlink_and_a_missing_folder_are_refused() {
    let _host = Sandbox::new();
    let folder = Path::new("/run/shared");
    fs::create_dir(folder).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o1777)).unwrap();
    fs::write("/run/shared/file", "kept").unwrap();
    symlink("/run/elsewhere", folder.join("dangling")).unwrap();
    symlink("/run/shared/file", folder.join("link")).unwrap();
    for (path, why) in [
        ("/run/shared/file", "File exists"),
        ("/run/shared/dangling", "File exists"),
        ("/run/shared/link", "File exists"),
        ("/run/nowhere/file", "No such file or directory"),
    ] {
        let refused = sysdump(path);
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(
            said.starts_with(&format!("braid: create {path}: {why}")),
            "{said}"
        );
    }
    assert!(!Path::new("/run/elsewhere").exists());
    assert_eq!(fs::read_to_string("/run/shared/file").unwrap(), "kept");
}

#[test]
fn a_container_whose_namespace_is_gone_is_an_error_in_the_archive() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.call("ptp", &pod, conf::ptp()).add().result();
    host.end(&pod);
    let dumped = sysdump(ARCHIVE);
    assert!(dumped.status.success(), "{dumped:?}");
    let dump = unpacked(ARCHIVE);
    assert_eq!(list(&dump, "records.json").len(), 1);
    let errors = text(&dump, "errors.txt");
    let gone = "netns/a: network namespace /run/netns/a does not exist";
    assert!(errors.lines().any(|line| line == gone), "{errors}");
}
