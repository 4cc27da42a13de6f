//! Tests of the executor with scripted sockets: sends, groups and outcomes, without root.

mod batches;
mod cleaning;
mod elements;
mod failures;
mod links;
mod requests;
mod several;
mod sysctls;

use super::executor::{OnError, Report, execute};
use crate::kernel::Kernel;
use crate::kernel::scripted::{HOST, POD};
use crate::log::Log;
use crate::sys::netlink::fake::{Exchange, Script};
use crate::sys::netlink::{attr, nest};
use braid_core::name::IfName;
use braid_core::plan::facts::Facts;
use braid_core::plan::step::Step;
use braid_core::plan::thing::{Addr, Attr, Link, LinkAttr, LinkKind, LinkRef, Neigh, Route};
use requests::describe;
use std::cell::RefCell;
use std::rc::Rc;

/// Indexes of the links that each test has: `lan` and `cni0` of the host, `eth0` and `net1` of the
/// container.
const LAN: u32 = 7;
const CNI0: u32 = 8;
const ETH0: u32 = 2;
const NET1: u32 = 3;
/// Error texts of `EPERM` and `ENODEV`.
const EPERM: &str = "EPERM (kernel: \"Operation not permitted\")";
const ENODEV: &str = "ENODEV (kernel: \"No such device\")";

/// A scripted kernel, its script, and the lines of the operator's log.
struct Sandbox {
    kernel: Kernel,
    script: Script,
    log: Rc<RefCell<Vec<String>>>,
}

impl Sandbox {
    /// Creates a kernel that already knows the indexes of `lan`, `cni0`, `eth0` and `net1`.
    fn new(expected: Vec<Exchange>) -> Self {
        let script = Script::new(expected, describe);
        let log = Rc::new(RefCell::new(Vec::new()));
        let lines = Rc::clone(&log);
        let write = move |line: std::fmt::Arguments<'_>| lines.borrow_mut().push(line.to_string());
        let mut kernel = Kernel::scripted(&script, Log::new(write));
        for (at, index) in [(lan(), LAN), (cni0(), CNI0)] {
            script.link(HOST, at.name.as_str(), index);
            kernel.learn(at, index);
        }
        for (at, index) in [(eth0(), ETH0), (net1(), NET1)] {
            script.link(POD, at.name.as_str(), index);
            kernel.learn(at, index);
        }
        Self {
            kernel,
            script,
            log,
        }
    }

    /// Applies steps and checks that the script is at its end.
    fn run(&mut self, steps: &[Step], on_error: OnError) -> Report {
        let report = execute(&mut self.kernel, steps, &Facts::default(), on_error);
        self.script.end();
        report
    }
}

/// Applies steps as an ADD does, up to the first error.
fn apply(steps: &[Step], expected: Vec<Exchange>) -> Report {
    Sandbox::new(expected).run(steps, OnError::Stop)
}

/// Applies all steps as a DEL does, also after an error.
fn clean_up(steps: &[Step], expected: Vec<Exchange>) -> Report {
    Sandbox::new(expected).run(steps, OnError::GoOn)
}

/// Compares the applied steps, and the failed steps with their causes. All other steps had nothing
/// to do or were not tried.
#[track_caller]
fn assert_outcome(report: &Report, applied: &[usize], failed: &[(usize, &str)]) {
    let causes: Vec<(usize, String)> = report
        .failed
        .iter()
        .map(|(at, cause)| (*at, cause.to_string()))
        .collect();
    let failed: Vec<(usize, String)> = failed
        .iter()
        .map(|(at, cause)| (*at, (*cause).to_owned()))
        .collect();
    assert_eq!((&report.applied[..], causes), (applied, failed));
}

fn host(name: &str) -> LinkRef {
    LinkRef::host(IfName::parse(name).expect("a name"))
}

fn pod(name: &str) -> LinkRef {
    LinkRef::pod(IfName::parse(name).expect("a name"))
}

fn lan() -> LinkRef {
    host("lan")
}

fn cni0() -> LinkRef {
    host("cni0")
}

fn eth0() -> LinkRef {
    pod("eth0")
}

fn net1() -> LinkRef {
    pod("net1")
}

fn addr(at: LinkRef, net: &str) -> Addr {
    Addr {
        at,
        net: net.parse().expect("an address"),
        no_prefix_route: false,
        no_dad: false,
    }
}

fn route(at: LinkRef, dst: &str) -> Route {
    Route {
        at,
        dst: dst.parse().expect("a prefix"),
        gw: None,
        src: None,
        table: 254,
        scope: 0,
        priority: None,
        mtu: None,
        advmss: None,
        onlink: false,
    }
}

fn neigh(at: LinkRef, ip: &str) -> Neigh {
    Neigh {
        at,
        addr: ip.parse().expect("an address"),
        mac: braid_core::name::Mac([2, 0, 0, 0, 0, 1]),
    }
}

fn attribute(at: LinkRef, to: LinkAttr) -> Attr {
    Attr { at, to }
}

fn mtu(at: LinkRef, mtu: u32, before: u32) -> Step {
    let [to, from] = [mtu, before].map(LinkAttr::Mtu);
    Step::Set { at, to, from }
}

fn dummy(at: LinkRef) -> Link {
    let kind = LinkKind::Dummy;
    Link {
        kind,
        ..Link::any(at)
    }
}

/// Returns the body of `RTM_NEWLINK` in which the kernel reports a link that is down.
fn link_shown(index: u32, name: &str, kind: &str) -> Vec<u8> {
    const IFNAME: u16 = 3;
    const LINKINFO: u16 = 18;
    const INFO_KIND: u16 = 1;
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    attr(IFNAME, &[name.as_bytes(), b"\0"].concat(), &mut body);
    nest(LINKINFO, &mut body, |out| {
        attr(INFO_KIND, kind.as_bytes(), out);
    });
    body
}
