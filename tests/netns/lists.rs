//! Plugin type `braid`: a whole list in one process, with foreign plugins and foreign IPAMs in it.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::fs;
use std::path::Path;

/// Script of a foreign plugin that logs each call and returns `prevResult` with another DNS server.
/// A verb fails if the key `fail` of the configuration, or a file of [`fail`], names it.
const SPY: &str = r#"#!/bin/sh
conf=$(cat)
at=/run/spy
echo "$CNI_COMMAND" >>$at.order.$(basename "$0")
echo "$(basename "$0") $CNI_COMMAND" >>$at.order
env | grep ^CNI_ | sort >$at.env.$CNI_COMMAND
printf %s "$conf" >$at.conf.$CNI_COMMAND
[ -e $at.fail.$(basename "$0").$CNI_COMMAND ] && conf="\"fail\":\"$CNI_COMMAND\""
case "$conf" in *"\"fail\":\"$CNI_COMMAND\""*)
    echo '{"code": 107, "msg": "spy was told to fail", "details": "by the test"}'
    exit 1 ;;
esac
if [ "$CNI_COMMAND" = ADD ]; then
    printf %s "$conf" | python3 -c 'import json, sys
conf = json.load(sys.stdin)
result = conf.get("prevResult", {"cniVersion": conf["cniVersion"]})
result["dns"] = {"nameservers": ["192.0.2.99"]}
print(json.dumps(result))'
fi
"#;

fn list(plugins: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins})
}

fn order() -> Vec<String> {
    fs::read_to_string("/run/spy.order")
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn spied(what: &str) -> String {
    fs::read_to_string(format!("/run/spy.{what}")).unwrap_or_default()
}

fn call(host: &Sandbox, pod: &Ns, plugins: &Value) -> Call {
    host.script("spy", SPY);
    host.script("spy2", SPY);
    host.call("braid", pod, list(plugins))
}

#[test]
fn a_list_of_known_types_is_one_call() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let tuning = json!({"type": "tuning", "mac": "c2:11:22:33:44:55", "mtu": 1400,
        "sysctl": {"net.core.somaxconn": "500"}});
    let mut bridge = conf::bridge();
    bridge["ipMasq"] = json!(true);
    let call = host.call(
        "braid",
        &pod,
        list(&json!([bridge, tuning, {"type": "loopback"}])),
    );
    let result = call.add().result();
    assert_eq!(result["interfaces"][2]["mac"], "c2:11:22:33:44:55");
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    assert_eq!(pod.sysctl("net/core/somaxconn"), "500");
    assert!(pod.can_ping("10.1.0.1") && pod.can_ping("127.0.0.1"));
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Attaches a container with one call for each plugin of the list, each by its own name.
fn attached_by_names(host: &Sandbox, pod: &Ns) {
    let mut bridge = conf::bridge();
    bridge["ipMasq"] = json!(true);
    let result = host.call("bridge", pod, bridge).add().result();
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "runtimeConfig": {"portMappings": ports}});
    host.call("portmap", pod, portmap)
        .prev(&result)
        .add()
        .result();
}

#[test]
fn del_of_a_list_deletes_attachments_of_its_separate_plugins() {
    let of_pods = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "clusterNetwork": "/run/default"});
    for conf in [list(&json!([conf::bridge(), {"type": "portmap"}])), of_pods] {
        let host = Sandbox::new();
        fs::write("/run/default", conf::bridge().to_string()).unwrap();
        let pod = host.pod("a");
        attached_by_names(&host, &pod);
        let call = host.call("braid", &pod, conf);
        call.gc(&[("a", "eth0")]).ok();
        assert!(pod.can_ping("10.1.0.1"), "GC keeps listed attachments");
        call.del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), [""; 0]);
    }
}

#[test]
fn gc_of_a_list_deletes_attachments_of_its_separate_plugins() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    attached_by_names(&host, &pod);
    host.call(
        "braid",
        &pod,
        list(&json!([conf::bridge(), {"type": "portmap"}])),
    )
    .gc(&[])
    .ok();
    host.assert_nothing_left();
}

#[test]
fn a_network_may_be_a_single_plugin_or_a_list() {
    let networks = [
        conf::bridge(),
        json!({"cniVersion": "1.1.0", "name": "net", "plugins": [conf::bridge(), {"type": "tuning", "mtu": 1400}]}),
    ];
    for network in networks {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let conf =
            json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "network": network});
        let call = host.call("braid", &pod, conf);
        let result = call.add().result();
        assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24"]);
        call.check(&result).ok();
        call.status().ok();
        call.gc(&[("a", "eth0")]).ok();
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_configuration_needs_plugins_or_a_network_other_than_braid() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let base = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid"});
    let before = host.state();
    let with = |key: &str, value: Value| host.call("braid", &pod, base.clone()).with(key, value);
    host.call("braid", &pod, base.clone())
        .add()
        .refused(7, &["\"plugins\" or \"network\""]);
    with("plugins", json!([]))
        .add()
        .refused(7, &["no plugins in the list"]);
    with("plugins", json!([{"type": "braid"}]))
        .add()
        .refused(7, &["can't be part of its own list"]);
    with("plugins", json!([{"type": "bridge"}, {}]))
        .add()
        .refused(7, &["no plugin name provided"]);
    for bad in ["../bridge", "/bin/sh", "a/b", "..", "."] {
        with("plugins", json!([{"type": bad}]))
            .add()
            .refused(7, &["invalid plugin name", bad]);
        let ipam = json!([{"type": "bridge", "ipam": {"type": bad}}]);
        with("plugins", ipam)
            .add()
            .refused(7, &["invalid plugin name", bad]);
    }
    before.assert_same(&host.state());
}

#[test]
fn runtime_config_is_passed_by_capability() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut bridge = conf::bridge();
    bridge["capabilities"] = json!({"ips": true, "mac": false});
    let call = host.call("braid", &pod, list(&json!([bridge])));
    let runtime = json!({"ips": ["10.1.0.77"], "mac": "c2:11:22:33:44:55"});
    call.with("runtimeConfig", runtime).add().result();
    assert_eq!(pod.addrs("eth0"), ["10.1.0.77/24"]);
    assert_ne!(pod.the_link("eth0")["address"], "c2:11:22:33:44:55");
}

#[test]
fn a_foreign_plugin_gets_the_environment_and_input_of_libcni() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let plugins =
        json!([conf::bridge(), {"type": "spy", "own": [1, 2]}, {"type": "tuning", "mtu": 1400}]);
    let call = call(&host, &pod, &plugins).args("IgnoreUnknown=1;K8S_POD_NAME=web");
    let result = call.add().result();
    let env = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web\nCNI_COMMAND=ADD\nCNI_CONTAINERID=a\nCNI_IFNAME=eth0\n\
               CNI_NETNS=/run/netns/a\nCNI_PATH=/run/cni-bin\n";
    assert_eq!(spied("env.ADD"), env);
    let conf: Value = serde_json::from_str(&spied("conf.ADD")).unwrap();
    assert_eq!(
        (&conf["name"], &conf["cniVersion"], &conf["type"]),
        (&json!("net"), &json!("1.1.0"), &json!("spy"))
    );
    assert_eq!(conf["own"], json!([1, 2]));
    assert_eq!(conf["prevResult"]["ips"], result["ips"]);
    assert_eq!(conf["prevResult"]["interfaces"], result["interfaces"]);
    assert_eq!(
        result["dns"],
        json!({"nameservers": ["192.0.2.99"]}),
        "the foreign plugin's addition is kept"
    );
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    call.check(&result).ok();
    let conf: Value = serde_json::from_str(&spied("conf.CHECK")).unwrap();
    assert_eq!(conf["prevResult"], result, "CHECK gets the final result");
}

#[test]
fn plugins_run_in_order_and_del_in_reverse() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let plugins =
        json!([conf::bridge(), {"type": "spy"}, {"type": "tuning", "mtu": 1400}, {"type": "spy2"}]);
    let call = call(&host, &pod, &plugins);
    let result = call.add().result();
    call.check(&result).ok();
    call.status().ok();
    call.gc(&[("a", "eth0")]).ok();
    call.clone().prev(&result).del().ok();
    let verbs = ["ADD", "CHECK", "STATUS", "GC"]
        .into_iter()
        .flat_map(|verb| ["spy", "spy2"].map(|spy| format!("{spy} {verb}")));
    let expected: Vec<String> = verbs
        .chain(["spy2 DEL".to_owned(), "spy DEL".to_owned()])
        .collect();
    assert_eq!(order(), expected);
    let conf: Value = serde_json::from_str(&spied("conf.DEL")).unwrap();
    assert_eq!(conf["prevResult"], result);
    let conf: Value = serde_json::from_str(&spied("conf.GC")).unwrap();
    let valid = json!([{"containerID": "a", "ifname": "eth0"}]);
    assert_eq!(
        (
            &conf["cni.dev/valid-attachments"],
            &conf["cni.dev/attachments"]
        ),
        (&valid, &valid)
    );
    host.assert_nothing_left();
}

#[test]
fn del_of_separate_plugins_deletes_the_attachment_of_a_list() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let mapping =
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let mut bridge = conf::bridge();
    bridge["ipMasq"] = json!(true);
    let list = call(&host, &pod, &json!([bridge, portmap, {"type": "firewall"}]))
        .with("runtimeConfig", mapping);
    let result = list.add().result();
    for (name, conf) in [
        ("firewall", json!({})),
        ("portmap", portmap),
        ("bridge", bridge),
    ] {
        let conf = conf.as_object().expect("an object").iter();
        let named = conf.fold(
            host.call(name, &pod, json!({"cniVersion": "1.1.0", "name": "net"})),
            |call, (key, value)| call.with(key, value.clone()),
        );
        named.prev(&result).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn gc_without_a_list_calls_no_foreign_plugin() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod, &json!([conf::bridge(), {"type": "spy"}]));
    let result = call.add().result();
    call.run("GC").ok();
    assert_eq!(order(), ["spy ADD"]);
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_failing_foreign_plugin_rolls_back_all_and_keeps_its_error() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut bridge = conf::bridge();
    bridge["ipMasq"] = json!(true);
    let plugins = json!([bridge, {"type": "spy"}, {"type": "tuning", "mtu": 1400}, {"type": "spy2", "fail": "ADD"}]);
    let call = call(&host, &pod, &plugins);
    call.add()
        .refused(107, &["spy was told to fail", "by the test"]);
    assert_eq!(order(), ["spy ADD", "spy2 ADD", "spy2 DEL", "spy DEL"]);
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_failing_native_plugin_rolls_back_an_earlier_foreign_one() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let plugins = json!([conf::bridge(), {"type": "spy"}, {"type": "tuning", "mtu": 67}]);
    call(&host, &pod, &plugins)
        .add()
        .refused(7, &["\"mtu\": 67"]);
    assert_eq!(order(), ["spy ADD", "spy DEL"]);
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

/// Returns a list of four plugins: braid's `bridge` and `tuning` between two foreign plugins.
fn between_spies() -> Value {
    json!([{"type": "spy"}, conf::bridge(), {"type": "tuning", "mtu": 1400}, {"type": "spy2"}])
}

/// Makes the foreign plugin `spy` fail at `verb`. Returns the path of a file whose removal ends
/// this.
fn fail(spy: &str, verb: &str) -> String {
    let file = format!("/run/spy.fail.{spy}.{verb}");
    fs::write(&file, "").unwrap();
    file
}

#[test]
fn del_continues_after_a_failure_and_the_next_retries_only_that() {
    for again in ["DEL", "GC", "GC without a list"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = call(&host, &pod, &between_spies());
        call.add().result();
        let broken = ["spy", "spy2"].map(|spy| fail(spy, "DEL"));
        call.del().refused(107, &["spy was told to fail"]);
        assert_eq!(order()[2..], ["spy2 DEL", "spy DEL"]);
        assert_eq!(pod.link_names(), Vec::<String>::new());
        let records = ["/run/braid/attachments", "/var/lib/braid/foreign"];
        let records = records.map(|folder| format!("{folder}/a/eth0:net:braid.json"));
        let left = host.leftovers();
        let is_of_record = |left: &String| {
            records
                .iter()
                .any(|record| record.starts_with(left.as_str()))
        };
        assert!(
            left.iter().all(is_of_record),
            "the address is free: {left:?}"
        );
        // `spy` works again and releases its resources, so a later DEL does not call it.
        fs::remove_file(&broken[0]).unwrap();
        call.del().refused(107, &["spy was told to fail"]);
        assert_eq!(order()[4..], ["spy2 DEL", "spy DEL"]);
        // Meanwhile another attachment gets the same address and a link with the same name.
        let other = host
            .call("bridge", &pod, conf::bridge())
            .with("name", "other");
        let result = other.add().result();
        fs::remove_file(&broken[1]).unwrap();
        let answer = match again {
            "DEL" => call.del(),
            "GC" => call.gc(&[]),
            _ => call.run("GC"),
        };
        answer.ok();
        assert_eq!(
            order()[6..]
                .iter()
                .filter(|call| call.ends_with("DEL"))
                .collect::<Vec<_>>(),
            ["spy2 DEL"]
        );
        other.check(&result).ok();
        other.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn an_address_stays_reserved_while_its_link_exists() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod, &between_spies());
    let result = call.add().result();
    let port = result["interfaces"][1]["name"].as_str().unwrap();
    // The link gets the name of `lo`, because `lo` is the only link that the kernel does not
    // delete.
    host.run(&format!("ip link del {port}"));
    host.run(&format!("ip link set lo down name {port}"));
    call.del().refused(999, &[&format!("ip link del {port}")]);
    assert_eq!(order()[2..], ["spy2 DEL", "spy DEL"]);
    let has_lease = || {
        host.leftovers()
            .iter()
            .any(|left| left.ends_with("/10.1.0.2"))
    };
    assert!(has_lease());
    host.run(&format!("ip link set {port} name lo up"));
    call.del().ok();
    assert_eq!(
        order().len(),
        4,
        "the foreign plugins are not called again: {:?}",
        order()
    );
    host.assert_nothing_left();
}

#[test]
fn a_foreign_plugin_that_fails_at_rollback_is_called_again() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod, &between_spies());
    fail("spy2", "ADD");
    let broken = fail("spy", "DEL");
    let error = call.add().error();
    assert!(
        error.code == 107 && error.msg.contains("left behind until DEL or GC"),
        "{error:?}"
    );
    assert_eq!(order(), ["spy ADD", "spy2 ADD", "spy2 DEL", "spy DEL"]);
    fs::remove_file(broken).unwrap();
    call.gc(&[]).ok();
    assert_eq!(order()[4..], ["spy DEL", "spy GC", "spy2 GC"]);
    host.assert_nothing_left();
}

#[test]
fn a_missing_plugin_is_named_with_the_search_path_and_nothing_is_left() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call(
        "braid",
        &pod,
        list(&json!([conf::bridge(), {"type": "no-such"}])),
    );
    call.add().refused(
        999,
        &["failed to find plugin \"no-such\" in path [/run/cni-bin]"],
    );
    assert_eq!(pod.link_names(), Vec::<String>::new());
    let left: Vec<String> = host
        .leftovers()
        .into_iter()
        .filter(|left| !left.contains("attachments"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Script of a foreign IPAM that always returns the same address.
const IPAM: &str = r#"#!/bin/sh
cat >/run/ipam.$CNI_COMMAND
echo $CNI_COMMAND >>/run/ipam.order
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.8.0.9/24","gateway":"10.8.0.1"}],
    "routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["192.0.2.53"]}}'
exit 0
"#;

#[test]
fn a_foreign_ipam_gets_every_verb_with_the_whole_configuration() {
    let host = Sandbox::new();
    host.script("my-ipam", IPAM);
    let pod = host.pod("a");
    let ipam = json!({"type": "my-ipam", "pool": "blue"});
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", ipam.clone())
        .with("cniVersion", "1.1.0");
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.8.0.9/24"]);
    assert_eq!(result["dns"], json!({"nameservers": ["192.0.2.53"]}));
    let seen: Value = serde_json::from_str(&fs::read_to_string("/run/ipam.ADD").unwrap()).unwrap();
    assert_eq!((&seen["ipam"], &seen["bridge"]), (&ipam, &json!("br0")));
    call.check(&result).ok();
    call.status().ok();
    call.gc(&[("a", "eth0")]).ok();
    call.del().ok();
    let order = fs::read_to_string("/run/ipam.order").unwrap();
    assert_eq!(order, "ADD\nCHECK\nSTATUS\nGC\nDEL\n");
    host.assert_nothing_left();
}

#[test]
fn a_foreign_ipam_gets_del_when_the_add_fails_later() {
    let host = Sandbox::new();
    host.script("my-ipam", IPAM);
    host.run("ip link add br0 type bridge");
    host.run("ip addr add 10.77.0.1/24 dev br0");
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", json!({"type": "my-ipam"}));
    call.add()
        .refused(999, &["already has an IP address different"]);
    assert_eq!(fs::read_to_string("/run/ipam.order").unwrap(), "ADD\nDEL\n");
    host.assert_nothing_left();
}

#[test]
fn a_foreign_ipam_with_missing_or_invalid_output_is_refused() {
    for (says, word) in [
        ("{}", "missing IP config"),
        ("", "missing IP config"),
        ("[1", "my-ipam"),
        ("{\"ips\": 5}", "\"ips\""),
    ] {
        let host = Sandbox::new();
        host.script(
            "my-ipam",
            &format!(
                "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = ADD ] && echo '{says}'\nexit 0\n"
            ),
        );
        let pod = host.pod("a");
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("ipam", json!({"type": "my-ipam"}));
        let error = call.add().error();
        assert!(error.msg.contains(word), "{says}: {error:?}");
        host.assert_nothing_left();
    }
}

/// Returns a call of a foreign plugin with the script `text`. The plugin gets its addresses from
/// braid's host-local, as the reference `vlan` and `flannel` do.
fn call_back_to_braid(host: &Sandbox, pod: &Ns, text: &str) -> Call {
    host.script("theirs", text);
    let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24"});
    host.call(
        "host-local",
        pod,
        json!({"cniVersion": "1.0.0", "name": "net", "ipam": ipam}),
    )
    .run("VERSION")
    .result();
    let plugins = json!([{"type": "theirs", "master": "eth0", "ipam": ipam}]);
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins});
    // The timeout ends a deadlock, which would last forever.
    host.call("braid", pod, list).under("timeout 60")
}

#[test]
fn a_foreign_plugin_may_call_braid_for_the_same_container() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call_back_to_braid(&host, &pod, "#!/bin/sh\nexec \"$CNI_PATH/host-local\"\n");
    for expected in ["10.8.0.2/24", "10.8.0.3/24"] {
        let result = call.add().result();
        assert_eq!(result["ips"][0]["address"], expected);
        call.check(&result).ok();
        call.del().ok();
        host.assert_nothing_left();
    }
    call.add().result();
    call.gc(&[]).ok();
    host.assert_nothing_left();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_reference_plugin_may_call_braid_for_the_same_container() {
    needs!(Reference);
    let host = Sandbox::new();
    host.run("ip link add eth0 type veth peer name outside");
    host.run("ip link set eth0 up");
    let pod = host.pod("a");
    let theirs = braid_tests::binary::reference().unwrap().join("macvlan");
    let call = call_back_to_braid(
        &host,
        &pod,
        &format!("#!/bin/sh\nexec {}\n", theirs.display()),
    );
    call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.8.0.2/24"]);
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_native_plugin_that_is_not_an_ipam_is_refused_as_ipam() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for plugin in ["bridge", "braid", "tuning"] {
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("ipam", json!({"type": plugin}));
        call.under("timeout 60")
            .add()
            .refused(7, &["\"ipam\"", plugin]);
        host.assert_nothing_left();
    }
}

#[test]
fn a_foreign_plugin_that_is_still_being_written_is_waited_for() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = call(&host, &pod, &json!([conf::bridge(), {"type": "spy"}]));
    let writer = fs::OpenOptions::new()
        .append(true)
        .open("/run/cni-bin/spy")
        .unwrap();
    let added = std::thread::scope(|scope| {
        let adding = scope.spawn(|| call.add());
        while !adding.is_finished() && !waits_for_a_file("/run/netns/a") {
            std::thread::yield_now();
        }
        assert!(!adding.is_finished(), "{:?}", adding.join());
        drop(writer);
        adding.join().unwrap()
    });
    assert_eq!(added.result()["dns"]["nameservers"][0], "192.0.2.99");
    call.del().ok();
    host.assert_nothing_left();
}

/// True if a process whose `CNI_NETNS` is `netns` uses inotify.
fn waits_for_a_file(netns: &str) -> bool {
    let watches = |process: &Path| {
        let files = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| to.ends_with("anon_inode:inotify"))
    };
    let is_called = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&format!("CNI_NETNS={netns}"))
    };
    let processes = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    processes
        .filter(|process| is_called(process))
        .any(|process| watches(&process))
}
