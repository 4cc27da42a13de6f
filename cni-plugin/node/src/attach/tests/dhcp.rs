//! Tests of addresses that are acquired through the link. Each step fails once: the steps of the
//! link and the steps after the lease.

use super::{
    Model, assert_nothing_left, attach, collect, containers, detach, fail_each_step_of, machine,
};
use braid_core::cni::IpConfig;
use braid_core::ipam::Lease;
use braid_core::ipam::dhcp::rpc::{ALLOCATE, Server};
use braid_core::plan::Step;
use braid_core::plan::thing::Thing;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A model of the DHCP daemon. It assigns the same address to each caller.
struct Daemon {
    dir: TempDir,
    held: Arc<Mutex<BTreeSet<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(dir.path().join("dhcp.sock")).expect("a socket");
        let held: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let holds = Arc::clone(&held);
        let serve = move || {
            for stream in listener.incoming() {
                if !answer(stream.expect("a call"), &holds) {
                    return;
                }
            }
        };
        Self {
            dir,
            held,
            thread: Some(std::thread::spawn(serve)),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("dhcp.sock")
    }

    #[track_caller]
    fn assert_holds(&self, owners: &[&str], when: &str) {
        let held = self.held.lock().expect("no panic").clone();
        assert_eq!(
            held.iter().map(String::as_str).collect::<Vec<_>>(),
            owners,
            "{when}"
        );
    }

    /// Returns the plugins of containers with three networks each. The last two networks get their
    /// addresses from this daemon.
    fn containers(&self) -> [Vec<String>; 3] {
        let ipam = format!(
            r#""ipam":{{"type":"dhcp","daemonSocketPath":"{}"}}"#,
            self.socket().display()
        );
        let tuning = r#"{"type":"tuning","mtu":1400,"mac":"02:00:00:00:00:17","sysctl":{"net.ipv4.conf.net1.arp_filter":"1"}}"#;
        let macvlan = format!(r#"{{"type":"macvlan","master":"lan",{ipam}}}"#);
        let vlan = format!(r#"{{"type":"vlan","master":"lan","vlanId":5,{ipam}}}"#);
        let device = format!(r#"{{"type":"host-device","device":"lan",{ipam}}}"#);
        let bridge = format!(r#"{{"type":"bridge","bridge":"cni2",{ipam}}}"#);
        [
            [format!("{macvlan},{tuning}"), bridge.clone()],
            [
                format!("{device},{tuning}"),
                format!(r#"{bridge},{{"type":"sbr"}}"#),
            ],
            [
                vlan,
                format!(r#"{macvlan},{{"type":"vrf","vrfname":"blue"}}"#),
            ],
        ]
        .map(|[second, third]| vec![containers()[0][0].clone(), second, third])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut stream = UnixStream::connect(self.socket()).expect("it serves");
        stream.write_all(b"END\n\n").expect("it reads");
        drop(stream);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Answers the calls of a connection. Returns false on a message that is not a call, which ends the
/// daemon.
fn answer(mut stream: UnixStream, held: &Mutex<BTreeSet<String>>) -> bool {
    let address = IpConfig {
        address: "10.9.0.2/24".parse().expect("an address"),
        gateway: None,
        interface: None,
    };
    let lease = Lease {
        ips: vec![address],
        ..Lease::default()
    };
    let (mut server, mut bytes) = (Server::default(), [0; 4096]);
    loop {
        let len = stream.read(&mut bytes).expect("a call");
        if len == 0 {
            return true;
        }
        let Ok((calls, out)) = server.read(&bytes[..len]) else {
            return false;
        };
        stream.write_all(&out).expect("a reader");
        for call in calls {
            let owner = format!("{}/{}", call.args.container_id, call.args.ifname);
            let mut held = held.lock().expect("no panic");
            let is_asked = call.method == ALLOCATE;
            if is_asked {
                held.insert(owner)
            } else {
                held.remove(&owner)
            };
            drop(held);
            let said = server.answer(call.seq, &call.method, Ok(is_asked.then_some(&lease)));
            stream.write_all(&said).expect("a reader");
        }
    }
}

#[test]
fn an_add_that_fails_at_any_step_releases_the_leases_and_leaves_nothing() {
    let daemon = Daemon::start();
    for networks in daemon.containers() {
        let mut failed = 0;
        loop {
            let machine = machine();
            machine.fail_at(&[failed]);
            let Err(err) = attach(&machine, &networks) else {
                break;
            };
            assert!(err.to_string().contains("EIO"), "step {failed}: {err}");
            assert_nothing_left(&machine, &format!("step {failed}"));
            daemon.assert_holds(&[], &format!("step {failed}"));
            failed += 1;
        }
        daemon.assert_holds(&["c1/net1", "c1/net2"], "attached");
        daemon.held.lock().expect("no panic").clear();
        assert!(failed > 20, "{failed}");
    }
}

/// Runs `work` with each step failing once. Checks that the daemon then holds no lease.
fn fail_each_step(work: impl FnMut(&Model, &[String]) -> Result<(), braid_core::cni::Error>) {
    let daemon = Daemon::start();
    fail_each_step_of(&daemon.containers(), work, |when| {
        daemon.assert_holds(&[], when);
    });
}

#[test]
fn a_del_that_fails_at_any_step_is_completed_by_the_next() {
    fail_each_step(detach);
}

#[test]
fn a_gc_that_fails_at_any_step_is_completed_by_the_next() {
    fail_each_step(|machine, networks| collect(machine, networks, ""));
}

#[test]
fn the_record_has_one_part_for_each_plugin_with_the_link_before_the_addresses() {
    let daemon = Daemon::start();
    let machine = machine();
    attach(&machine, &daemon.containers()[0]).expect("attached");
    let records = crate::apply::host::Machine::records(&machine).expect("records");
    let parts = &records[0].attachments[1].parts;
    assert_eq!(parts.len(), 2, "macvlan and tuning");
    let place = |is: fn(&Step) -> bool| parts[0].iter().position(is).expect("recorded");
    let link = place(|step| matches!(step, Step::Add(Thing::Link(_))));
    let addr = place(|step| matches!(step, Step::Add(Thing::Addr(_))));
    assert!(link < addr, "{:?}", parts[0]);
    let links = parts[0]
        .iter()
        .filter(|step| matches!(step, Step::Add(Thing::Link(_))))
        .count();
    assert_eq!(links, 1, "what was done for the link is not done again");
}
