//! The plugin folder after `braid install`: each plugin name is a separate script that starts
//! braid.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, binary, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Plugin folder into which these tests install braid.
const BIN: &str = "/run/bin";

fn braid(words: &[&str]) -> Output {
    Command::new(binary::braid())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn install(words: &[&str]) {
    let output = braid(&[&["install", "--bin-dir", BIN], words].concat());
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[track_caller]
fn refused(words: &[&str], expected: &str) {
    let output = braid(&[&["install"], words].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains(expected),
        "{words:?}: {said}"
    );
}

/// Attaches and detaches a container with the plugin file `plugin`, which is started as libcni
/// starts it.
#[track_caller]
fn attaches(host: &Sandbox, plugin: &str, pod: &Ns, conf: Value) {
    let call = Call::new("bridge", conf)
        .container(pod.name())
        .netns(pod.path())
        .by(plugin);
    call.add().result();
    assert_eq!(pod.link_names(), ["eth0"], "{plugin}");
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_copy_over_one_name_changes_only_this_name() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    fs::create_dir(BIN).unwrap();
    fs::write("/run/bin/portmap", "an older plugin").unwrap();
    install(&[]);
    let before = fs::metadata("/run/bin/braid").unwrap().ino();
    for name in ["portmap", "loopback", "bandwidth", "host-local"] {
        assert!(
            fs::symlink_metadata(format!("/run/bin/{name}"))
                .unwrap()
                .is_file(),
            "{name}: libcni wants a file"
        );
        fs::write(format!("/run/bin/{name}"), "#!/bin/sh\necho other\n").unwrap();
    }
    assert_eq!(fs::metadata("/run/bin/braid").unwrap().ino(), before);
    attaches(&host, "/run/bin/bridge", &pod, conf::bridge());
    let doctor =
        String::from_utf8(braid(&["install", "--bin-dir", BIN, "--dry-run"]).stdout).unwrap();
    assert!(
        doctor.contains("keep portmap as portmap.before-braid"),
        "{doctor}"
    );
    install(&[]);
    attaches(&host, "/run/bin/bridge", &pod, conf::bridge());
    install(&["--remove"]);
    assert_eq!(
        fs::read_to_string("/run/bin/portmap").unwrap(),
        "#!/bin/sh\necho other\n"
    );
    assert_eq!(
        fs::read_dir(BIN).unwrap().count(),
        4,
        "only the files of the other installer"
    );
}

#[test]
fn removal_is_refused_while_a_configuration_uses_type_braid() {
    let _host = Sandbox::new();
    fs::create_dir(BIN).unwrap();
    install(&[]);
    let braid_of = json!({"type": "braid", "plugins": [conf::bridge()]});
    let inner =
        json!({"type": "multus", "delegates": [{"name": "n", "plugins": [braid_of.clone()]}]});
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    for (name, plugin) in [
        ("10-pods.conflist", braid_of),
        ("20-multus.conflist", inner),
    ] {
        let path = format!("/etc/cni/net.d/{name}");
        fs::write(
            &path,
            json!({"cniVersion": "1.0.0", "name": "n", "plugins": [plugin]}).to_string(),
        )
        .unwrap();
        for more in [&[][..], &["--dry-run"]] {
            let output = braid(&[&["install", "--bin-dir", BIN, "--remove"], more].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                !output.status.success()
                    && said.contains(&path)
                    && said.contains("of type \"braid\""),
                "{said}"
            );
            assert!(
                fs::exists("/run/bin/braid").unwrap() && fs::exists("/run/bin/bridge").unwrap()
            );
        }
        install(&["--remove", "--names", "tuning"]);
        fs::rename(&path, format!("{path}.off")).unwrap();
    }
    install(&["--remove"]);
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 0);
}

#[test]
fn links_of_an_earlier_version_work_and_become_scripts() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    fs::create_dir(BIN).unwrap();
    fs::copy(binary::braid(), "/run/bin/braid").unwrap();
    for name in ["bridge", "host-local", "gone"] {
        symlink("braid", Path::new(BIN).join(name)).unwrap();
    }
    attaches(&host, "/run/bin/bridge", &pod, conf::bridge());
    fs::create_dir("/run/bin/.braid.trial").unwrap();
    fs::write(
        "/run/bin/.braid.trial/bridge",
        "of an install that was killed",
    )
    .unwrap();
    install(&[]);
    assert_eq!(
        fs::read_to_string("/run/bin/bridge").unwrap(),
        "#!/run/bin/braid\n"
    );
    assert!(!fs::exists("/run/bin/gone").unwrap());
    attaches(&host, "/run/bin/bridge", &pod, conf::bridge());
    install(&["--remove"]);
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 0);
}

#[test]
fn a_path_without_a_program_is_refused_before_any_change() {
    let host = Sandbox::new();
    fs::create_dir_all("/run/bin/with blank").unwrap();
    fs::write("/run/bin/bridge", "a plugin").unwrap();
    let (before, elsewhere) = (host.state(), "the node does not have");
    refused(
        &["--bin-dir", BIN, "--program", "/opt/cni/bin/braid"],
        elsewhere,
    );
    refused(
        &["--bin-dir", BIN, "--program", "/run/bin/bridge"],
        elsewhere,
    );
    refused(
        &["--bin-dir", BIN, "--program", "braid"],
        "absolute path of at most 253 bytes",
    );
    refused(&["--bin-dir", BIN, "--root", "/etc"], elsewhere);
    refused(
        &["--bin-dir", "/run/bin/../bin"],
        "the names would start /run/bin/../bin/braid: use a path without",
    );
    for more in [&[][..], &["--remove"]] {
        refused(
            &[
                &["--root", "/run/nosuch", "--bin-dir", "/run/nosuch/bin"],
                more,
            ]
            .concat(),
            "--root /run/nosuch: ",
        );
    }
    assert!(!fs::exists("/run/nosuch").unwrap());
    refused(&["--bin-dir", "/run/bin/with blank"], "without blanks");
    refused(
        &["--bin-dir", &format!("/run/{}", "x/".repeat(130))],
        "253 bytes",
    );
    before.assert_same(&host.state());
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 2);
}

#[test]
fn a_directory_with_a_plugin_name_is_refused_before_any_change() {
    let _host = Sandbox::new();
    fs::create_dir_all("/run/bin/bridge").unwrap();
    fs::write("/run/bin/ptp", "a plugin").unwrap();
    refused(&["--bin-dir", BIN], "/run/bin/bridge is a directory");
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 2);
    install(&["--names", "ptp"]);
    install(&["--remove"]);
    assert_eq!(fs::read_to_string("/run/bin/ptp").unwrap(), "a plugin");
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 2);
}

#[test]
fn a_noexec_folder_is_refused_before_any_change() {
    let host = Sandbox::new();
    fs::create_dir(BIN).unwrap();
    host.run(&format!("mount -t tmpfs -o noexec none {BIN}"));
    fs::write("/run/bin/bridge", "a plugin").unwrap();
    refused(&["--bin-dir", BIN], "Permission denied");
    let left: Vec<_> = fs::read_dir(BIN)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["bridge"]);
    host.run(&format!("umount {BIN}"));
}

#[test]
fn the_dhcp_daemon_is_started_by_its_name() {
    let _host = Sandbox::new();
    install(&["--names", "dhcp"]);
    let output = Command::new("/run/bin/dhcp")
        .args(["daemon", "-pidfile", "relative"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("path not absolute"),
        "{output:?}"
    );
}

#[test]
fn folders_of_the_runtime_are_found_and_lost_names_are_reported() {
    let host = Sandbox::new();
    fs::create_dir_all("/etc/crio").unwrap();
    fs::create_dir_all("/run/networks").unwrap();
    let folders = "[crio.network]\nplugin_dirs = [\"/run/bin\"]\nnetwork_dir = \"/run/networks\"\n";
    fs::write("/etc/crio/crio.conf", folders).unwrap();
    let list =
        json!({"cniVersion": "1.0.0", "name": "net", "plugins": [conf::bridge()]}).to_string();
    fs::write("/run/networks/10-net.conflist", list).unwrap();
    let words = [
        "install",
        "--conflist=auto",
        "--kubeconfig=auto",
        "--credentials=/run/x",
        "--server=https://x",
    ];
    let output = braid(&words);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for line in [
        "plugins in /run/bin: configured by CRI-O in /etc/crio/crio.conf",
        "configurations in /run/networks: configured by CRI-O",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(
        fs::exists("/run/networks/00-braid.conflist").unwrap()
            && fs::exists("/run/bin/bridge").unwrap()
    );
    let reports = |name: &str| {
        let [status, doctor] = [&["status"][..], &["doctor"]].map(braid);
        let status = String::from_utf8_lossy(&status.stderr).into_owned();
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert_eq!(
            status.contains(name),
            doctor.contains(name),
            "{status}{doctor}"
        );
        status.contains(name)
    };
    assert!(!reports("no longer start braid"));
    fs::write("/run/bin/portmap", "another plugin").unwrap();
    assert!(reports("/run/bin: portmap no longer start braid"));
    fs::rename(
        "/run/networks/00-braid.conflist",
        "/run/networks/00-braid.conflist.cilium_bak",
    )
    .unwrap();
    let doctor = String::from_utf8(braid(&["doctor"]).stdout).unwrap();
    assert!(
        doctor
            .contains("set cni.exclusive=false in Cilium, and rename 00-braid.conflist.cilium_bak"),
        "{doctor}"
    );
    host.assert_nothing_left();
}

#[test]
fn temporary_conditions_are_reported_and_do_not_fail_the_install() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    fs::create_dir_all(BIN).unwrap();
    let mut full = conf::bridge();
    full["ipam"]["subnet"] = json!("10.1.0.0/30");
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    host.call("bridge", &pod, full.clone()).add().result();
    for (conf, expected) in [
        (json!({"type": "flannel"}), "subnet.env"),
        (full, "no IP addresses available"),
    ] {
        let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [conf]}).to_string();
        fs::write("/etc/cni/net.d/10-net.conflist", list).unwrap();
        let words = [
            "--conflist=/etc/cni/net.d/00-braid.conflist",
            "--kubeconfig=/etc/cni/net.d/k",
        ];
        let folder = format!("--bin-dir={BIN}");
        let output = braid(&[
            "install",
            &folder,
            words[0],
            words[1],
            "--credentials=/run/x",
            "--server=https://x",
        ]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success()
                && said.contains("pods may have to wait")
                && said.contains(expected),
            "{output:?}"
        );
        assert!(fs::exists("/etc/cni/net.d/00-braid.conflist").unwrap());
    }
}

#[test]
fn scripts_survive_an_upgrade_of_the_distribution() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    fs::create_dir(BIN).unwrap();
    // This is an upgrade of k3s: each plugin name is a symbolic link to a multi-call program in the
    // folder of the version.
    let upgrade = |version: &str| {
        let program = format!("/run/data/{version}/cni");
        fs::create_dir_all(format!("/run/data/{version}")).unwrap();
        host.run(&format!("cp /bin/true {program}"));
        for name in ["cni", "bridge", "host-local", "portmap"] {
            let path = Path::new(BIN).join(name);
            if fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_symlink()) {
                continue;
            }
            let _ = fs::remove_file(&path);
            symlink(&program, path).unwrap();
        }
    };
    upgrade("1");
    install(&[]);
    upgrade("2");
    fs::remove_dir_all("/run/data/1").unwrap();
    attaches(&host, "/run/bin/bridge", &pod, conf::bridge());
    install(&[]);
    install(&["--remove"]);
    for name in ["bridge", "host-local", "portmap"] {
        assert_eq!(
            fs::read_link(Path::new(BIN).join(name)).unwrap(),
            Path::new("cni")
        );
        host.run(&format!("{BIN}/{name}"));
    }
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 4);
    install(&[]);
    for entry in fs::read_dir("/run/data").unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    fs::remove_file("/run/bin/cni").unwrap();
    install(&["--remove"]);
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 0, "no dangling link");
}

/// Starts all installs in parallel, each with its arguments. Returns their outputs. Fails if one
/// fails.
#[track_caller]
fn install_in_parallel(all: &[&[&str]]) -> Vec<String> {
    let start = |words: &&[&str]| {
        let mut process = Command::new(binary::braid());
        process.args(["install", "--bin-dir", BIN]).args(*words);
        process
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = all.iter().map(start).collect();
    let outputs = processes
        .into_iter()
        .map(|process| process.wait_with_output().unwrap());
    let said = |output: Output| {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    outputs.map(said).collect()
}

#[test]
fn parallel_installs_run_one_after_another_and_succeed() {
    let _host = Sandbox::new();
    let said = install_in_parallel(&[&[][..]; 6]);
    let copies = said
        .iter()
        .filter(|said| said.contains("copy braid\n"))
        .count();
    assert_eq!(
        (
            copies,
            said.iter()
                .filter(|said| said.contains("nothing to do"))
                .count()
        ),
        (1, 5),
        "{said:?}"
    );
    assert_eq!(
        fs::read_to_string("/run/bin/bridge").unwrap(),
        "#!/run/bin/braid\n"
    );
    install(&["--remove"]);
    assert_eq!(fs::read_dir(BIN).unwrap().count(), 0);
}

#[test]
fn an_install_and_a_removal_in_parallel_leave_the_state_of_the_later() {
    let _host = Sandbox::new();
    for is_first in [true, false, true, false] {
        fs::create_dir(BIN).unwrap();
        fs::write("/run/bin/bridge", "a plugin").unwrap();
        let both = if is_first {
            [&[][..], &["--remove"]]
        } else {
            [&["--remove"][..], &[]]
        };
        let said = install_in_parallel(&both).concat();
        let is_removed = said.contains("remove braid");
        assert_eq!(fs::exists("/run/bin/braid").unwrap(), !is_removed, "{said}");
        let bridge = if is_removed {
            "a plugin"
        } else {
            "#!/run/bin/braid\n"
        };
        assert_eq!(
            fs::read_to_string("/run/bin/bridge").unwrap(),
            bridge,
            "{said}"
        );
        assert_eq!(
            fs::read_dir(BIN).unwrap().count() == 1,
            is_removed,
            "{said}"
        );
        fs::remove_dir_all(BIN).unwrap();
    }
}
