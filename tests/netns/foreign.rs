//! Foreign plugins and foreign IPAMs: braid releases their resources after a reboot and without its
//! record.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, binary, json, state};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Script that is a foreign plugin and a foreign IPAM. It keeps a file on disk for each attachment,
/// and logs each call.
const THEIRS: &str = r#"#!/bin/sh
conf=$(cat)
of=$CNI_CONTAINERID.$CNI_IFNAME
mkdir -p /var/lib/theirs
echo "$CNI_COMMAND $of" >>/run/theirs.calls
printf %s "$conf" >/run/theirs.conf.$CNI_COMMAND.$of
env | grep ^CNI_ >/run/theirs.env.$CNI_COMMAND.$of
if [ -e /run/theirs.fail.$CNI_COMMAND ]; then
    echo '{"code": 107, "msg": "theirs was told to fail"}'
    exit 1
fi
case $CNI_COMMAND in
ADD)
    touch /var/lib/theirs/$of
    echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.7/24"}]}' ;;
DEL) rm -f /var/lib/theirs/$of ;;
esac
"#;
const RECORDS: &str = "/var/lib/braid/foreign";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn node() -> Sandbox {
    let host = Sandbox::new();
    host.script("theirs", THEIRS);
    host
}

/// Returns a call for four networks: one of braid's plugins, one with a foreign IPAM, one of a
/// foreign plugin, and another one of braid's plugins.
fn call(host: &Sandbox, pod: &Ns) -> Call {
    let native = |number: u8| {
        json!({"type": "bridge", "bridge": format!("br{number}"),
            "ipam": {"type": "host-local", "subnet": format!("10.{number}.0.0/24")}})
    };
    let network = |name: &str, plugin: &Value| json!({"cniVersion": "1.1.0", "name": name, "plugins": [plugin]});
    let delegates = json!([
        network("one", &native(1)),
        network(
            "far",
            &json!({"type": "bridge", "bridge": "br8", "ipam": {"type": "theirs", "pool": "p"}})
        ),
        network("odd", &json!({"type": "theirs", "key": "value"})),
        network("two", &native(2)),
    ]);
    let conf =
        json!({"cniVersion": "1.1.0", "name": "pods", "type": "braid", "delegates": delegates});
    host.call("braid", pod, conf).args("IgnoreUnknown=1;X=a")
}

/// Returns the attachments for which the foreign program keeps a file, sorted.
fn held() -> Vec<String> {
    let files = fs::read_dir("/var/lib/theirs")
        .into_iter()
        .flatten()
        .flatten();
    let mut held: Vec<String> = files
        .map(|file| file.file_name().into_string().unwrap())
        .collect();
    held.sort();
    held
}

/// Returns `<verb> <container>.<interface>` for each call of the foreign program, and clears the
/// log.
fn calls() -> Vec<String> {
    let calls = fs::read_to_string("/run/theirs.calls").unwrap_or_default();
    let _ = fs::remove_file("/run/theirs.calls");
    calls.lines().map(str::to_owned).collect()
}

/// Returns the paths of braid's records about foreign plugins, which are on disk.
fn records() -> Vec<String> {
    state::tree(Path::new(RECORDS))
        .into_keys()
        .filter(|path| Path::new(path).is_file())
        .collect()
}

/// Ends all containers and deletes everything that a reboot would delete. Files on disk stay.
fn reboot(host: &Sandbox, pods: &[&Ns]) {
    for pod in pods {
        // Deleted explicitly, because the kernel takes a while to delete the links of an ended
        // namespace.
        for link in pod.link_names() {
            pod.run(&format!("ip link del {link}"));
        }
        host.end(pod);
        fs::remove_file(pod.path()).unwrap();
    }
    fs::remove_dir_all("/run/braid").unwrap();
    for bridge in ["br1", "br2", "br8"] {
        host.run(&format!("ip link del {bridge}"));
    }
    fs::write("/run/boot_id", "5e5f6a52-0000-4000-8000-000000000001\n").unwrap();
    host.run(&format!("mount --bind /run/boot_id {BOOT_ID}"));
    calls();
}

#[test]
fn standard_error_of_a_foreign_plugin_is_passed_on_unchanged() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = json!({"cniVersion": "1.1.0", "name": "odd", "plugins": [{"type": "theirs"}]});
    let call = host.call("braid", &pod, conf);
    let long = 500_000;
    host.script(
        "theirs",
        &format!(
            "#!/bin/sh\nprintf 'begin\\n' >&2\nhead -c {long} /dev/zero | tr '\\0' x >&2\n\
            cat >/dev/null\nprintf ' end' >&2\n[ $CNI_COMMAND != ADD ] || echo '{{\"cniVersion\": \"1.1.0\"}}'\n"
        ),
    );
    let said = format!("begin\n{} end", "x".repeat(long));
    let added = call.add();
    assert!(added.stderr == said, "{} bytes", added.stderr.len());
    added.result();
    let deleted = call.del();
    assert!(deleted.stderr == said, "{} bytes", deleted.stderr.len());
    deleted.ok();
}

#[test]
fn after_a_reboot_del_releases_everything() {
    let host = node();
    let pod = host.pod("a");
    let call = call(&host, &pod);
    let result = call.add().result();
    assert_eq!(held(), ["a.net1", "a.net2"]);
    reboot(&host, &[&pod]);
    call.clone().prev(&result).del().ok();
    assert_eq!(
        (calls(), held()),
        (
            vec!["DEL a.net2".to_owned(), "DEL a.net1".to_owned()],
            Vec::new()
        )
    );
    let told = fs::read_to_string("/run/theirs.conf.DEL.a.net1").unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["name"], &told["ipam"]["pool"]),
        (&json!("far"), &json!("p"))
    );
    assert_eq!(told["prevResult"]["ips"][0]["address"], "10.9.0.7/24");
    let env = fs::read_to_string("/run/theirs.env.DEL.a.net2").unwrap();
    assert!(
        env.contains("CNI_ARGS=IgnoreUnknown=1;X=a\n") && env.contains("CNI_IFNAME=net2\n"),
        "{env}"
    );
    assert!(
        env.lines().any(|line| line.starts_with("CNI_PATH=/")),
        "{env}"
    );
    host.assert_nothing_left();
    call.del().ok();
    assert_eq!(calls(), [""; 0], "nothing is left to release");
}

#[test]
fn after_a_reboot_del_does_not_touch_a_new_namespace_at_the_old_path() {
    let host = node();
    let pod = host.pod("a");
    call(&host, &pod).add().result();
    reboot(&host, &[&pod]);
    let other = host.pod("a");
    other.run("ip link add eth0 type veth peer name net1");
    let links = other.link_names();
    call(&host, &other).del().ok();
    assert_eq!((held(), other.link_names()), (Vec::new(), links));
    let env = fs::read_to_string("/run/theirs.env.DEL.a.net1").unwrap();
    assert!(env.contains("CNI_NETNS=\n"), "{env}");
}

#[test]
fn after_a_reboot_gc_releases_unlisted_attachments() {
    for is_listed in [true, false] {
        let host = node();
        let [old, new] = ["old", "new"].map(|name| host.pod(name));
        call(&host, &old).add().result();
        reboot(&host, &[&old]);
        let living = call(&host, &new);
        living.add().result();
        assert_eq!(held(), ["new.net1", "new.net2", "old.net1", "old.net2"]);
        if is_listed {
            living.gc(&[("new", "eth0")]).ok();
        } else {
            living.run("GC").ok();
        }
        assert_eq!(held(), ["new.net1", "new.net2"], "{is_listed}");
        let told = fs::read_to_string("/run/theirs.conf.DEL.old.net2").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&told).unwrap()["key"],
            "value"
        );
        let left = host.leftovers();
        assert!(
            !left
                .iter()
                .any(|left| left.contains("old") || left.ends_with(".0.2")),
            "{left:?}"
        );
        assert_eq!(records().len(), 1);
        living.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn after_a_reboot_gc_and_detach_commands_release_attachments() {
    for words in [&["gc"][..], &["detach", "old"]] {
        let host = node();
        let pod = host.pod("old");
        call(&host, &pod).add().result();
        reboot(&host, &[&pod]);
        let output = Command::new(binary::braid()).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(held(), [""; 0], "{words:?}");
        host.assert_nothing_left();
    }
}

#[test]
fn after_a_reboot_add_first_releases_the_old_attachment() {
    let host = node();
    let pod = host.pod("a");
    call(&host, &pod).add().result();
    reboot(&host, &[&pod]);
    let pod = host.pod("a");
    let call = call(&host, &pod);
    call.add().result();
    assert_eq!(
        calls(),
        ["DEL a.net2", "DEL a.net1", "ADD a.net1", "ADD a.net2"]
    );
    call.del().ok();
    assert_eq!(held(), [""; 0]);
    host.assert_nothing_left();
}

#[test]
fn a_failed_release_is_retried_after_a_reboot() {
    let host = node();
    let pod = host.pod("a");
    let call = call(&host, &pod);
    call.add().result();
    fs::write("/run/theirs.fail.DEL", "").unwrap();
    call.del().refused(107, &["theirs was told to fail"]);
    assert_eq!(
        pod.link_names(),
        [""; 0],
        "the native ones do not wait for it"
    );
    // Only the attachments of foreign plugins are left.
    host.run("ip link del br1");
    fs::remove_dir_all("/run/braid").unwrap();
    fs::write("/run/boot_id", "5e5f6a52-0000-4000-8000-000000000001\n").unwrap();
    host.run(&format!("mount --bind /run/boot_id {BOOT_ID}"));
    call.del().refused(107, &["theirs was told to fail"]);
    fs::remove_file("/run/theirs.fail.DEL").unwrap();
    calls();
    call.del().ok();
    assert_eq!(
        (calls(), held()),
        (
            vec!["DEL a.net2".to_owned(), "DEL a.net1".to_owned()],
            Vec::new()
        )
    );
    host.assert_nothing_left();
}

#[test]
fn a_lost_record_of_the_same_boot_does_not_prevent_del() {
    for damage in ["missing", "", "{", "null", "[]"] {
        let host = node();
        let pod = host.pod("a");
        let call = call(&host, &pod);
        call.add().result();
        let record = "/run/braid/attachments/a/eth0:pods:braid.json";
        match damage {
            "missing" => fs::remove_file(record).unwrap(),
            text => fs::write(record, text).unwrap(),
        }
        calls();
        call.del().ok();
        assert_eq!(
            (held(), pod.link_names()),
            (Vec::new(), Vec::new()),
            "{damage:?}"
        );
        assert_eq!(calls(), ["DEL a.net2", "DEL a.net1"], "{damage:?}");
        host.assert_nothing_left();
    }
}

#[test]
fn gc_calls_foreign_plugins_of_a_lost_record() {
    for damage in ["missing", "", "null"] {
        let host = node();
        let [lost, kept] = ["lost", "kept"].map(|name| host.pod(name));
        for pod in [&lost, &kept] {
            call(&host, pod).add().result();
        }
        let record = "/run/braid/attachments/lost/eth0:pods:braid.json";
        match damage {
            "missing" => fs::remove_dir_all("/run/braid/attachments/lost").unwrap(),
            text => fs::write(record, text).unwrap(),
        }
        call(&host, &kept).gc(&[("kept", "eth0")]).ok();
        assert_eq!(held(), ["kept.net1", "kept.net2"], "{damage:?}");
        assert_eq!(
            (lost.link_names(), kept.link_names().len()),
            (Vec::new(), 3),
            "{damage:?}"
        );
        call(&host, &kept).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_file_damaged_by_a_power_failure_fails_neither_del_nor_gc() {
    for (text, is_gc) in [
        ("", false),
        ("", true),
        ("{\"layout\":3,", false),
        ("null", true),
        ("[]", false),
    ] {
        let host = node();
        let pod = host.pod("a");
        let call = call(&host, &pod);
        call.add().result();
        reboot(&host, &[&pod]);
        for record in records() {
            fs::write(record, text).unwrap();
        }
        fs::write(format!("{RECORDS}/a/eth0:pods:braid.tmp"), "").unwrap();
        let answer = if is_gc { call.gc(&[]) } else { call.del() };
        answer.ok();
        assert_eq!(records(), [""; 0], "{text:?} {is_gc}");
        host.assert_nothing_left();
    }
}

#[test]
fn the_record_is_private_to_root_and_native_attachments_have_none() {
    let host = node();
    let pod = host.pod("a");
    let native = host.call("bridge", &pod, conf::bridge());
    native.add().result();
    assert!(!Path::new("/var/lib/braid").exists());
    native.del().ok();
    let call = call(&host, &pod);
    call.add().result();
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let [record] = &records()[..] else {
        panic!("one record: {:?}", records())
    };
    assert_eq!(record, "/var/lib/braid/foreign/a/eth0:pods:braid.json");
    let folders = ["/var/lib/braid", RECORDS, "/var/lib/braid/foreign/a"].map(mode);
    assert_eq!((mode(record), folders), (0o600, [0o700; 3]));
    let text: Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    let boot = fs::read_to_string(BOOT_ID).unwrap();
    assert_eq!(
        (&text["layout"], text["boot"].as_str()),
        (&json!(3), Some(boot.trim()))
    );
    assert_eq!(
        text["attachments"][1]["result"]["ips"][0]["address"],
        "10.9.0.7/24"
    );
    assert!(!text.to_string().contains("\"Add\""), "no steps: {text}");
    call.del().ok();
    host.assert_nothing_left();
}
