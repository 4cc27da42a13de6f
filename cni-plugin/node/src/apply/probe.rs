//! Features of this kernel, detected by using them in a temporary network namespace.
//!
//! The host is not changed, except that the kernel may load a requested module, as in an ADD.

use crate::Cause;
use crate::effect::firewall::addrs;
use crate::effect::host_ports::{loopback, nft};
use crate::effect::link::parse;
use crate::effect::xsk_guard::bind;
use crate::effect::{mac_check, masquerade, packet_guard, redirect};
use crate::sys::netlink::{CREATE, EXCL, KernelError, Socket};
use crate::sys::netns::{NetNs, NetNsError};
use crate::sys::rtnl::link::{NewKind, NewLink, new_link};
use crate::sys::rtnl::tc::{self, CLSACT, NEWQDISC, NEWTFILTER, ROOT};
use crate::sys::rtnl::{self, link};
use crate::sys::tap::{Options, Tap};
use crate::sys::{bpf, sysctl};
use braid_core::name::{IfName, Mac, Ns};
use braid_core::plan::Feature;
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::firewall::Gate;
use braid_core::plan::thing::host_ports::{HostEndpoint, HostPort, Protocol, Rewrite, Target};
use braid_core::plan::thing::packet_guard::PacketLimit;
use braid_core::plan::thing::{Firewall, HostPorts, LinkRef, MacCheck, Masquerade, PacketGuard};
use netlink_packet_route::link::NetkitMode;
use nix::errno::Errno;
use std::net::{Ipv4Addr, SocketAddr};

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The kernel supports it.
    Present,
    /// The kernel does not support it; its error.
    Missing(String),
    /// The probe could not be run; the reason.
    Unknown(String),
}

/// Probe of a feature.
#[derive(Debug)]
pub struct Probe {
    /// The feature.
    pub feature: Feature,
    /// First kernel with the feature; empty if every kernel supported by braid may have it.
    pub since: &'static str,
    /// Plugins and keys that need it.
    pub needed_by: &'static str,
    /// Consequence for the user without it.
    pub cost: &'static str,
    how: How,
}

#[derive(Debug)]
enum How {
    /// Create a link of this kind, with its required attributes.
    Link(&'static str, Extra),
    /// Create a netkit in this mode. In mode l2 with hardware addresses, which the first kernels
    /// with netkit refuse.
    Netkit(NetkitMode),
    /// Create a bridge with VLAN filtering. Kernels without it ignore the attribute.
    Filtering,
    /// Add this qdisc, without options, at this parent of a link.
    Qdisc(&'static str, u32),
    /// Add this classifier to a link, without options.
    Classifier(&'static str),
    /// Redirect ingress packets of a link to the egress of another.
    Redirect,
    /// Read this sysctl of a namespace.
    Sysctl(&'static str),
    /// Send the `nf_tables` request of an attachment.
    Nft(fn(&mut Socket) -> Result<(), KernelError>),
    /// Create a tap.
    Tap,
    /// Call bpf(2).
    Bpf(fn() -> Result<(), Cause>),
}

/// Requirements of a kind of link besides its name.
#[derive(Debug, Clone, Copy)]
enum Extra {
    None,
    /// A parent link.
    Parent,
    /// A number in attribute 1 that the kind requires. It is the same in both byte orders.
    Number(&'static [u8]),
    /// A parent link and such a number.
    ParentAndNumber(&'static [u8]),
}

const PARENT_NAME: &str = "probe0";

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

const NO_INGRESS: &str = "no limit on what a pod sends, or what one without a veth receives";

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
        "a netkit is no port of a bridge",
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
        "none of those",
        How::Nft(nf_tables),
    ),
    probe(
        Feature::Masquerade,
        "5.2",
        "ipMasq",
        "pods keep their address when they leave the node",
        How::Nft(masqueraded),
    ),
    probe(
        Feature::HostPorts,
        "5.2",
        "portmap",
        "no port of the node leads to a pod",
        How::Nft(led),
    ),
    probe(
        Feature::Forwarding,
        "4.1",
        "firewall",
        "pods stay behind the node's firewall",
        How::Nft(let_through),
    ),
    probe(
        Feature::MacCheck,
        "4.1",
        "macspoofchk",
        "a pod may send with any hardware address",
        How::Nft(mac_checked),
    ),
    // After nf_tables' masquerade, which loads the module.
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
        "all flows of a pod wait for each other",
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
        "the node's own clients reach no pod by [::1]",
        How::Bpf(|| Ok(loopback::programs::probe()?)),
    ),
    probe(
        Feature::PacketGuard,
        "5.16",
        "bandwidth on macvlan, ipvlan",
        "who has CAP_NET_RAW in such a pod sends past its limit",
        How::Nft(packets_held),
    ),
    probe(
        Feature::XskBind,
        "5.14",
        "bandwidth on macvlan, ipvlan",
        "who has CAP_NET_RAW in such a pod sends past its limit by AF_XDP",
        How::Bpf(bind::probe),
    ),
];

/// Probes these features, in the order of [`PROBES`].
pub fn find(wanted: &[Feature]) -> Result<Vec<(&'static Probe, Finding)>, NetNsError> {
    NetNs::throw_away()?.run(|| {
        let mut bench = Bench::new();
        let asked = PROBES
            .iter()
            .filter(|probe| wanted.contains(&probe.feature));
        asked
            .map(|probe| (probe, judge(bench.ask(&probe.how))))
            .collect()
    })
}

/// Sockets of the namespace, and the link on which others are created.
struct Bench {
    socket: Result<Socket, KernelError>,
    parent: Option<u32>,
    made: u32,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            socket: Socket::route(),
            parent: None,
            made: 0,
        };
        bench.parent = ["veth", "dummy", "bridge"].iter().find_map(|kind| {
            bench.new_link(kind, PARENT_NAME, Extra::None).ok()?;
            bench.link(PARENT_NAME).ok().map(|fact| fact.index)
        });
        bench
    }

    fn ask(&mut self, how: &How) -> Result<(), Cause> {
        self.made += 1;
        let name = format!("probe{}", self.made);
        match how {
            How::Link(kind, extra) => match self.new_link(kind, &name, *extra) {
                // EBUSY: the kind is known, but macvlan and ipvlan cannot share a parent.
                Err(err) if err.is(&[Errno::EBUSY]) => Ok(()),
                other => other,
            },
            How::Netkit(mode) => self.new_netkit(&name, *mode),
            How::Filtering => {
                self.new_bridge(&name)?;
                let filters = self.link(&name)?.vlan_filtering;
                if filters {
                    Ok(())
                } else {
                    Err(Cause::Lacking("vlan_filtering stays 0".to_owned()))
                }
            }
            How::Qdisc(kind, parent) => self.tc(NEWQDISC, kind, *parent, 0),
            How::Classifier(kind) => {
                // The qdisc may already exist.
                let _ = self.tc(NEWQDISC, "clsact", CLSACT, 0);
                self.tc(NEWTFILTER, kind, tc::INGRESS, 1 << 16 | tc::ALL_PROTOCOLS)
            }
            How::Redirect => {
                let index = self.parent()?;
                let _ = self.tc(NEWQDISC, "clsact", CLSACT, 0);
                self.socket()?.call(NEWTFILTER, CREATE, |out| {
                    redirect::request(Ns::Host, index, index, out);
                })?;
                Ok(())
            }
            How::Sysctl(key) => sysctl::read(key)?
                .map(drop)
                .ok_or_else(|| Cause::Lacking(format!("no sysctl {key}"))),
            How::Nft(send) => Ok(send(&mut Socket::netfilter()?)?),
            How::Tap => {
                let made = IfName::parse(&name)
                    .or(Err(Errno::EINVAL))
                    .map(|name| Tap::make(&name, &Options::default()))?;
                match made.map_err(Cause::from) {
                    Ok(_) => Ok(()),
                    // The device file exists, but not its driver.
                    Err(cause) if cause.is(&[Errno::ENODEV, Errno::ENXIO]) => {
                        Err(Cause::Lacking(cause.to_string()))
                    }
                    Err(cause) => Err(cause),
                }
            }
            How::Bpf(ask) => ask(),
        }
    }

    fn socket(&mut self) -> Result<&mut Socket, KernelError> {
        self.socket.as_mut().map_err(|err| err.clone())
    }

    fn parent(&self) -> Result<u32, Cause> {
        self.parent
            .ok_or_else(|| Cause::Refused("no link to try it on".to_owned()))
    }

    fn link(&mut self, name: &str) -> Result<LinkFact, KernelError> {
        let name = IfName::parse(name).or(Err(Errno::EINVAL))?;
        let messages = self
            .socket()?
            .call(rtnl::GETLINK, 0, |out| link::by_name(&name, out))?;
        let found = messages.iter().find_map(|message| parse(&message.body));
        found
            .map(|(_, fact)| fact)
            .ok_or_else(|| Errno::ENODEV.into())
    }

    fn new_link(&mut self, kind: &str, name: &str, extra: Extra) -> Result<(), Cause> {
        let (needs_parent, number) = match extra {
            Extra::None => (false, None),
            Extra::Parent => (true, None),
            Extra::Number(number) => (false, Some(number)),
            Extra::ParentAndNumber(number) => (true, Some(number)),
        };
        let parent = if needs_parent {
            Some(self.parent()?)
        } else {
            None
        };
        let data = number
            .map(|number| attribute(1, number))
            .unwrap_or_default();
        Ok(self.make(kind, name, parent, &data)?)
    }

    /// Creates a netkit as an ADD does.
    fn new_netkit(&mut self, name: &str, mode: NetkitMode) -> Result<(), Cause> {
        let mac = |last| Some(Mac([2, 0, 0, 0, 0, last])).filter(|_| mode == NetkitMode::L2);
        let name = IfName::parse(name).or(Err(Errno::EINVAL))?;
        let new = NewLink {
            name: Some(&name),
            mac: mac(1),
            ..NewLink::default()
        };
        let kind = NewKind::Netkit(
            NewLink {
                mac: mac(2),
                ..NewLink::default()
            },
            mode,
        );
        self.socket()?.call(rtnl::NEWLINK, CREATE | EXCL, |out| {
            new_link(&new, &kind, out);
        })?;
        Ok(())
    }

    fn new_bridge(&mut self, name: &str) -> Result<(), KernelError> {
        const IFLA_BR_VLAN_FILTERING: u16 = 7;
        self.make(
            "bridge",
            name,
            None,
            &attribute(IFLA_BR_VLAN_FILTERING, &[1]),
        )
    }

    /// Sends `RTM_NEWLINK`: `struct ifinfomsg`, then name, parent, kind and the kind's data.
    fn make(
        &mut self,
        kind: &str,
        name: &str,
        parent: Option<u32>,
        data: &[u8],
    ) -> Result<(), KernelError> {
        let (ifname, link, link_info, info_kind, info_data) = (3, 5, 18, 1, 2);
        let mut info = attribute(info_kind, kind.as_bytes());
        info.extend(attribute(info_data, data));
        let mut body = vec![0; 16];
        body.extend(attribute(ifname, &[name.as_bytes(), &[0]].concat()));
        body.extend(
            parent
                .map(|index| attribute(link, &index.to_ne_bytes()))
                .unwrap_or_default(),
        );
        body.extend(attribute(link_info, &info));
        self.socket()?
            .call(rtnl::NEWLINK, CREATE | EXCL, |out| out.extend(body))
            .map(drop)
    }

    /// Sends `struct tcmsg` and the kind. EINVAL is from a known kind that requires options; an
    /// unknown kind returns ENOENT.
    fn tc(&mut self, message: u16, kind: &str, parent: u32, info: u32) -> Result<(), Cause> {
        let index = self.parent()?;
        let mut body = vec![0; 4];
        body.extend(
            [index, 0, parent, info]
                .iter()
                .flat_map(|number| number.to_ne_bytes()),
        );
        body.extend(attribute(1, &[kind.as_bytes(), &[0]].concat()));
        match self.socket()?.call(message, CREATE, |out| out.extend(body)) {
            Err(err) if err.errno == Errno::EINVAL => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Requests the generation of `nf_tables`. Without the subsystem the request fails.
fn nf_tables(socket: &mut Socket) -> Result<(), KernelError> {
    const GETGEN: u16 = 10 << 8 | 16;
    socket.call(GETGEN, 0, |out| out.extend([0; 4])).map(drop)
}

fn masqueraded(socket: &mut Socket) -> Result<(), KernelError> {
    let source = Ipv4Addr::new(10, 0, 0, 1).into();
    let network = ipnet::IpNet::new(source, 24).or(Err(Errno::EINVAL))?;
    masquerade::add(
        socket,
        &Masquerade {
            source,
            network,
            owner: String::new(),
        },
    )
}

fn led(socket: &mut Socket) -> Result<(), KernelError> {
    let addr = Ipv4Addr::new(10, 0, 0, 1);
    let at = HostEndpoint {
        addr: Ipv4Addr::UNSPECIFIED.into(),
        protocol: Protocol::Tcp,
        port: 80,
        conditional: false,
    };
    let port = HostPort {
        at,
        to: SocketAddr::new(addr.into(), 80),
    };
    let target = Target {
        addr: addr.into(),
        rewrite: Rewrite::Own,
    };
    let (ports, targets, owner) = (vec![port], vec![target], String::new());
    nft::add(
        socket,
        &HostPorts {
            ports,
            targets,
            owner,
            ..HostPorts::default()
        },
    )
}

fn let_through(socket: &mut Socket) -> Result<(), KernelError> {
    let addrs = vec![Ipv4Addr::new(10, 0, 0, 1).into()];
    let gate = Gate::Chains {
        admin: String::new(),
    };
    addrs::add(
        socket,
        &Firewall {
            addrs,
            isolation: None,
            gate,
            legacy: Vec::new(),
            owner: String::new(),
        },
    )
}

fn mac_checked(socket: &mut Socket) -> Result<(), KernelError> {
    let port = IfName::parse(PARENT_NAME).or(Err(Errno::EINVAL))?;
    mac_check::add(
        socket,
        &MacCheck {
            port,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            owner: String::new(),
        },
    )
}

fn packets_held(socket: &mut Socket) -> Result<(), KernelError> {
    let at = LinkRef::host(IfName::parse("lo").or(Err(Errno::EINVAL))?);
    packet_guard::add(
        socket,
        &PacketGuard {
            at,
            limit: PacketLimit { rate: 1, burst: 1 },
            subnets: None,
        },
    )
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

    #[test]
    fn attribute_is_padded_but_its_length_is_not() {
        assert_eq!(
            attribute(7, &[1]),
            [&5u16.to_ne_bytes()[..], &7u16.to_ne_bytes(), &[1, 0, 0, 0]].concat()
        );
    }
}
