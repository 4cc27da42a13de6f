//! Features of this kernel, detected by using them in a temporary network namespace.
//!
//! The host is not changed, except that the kernel may load a requested module, as in an ADD.
//!
//! ```text
//!  PROBES ─ how ─► bench ─ links, filters, sysctls, taps
//!              └─► requests ─ nf_tables
//! ```

mod bench;
mod how;
mod requests;

use crate::Cause;
use crate::effect::host_ports::loopback;
use crate::effect::xsk_guard::bind;
use crate::sys::bpf;
use crate::sys::netns::{NetNs, NetNsError};
use crate::sys::rtnl::tc::{CLSACT, ROOT};
use bench::Bench;
use braid_core::plan::Feature;
use how::{Extra, How};
use netlink_packet_route::link::NetkitMode;
use nix::errno::Errno;

/// Result of a probe for a feature of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The kernel has the feature.
    Present,
    /// The kernel does not have the feature. Contains the kernel's error.
    Missing(String),
    /// The probe could not be run. Contains the reason.
    Unknown(String),
}

/// Probe for a feature of the kernel.
#[derive(Debug)]
pub struct Probe {
    /// The feature.
    pub feature: Feature,
    /// First kernel with the feature. Empty if every kernel version that braid supports can have
    /// it.
    pub since: &'static str,
    /// Plugins and configuration keys that need the feature.
    pub needed_by: &'static str,
    /// Consequence for the user if the feature is missing.
    pub cost: &'static str,
    how: How,
}

const fn probe(
    feature: Feature,
    since: &'static str,
    needed_by: &'static str,
    cost: &'static str,
    how: How,
) -> Probe {
    Probe {
        feature,
        since,
        needed_by,
        cost,
        how,
    }
}

const NO_INGRESS: &str = "no limit on egress of pods, or on ingress of pods without a veth";

/// All probes, in the order in which the results are printed.
pub const PROBES: &[Probe] = &[
    probe(
        Feature::Veth,
        "",
        "bridge, ptp",
        "no bridge and no ptp attachment",
        How::Link("veth", Extra::None),
    ),
    probe(
        Feature::Bridge,
        "",
        "bridge",
        "no bridge attachment",
        How::Link("bridge", Extra::None),
    ),
    probe(
        Feature::VlanFiltering,
        "3.9",
        "bridge: vlan, vlanTrunk",
        "ports are not separated by VLAN",
        How::Filtering,
    ),
    probe(
        Feature::Macvlan,
        "",
        "macvlan",
        "no macvlan attachment",
        How::Link("macvlan", Extra::Parent),
    ),
    probe(
        Feature::Ipvlan,
        "3.19",
        "ipvlan",
        "no ipvlan attachment",
        How::Link("ipvlan", Extra::Parent),
    ),
    probe(
        Feature::Vlan,
        "",
        "vlan",
        "no vlan attachment",
        How::Link("vlan", Extra::ParentAndNumber(&[1, 1])),
    ),
    probe(
        Feature::Dummy,
        "",
        "dummy",
        "no dummy attachment",
        How::Link("dummy", Extra::None),
    ),
    probe(Feature::Tun, "", "tap", "no tap attachment", How::Tap),
    probe(
        Feature::Ifb,
        "",
        "bandwidth",
        NO_INGRESS,
        How::Link("ifb", Extra::None),
    ),
    probe(
        Feature::Vxlan,
        "3.7",
        "vxlan, flannel",
        "no vxlan attachment, no overlay of flannel",
        How::Link("vxlan", Extra::Number(&[0, 1, 1, 0])),
    ),
    probe(
        Feature::Vrf,
        "4.3",
        "vrf",
        "no vrf",
        How::Link("vrf", Extra::Number(&[0, 1, 1, 0])),
    ),
    probe(
        Feature::Netkit,
        "6.7",
        "netkit; ptp: device",
        "no netkit attachment",
        How::Netkit(NetkitMode::L3),
    ),
    probe(
        Feature::NetkitL2,
        "6.10",
        "netkit: mode l2; bridge: device",
        "a netkit can't be a bridge port",
        How::Netkit(NetkitMode::L2),
    ),
    probe(
        Feature::Ipv6,
        "",
        "IPv6 addresses",
        "no IPv6 address",
        How::Sysctl("net/ipv6/conf/all/forwarding"),
    ),
    probe(
        Feature::NfTables,
        "3.13",
        "ipMasq, portmap, firewall, macspoofchk",
        "none of them works",
        How::Nft(requests::nf_tables),
    ),
    probe(
        Feature::Masquerade,
        "5.2",
        "ipMasq",
        "packets of pods leave the node with the pod's address",
        How::Nft(requests::masqueraded),
    ),
    probe(
        Feature::HostPorts,
        "5.2",
        "portmap",
        "no host port is forwarded to a pod",
        How::Nft(requests::led),
    ),
    probe(
        Feature::Forwarding,
        "4.1",
        "firewall",
        "the node's firewall drops forwarded packets of pods",
        How::Nft(requests::let_through),
    ),
    probe(
        Feature::MacCheck,
        "4.1",
        "macspoofchk",
        "a pod may send with any hardware address",
        How::Nft(requests::mac_checked),
    ),
    // This follows the probe for nf_tables' masquerade, which loads the module.
    probe(
        Feature::Conntrack,
        "",
        "ipMasq",
        "no ipMasq",
        How::Sysctl("net/netfilter/nf_conntrack_max"),
    ),
    probe(
        Feature::Clsact,
        "4.5",
        "bandwidth",
        "shaping by tbf only",
        How::Qdisc("clsact", CLSACT),
    ),
    probe(
        Feature::ClsBpf,
        "4.5",
        "bandwidth",
        "shaping by tbf only",
        How::Classifier("bpf"),
    ),
    probe(
        Feature::Fq,
        "3.12",
        "bandwidth",
        "shaping by tbf, with more delay",
        How::Qdisc("fq", ROOT),
    ),
    probe(
        Feature::Htb,
        "",
        "bandwidth without fq",
        "no shapedSubnets, unshapedSubnets",
        How::Qdisc("htb", ROOT),
    ),
    probe(
        Feature::Tbf,
        "",
        "bandwidth without eBPF",
        "no shaping where eBPF is refused",
        How::Qdisc("tbf", ROOT),
    ),
    probe(
        Feature::FqCodel,
        "3.5",
        "bandwidth without eBPF",
        "all flows of a pod share one queue",
        How::Qdisc("fq_codel", ROOT),
    ),
    probe(Feature::Mirred, "", "bandwidth", NO_INGRESS, How::Redirect),
    probe(
        Feature::Bpf,
        "5.12",
        "bandwidth",
        "shaping by tbf only",
        How::Bpf(|| Ok(bpf::load_classifier()?)),
    ),
    probe(
        Feature::CgroupBpf,
        "5.14",
        "portmap at [::1]",
        "clients on the node can't reach pods through [::1]",
        How::Bpf(|| Ok(loopback::programs::probe()?)),
    ),
    probe(
        Feature::PacketGuard,
        "5.16",
        "bandwidth on macvlan, ipvlan",
        "processes with CAP_NET_RAW in such a pod can exceed its limit",
        How::Nft(requests::packets_held),
    ),
    probe(
        Feature::XskBind,
        "5.14",
        "bandwidth on macvlan, ipvlan",
        "processes with CAP_NET_RAW in such a pod can exceed its limit through AF_XDP",
        How::Bpf(bind::probe),
    ),
];

/// Probes the features in `wanted`, in the order of [`PROBES`]. Fails if no temporary network
/// namespace can be created.
pub fn find(wanted: &[Feature]) -> Result<Vec<(&'static Probe, Finding)>, NetNsError> {
    NetNs::throw_away()?.run(|| {
        let mut bench = Bench::new();
        let mut found = Vec::new();
        for probe in PROBES {
            if wanted.contains(&probe.feature) {
                found.push((probe, judge(bench.ask(&probe.how))));
            }
        }
        found
    })
}

/// Converts the result of a probe. Only "not supported" errors mean that the feature is missing.
fn judge(answer: Result<(), Cause>) -> Finding {
    const NOT_KNOWN: &[Errno] = &[
        Errno::EOPNOTSUPP,
        Errno::ENOENT,
        Errno::EAFNOSUPPORT,
        Errno::EPROTONOSUPPORT,
        Errno::ENOPROTOOPT,
        Errno::ENOSYS,
        Errno::EINVAL,
    ];
    match answer {
        Ok(()) => Finding::Present,
        Err(Cause::Lacking(said)) => Finding::Missing(said),
        Err(cause) if cause.is(NOT_KNOWN) => Finding::Missing(cause.to_string()),
        Err(cause) => Finding::Unknown(cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_not_supported_errors_count_as_missing() {
        assert_eq!(judge(Ok(())), Finding::Present);
        for errno in [Errno::EOPNOTSUPP, Errno::ENOENT, Errno::EPROTONOSUPPORT] {
            assert!(
                matches!(judge(Err(errno.into())), Finding::Missing(_)),
                "{errno}"
            );
        }
        for errno in [Errno::EPERM, Errno::ENOMEM, Errno::EBUSY] {
            assert!(
                matches!(judge(Err(errno.into())), Finding::Unknown(_)),
                "{errno}"
            );
        }
    }

    #[test]
    fn every_feature_is_probed_once() {
        let mut names: Vec<&str> = PROBES.iter().map(|probe| probe.feature.name()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
