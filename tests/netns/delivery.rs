//! Results that cannot be written. The runtime does not get such a result, so braid rolls the
//! attachment back.

use crate::conf;
use braid_tests::{Sandbox, json};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Shell lines that start braid with an unwritable standard output, each with the errno of writing
/// to it.
const OUTPUTS: &[(&str, &str)] = &[
    ("exec \"$@\" >&-", "EBADF"),
    ("exec \"$@\" >/dev/full", "ENOSPC"),
    // This is a pipe without a reader.
    (
        "rm -f /run/pipe; mkfifo /run/pipe; exec 3<>/run/pipe; exec \"$@\" >/run/pipe 3>&-",
        "EPIPE",
    ),
];

#[test]
fn an_add_with_an_undelivered_result_is_rolled_back_and_fails() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    host.script(
        "spy",
        "#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND >>/run/order\n",
    );
    let mut bridge = conf::bridge();
    bridge["ipMasq"] = json!(true);
    let plugins = json!([bridge, {"type": "spy"}, {"type": "tuning", "mtu": 1400}]);
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins});
    for (text, errno) in OUTPUTS {
        host.script("output", &format!("#!/bin/sh\n{text}\n"));
        for (plugin, conf) in [
            ("bridge", bridge.clone()),
            ("host-local", conf::bridge()),
            ("braid", list.clone()),
        ] {
            let call = host.call(plugin, &pod, conf);
            let answer = call.clone().under("/run/cni-bin/output").add();
            assert_eq!(answer.code, 1, "{plugin} {text}: {answer:?}");
            assert!(answer.stderr.contains(errno), "{plugin} {text}: {answer:?}");
            host.assert_nothing_left();
            assert_eq!(pod.link_names(), Vec::<String>::new());
        }
        assert_eq!(fs::read_to_string("/run/order").unwrap(), "ADD\nDEL\n");
        fs::remove_file("/run/order").unwrap();
    }
}

#[test]
fn a_tuned_interface_is_restored_when_the_result_is_undelivered() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let main = host.call("bridge", &pod, conf::bridge());
    let result = main.add().result();
    let tuning = host
        .call("tuning", &pod, conf::tuning())
        .with("mtu", 1400)
        .prev(&result);
    host.script("output", "#!/bin/sh\nexec \"$@\" >&-\n");
    assert_eq!(tuning.under("/run/cni-bin/output").add().code, 1);
    assert_eq!(pod.the_link("eth0")["mtu"], 1500);
    main.check(&result).ok();
    main.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_full_nonblocking_pipe_is_waited_for() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("host-local", &pod, conf::bridge());
    call.run("VERSION").result();
    let (reader, writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut full = 0;
    while let Ok(len) = (&writer).write(&[b' '; 4096]) {
        full += len;
    }
    let mut command = Command::new("/run/cni-bin/host-local");
    for (key, value) in [
        ("COMMAND", "ADD"),
        ("CONTAINERID", "a"),
        ("NETNS", "/run/netns/a"),
        ("IFNAME", "eth0"),
    ] {
        command.env(format!("CNI_{key}"), value);
    }
    fs::write("/run/conf", conf::bridge().to_string()).unwrap();
    command
        .env("CNI_PATH", "/run/cni-bin")
        .stdin(File::open("/run/conf").unwrap())
        .stdout(Stdio::from(writer));
    let mut child = command.spawn().unwrap();
    drop(command);
    let waits = format!("/proc/{}/wchan", child.id());
    while !fs::read_to_string(&waits).unwrap().contains("poll")
        && child.try_wait().unwrap().is_none()
    {
        std::thread::yield_now();
    }
    let mut text = String::new();
    (&reader).read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text[full..].contains("10.1.0.2/24"), "{}", text.trim());
    call.del().ok();
}

#[test]
fn rules_of_a_gone_container_are_deleted_with_its_lease_when_the_result_is_undelivered() {
    let host = Sandbox::new();
    let gone = host.pod("a");
    let mut conf = conf::bridge();
    conf["ipMasq"] = true.into();
    conf["ipam"] = json!({"type": "host-local", "subnet": "10.1.0.0/30"});
    host.call("bridge", &gone, conf.clone())
        .container("old")
        .add()
        .result();
    host.end(&gone);
    let rules = || host.run("nft list table inet braid");
    assert!(rules().contains("net old eth0"), "{}", rules());
    let next = host.pod("b");
    let alone = host.call("host-local", &next, conf).container("new");
    host.script("output", "#!/bin/sh\nexec \"$@\" >/dev/full\n");
    let answer = alone.clone().under("/run/cni-bin/output").add();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(!rules().contains("net old eth0"), "{}", rules());
    alone.del().ok();
}
