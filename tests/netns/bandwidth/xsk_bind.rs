//! A container that tries to bypass its limit with an `AF_XDP` socket. The guard refuses to bind
//! the socket to a limited link.

use super::guard::{End, Held, SLOW, assert_ends, children, ends_on_the_host, slow};
use super::{BURST, shaped};
use crate::conf;
use braid_tests::feature::pretend;
use braid_tests::state::tree;
use braid_tests::{Ns, json, needs};
use std::fs;
use std::path::Path;
use std::time::Duration;

const ASKING: &str = include_str!("xsk.py");
const EPERM: &str = "1";
const NO_ERROR: &str = "0";

/// Tries to bind an `AF_XDP` socket in the namespace `from` to `link`. Returns the kernel's errno,
/// or `0`.
fn answer(from: &Ns, link: &str) -> String {
    fs::write("/run/xsk.py", ASKING).unwrap();
    from.run(&format!("python3 /run/xsk.py {link}"));
    fs::read_to_string("/run/answer").unwrap()
}

/// Returns the paths of the pinned programs that refuse to bind `AF_XDP` sockets.
fn pins() -> Vec<String> {
    let all = tree(Path::new("/sys/fs/bpf/braid")).into_keys();
    all.filter(|path| path.contains("/xsk_bind_")).collect()
}

#[test]
fn an_xdp_socket_cannot_bind_to_a_limited_link() {
    needs!(XskBind);
    for main in children() {
        let held = Held::new();
        let call = held.call(&slow(&main, &json!({})));
        let result = call.add().result();
        let guarded = || held.guarded();
        assert_eq!(
            (answer(&held.pod, "eth0").as_str(), guarded()),
            (EPERM, 1),
            "{main}"
        );
        // Other sockets are not affected.
        held.pod
            .run(r#"python3 -c __import__("socket").socket().bind(("",0))"#);
        assert_eq!(guarded(), 1, "{main}");
        call.check(&result).ok();
        // Without the guard the bind succeeds.
        let [pin] = &pins()[..] else {
            panic!("one program: {:?}", pins())
        };
        fs::remove_file(pin).unwrap();
        assert_eq!(answer(&held.pod, "eth0"), NO_ERROR, "{main}");
        call.check(&result).refused(999, &["AF_XDP"]);
        call.prev(&result).del().ok();
        held.host.assert_nothing_left();
    }
}

#[test]
fn an_xdp_socket_can_bind_to_an_unlimited_link_of_any_container() {
    needs!(XskBind);
    let held = Held::new();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    let second = held
        .host
        .call("macvlan", &held.pod, conf::macvlan())
        .ifname("net1");
    second.add().result();
    let other = held.host.pod("b");
    let third = held
        .host
        .call("macvlan", &other, conf::macvlan())
        .container("b");
    third.add().result();
    let answers = [(&held.pod, "eth0"), (&held.pod, "net1"), (&other, "eth0")]
        .map(|(pod, link)| answer(pod, link));
    assert_eq!(answers, [EPERM, NO_ERROR, NO_ERROR]);
    call.check(&result).ok();
    for call in [call, second, third] {
        call.del().ok();
    }
    held.host.assert_nothing_left();
}

#[test]
fn the_program_is_deleted_with_the_last_limited_attachment() {
    needs!(XskBind);
    let held = Held::new();
    let conf = slow(&conf::macvlan(), &json!({}));
    let first = held.call(&conf);
    first.add().result();
    let second = held.call(&conf).ifname("net1");
    second.add().result();
    let pod = held.host.pod("b");
    let third = held.host.call("braid", &pod, conf);
    third.add().result();
    first.del().ok();
    assert_eq!(
        [answer(&held.pod, "net1"), answer(&pod, "eth0")],
        [EPERM, EPERM]
    );
    second.del().ok();
    assert_eq!(answer(&pod, "eth0"), EPERM);
    third.del().ok();
    assert!(pins().is_empty());
    held.host.assert_nothing_left();
}

#[test]
fn another_versions_program_is_replaced_and_its_attachments_stay_limited() {
    needs!(XskBind);
    let held = Held::new();
    let conf = slow(&conf::macvlan(), &json!({}));
    let first = held.call(&conf);
    first.add().result();
    let [pin] = &pins()[..] else {
        panic!("one program: {:?}", pins())
    };
    let folder = Path::new(pin).parent().unwrap();
    fs::rename(pin, folder.join("xsk_bind_of_another")).unwrap();
    let pod = held.host.pod("b");
    let second = held.host.call("braid", &pod, conf);
    second.add().result();
    assert_eq!(&pins(), std::slice::from_ref(pin));
    assert_eq!(
        [answer(&held.pod, "eth0"), answer(&pod, "eth0")],
        [EPERM, EPERM]
    );
    first.del().ok();
    second.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn attachments_stay_limited_when_the_pin_of_the_map_is_deleted() {
    needs!(XskBind);
    let held = Held::new();
    let conf = slow(&conf::macvlan(), &json!({}));
    let first = held.call(&conf);
    let result = first.add().result();
    let folder = Path::new(&pins()[0]).parent().unwrap().to_owned();
    fs::remove_file(folder.join("xsk_held")).unwrap();
    let pod = held.host.pod("b");
    let second = held.host.call("braid", &pod, conf.clone());
    second.add().result();
    assert_eq!(
        [answer(&held.pod, "eth0"), answer(&pod, "eth0")],
        [EPERM, EPERM]
    );
    fs::remove_file(folder.join("xsk_held")).unwrap();
    second.del().ok();
    assert_eq!(answer(&held.pod, "eth0"), EPERM);
    first.check(&result).ok();
    first.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn a_limit_is_refused_on_a_link_with_a_bound_xdp_socket() {
    needs!(XskBind);
    let held = Held::new();
    let main = held.host.call("macvlan", &held.pod, conf::macvlan());
    let result = main.add().result();
    let call = held.chained(&held.pod, &result);
    fs::write("/run/hold", "").unwrap();
    std::thread::scope(|scope| {
        let pod: &Ns = &held.pod;
        let socket = scope.spawn(|| answer(pod, "eth0"));
        while fs::read_to_string("/run/answer")
            .unwrap_or_default()
            .is_empty()
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = held.host.state();
        call.add().refused(11, &["AF_XDP", "eth0"]);
        before.assert_same(&held.host.state());
        fs::remove_file("/run/hold").unwrap();
        assert_eq!(socket.join().unwrap(), NO_ERROR);
    });
    call.add().result();
    call.del().ok();
    main.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn more_limited_links_than_a_namespace_supports_are_refused() {
    needs!(XskBind);
    let held = Held::new();
    let conf = slow(&conf::macvlan(), &json!({}));
    let calls: Vec<_> = (0..9)
        .map(|number| held.call(&conf).ifname(&format!("net{number}")))
        .collect();
    let (last, others) = calls.split_last().unwrap();
    for call in others {
        call.add().result();
    }
    last.add().refused(
        999,
        &["no guard is free for another attachment of this network namespace"],
    );
    for call in others {
        call.del().ok();
    }
    held.host.assert_nothing_left();
}

#[test]
fn the_guard_is_deleted_with_its_attachment() {
    needs!(XskBind);
    assert_ends(ends_on_the_host(), |_| !pins().is_empty());
}

#[test]
fn leftovers_of_a_killed_call_are_deleted_without_a_record() {
    needs!(XskBind);
    let by_gc: (&str, End) = ("GC", |call, _| call.gc(&[]).ok());
    let by_del: (&str, End) = ("DEL", |call, _| call.del().ok());
    for (verb, end) in [by_gc, by_del] {
        let held = Held::new();
        let call = held.call(&slow(&conf::macvlan(), &json!({})));
        let result = call.add().result();
        let folder = Path::new(&pins()[0]).parent().unwrap().to_owned();
        call.del().ok();
        fs::create_dir_all(folder).unwrap();
        end(&call, &result);
        assert!(tree(Path::new("/sys/fs/bpf/braid")).is_empty(), "{verb}");
        held.host.assert_nothing_left();
    }
}

#[test]
fn the_guard_is_deleted_when_the_namespace_is_gone() {
    needs!(XskBind);
    let held = Held::new();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    held.host.end(&held.pod);
    call.prev(&result).del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn a_separate_bandwidth_plugin_guards_an_existing_link() {
    needs!(XskBind);
    let held = Held::new();
    let main = held.host.call("macvlan", &held.pod, conf::macvlan());
    let result = main.add().result();
    let before = held.host.state();
    let call = held.chained(&held.pod, &result);
    call.add().result();
    assert_eq!(answer(&held.pod, "eth0"), EPERM);
    call.del().ok();
    before.assert_same(&held.host.state());
    assert_eq!(answer(&held.pod, "eth0"), NO_ERROR);
    main.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn only_egress_limits_without_a_host_end_need_a_guard() {
    needs!(XskBind);
    let held = Held::new();
    let mut received = slow(&conf::macvlan(), &json!({}));
    received["runtimeConfig"]["bandwidth"] = json!({"ingressRate": SLOW, "ingressBurst": BURST});
    let on_a_bridge = shaped(
        &held.host,
        &held.pod,
        &conf::bridge(),
        &json!({"egressRate": SLOW, "egressBurst": BURST}),
    );
    for call in [held.call(&received), on_a_bridge] {
        call.add().result();
        assert!(pins().is_empty());
        assert_eq!(answer(&held.pod, "eth0"), NO_ERROR);
        call.del().ok();
    }
    held.host.assert_nothing_left();
}

#[test]
fn without_bpf_lsm_add_warns_and_succeeds() {
    let held = Held::new();
    pretend(&[], &["bpf_lsm"]);
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let answer = call.add();
    let result = answer.result();
    let warning =
        "AF_XDP sockets (CAP_NET_RAW) are not limited by \"egressRate\": the kernel lacks bpf_lsm";
    assert!(answer.stderr.contains(warning), "{}", answer.stderr);
    assert!(pins().is_empty());
    call.check(&result).ok();
    call.prev(&result).del().ok();
    held.host.assert_nothing_left();
}
