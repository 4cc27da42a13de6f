//! Facts for a plan: each need is read once.

use super::features;
use crate::effect::{
    addr, firewall, host_ports, link, mac_check, masquerade, moved, neigh, packet_guard, route,
    rule, shaping, sysctl, vlan, vrf_member, xsk_guard,
};
use crate::kernel::Kernel;
use crate::{Context, Error};
use braid_core::plan::facts::{Facts, Need};
use braid_core::plan::thing::LinkRef;
use std::collections::BTreeSet;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the facts for all needs.
pub fn observe(kernel: &mut Kernel, needs: &[Need]) -> Result<Facts, Error> {
    let mut facts = Facts::default();
    for need in needs.iter().collect::<BTreeSet<_>>() {
        read(kernel, need, &mut facts)?;
    }
    Ok(facts)
}

/// Reads the facts for a need.
fn read(kernel: &mut Kernel, need: &Need, facts: &mut Facts) -> Result<(), Error> {
    match need {
        Need::Link(at) => link::read(kernel, at, facts),
        Need::NamedLink(ns, name) => link::read_named(kernel, *ns, name, facts),
        Need::DefaultLink(ns) => route::read_default_link(kernel, *ns, facts),
        Need::Addrs(at) => addr::read(kernel, at, facts),
        Need::Routes(ns) => route::read(kernel, *ns, facts),
        Need::Neighs(at) => neigh::read(kernel, at, facts),
        Need::Rules(ns) => rule::read(kernel, *ns, facts),
        Need::Vrfs => vrf_member::read(kernel, facts),
        Need::Sysctl(ns, key) => sysctl::read(kernel, *ns, key, facts),
        Need::Ipv6Forwarding => sysctl::read_ipv6_forwarding(kernel, facts),
        Need::File(path) => read_file(path, facts),
        Need::BootIdWithout(link) => read_boot_id_without(kernel, link, facts),
        Need::Vlans => vlan::read(kernel, facts),
        Need::Masquerades => masquerade::read(kernel, facts),
        Need::HostPort(at) => host_ports::read(kernel, at, facts),
        Need::Firewalld => firewall::read_firewalld(facts),
        Need::Firewall(what) => firewall::read(kernel, what, facts),
        Need::EbpfPort(at) => host_ports::ebpf::read(kernel, at, facts),
        Need::EbpfCounts => host_ports::read_ebpf_counts(facts),
        Need::HostPortHook(at) => host_ports::ebpf::read_hook(kernel, at, facts),
        Need::LoopbackPort(at) => host_ports::loopback::read(kernel, at, facts),
        Need::LoopbackPrograms => host_ports::loopback::read_programs(facts),
        Need::Shaped(at) => shaping::read(kernel, at, facts),
        Need::PacketGuard(at) => packet_guard::read(kernel, at, facts),
        Need::XskGuards => xsk_guard::read(facts),
        Need::Peer(at) => shaping::read_peer(kernel, at, facts),
        Need::Netns => {
            facts.netns = kernel.pod_cookie();
            Ok(())
        }
        Need::Features(wanted) => {
            facts.features.extend(features::known(wanted, kernel.log()));
            Ok(())
        }
        Need::Device(device) => moved::device::read(kernel, device, facts),
        Need::MacChecks => mac_check::read(kernel, facts),
    }
}

fn read_boot_id_without(
    kernel: &mut Kernel,
    link: &LinkRef,
    facts: &mut Facts,
) -> Result<(), Error> {
    link::read(kernel, link, facts)?;
    if facts.link(link).is_none_or(|fact| fact.mac.is_none()) {
        read_boot_id(facts)
    } else {
        Ok(())
    }
}

/// Reads a text file; a missing file has no entry.
#[cold]
fn read_file(path: &str, facts: &mut Facts) -> Result<(), Error> {
    match std::fs::read_to_string(path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
        read => drop(
            facts
                .files
                .insert(path.to_owned(), read.doing(format_args!("read {path}"))?),
        ),
    }
    Ok(())
}

fn read_boot_id(facts: &mut Facts) -> Result<(), Error> {
    let found = std::fs::read_to_string(BOOT_ID).doing(format_args!("read {BOOT_ID}"))?;
    found.trim().clone_into(&mut facts.boot_id);
    Ok(())
}
