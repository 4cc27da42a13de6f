//! The addresses and routes of an interface, as every plugin sets them, and keys that several
//! plugins have.

use super::{Call, Planned};
use crate::cni::args::CniArgs;
use crate::cni::bounds::shortened;
use crate::cni::{AddResult, Dns, Error, Interface, IpConfig, Json, NetConf, Route};
use crate::ipam::Lease;
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{IfName, LinkName, Mac, Ns};
use crate::plan::step::{Event, Legacy, OwnedKind, Step};
use crate::plan::thing::advertised::Advertised;
use crate::plan::thing::{self, Addr, Attr, Link, LinkAttr, LinkRef, Masquerade, Sysctl};
use crate::plan::{Facts, Need};
use ipnet::IpNet;
use std::net::IpAddr;

/// Duplicate address detection of the container's IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dad {
    /// Addresses are usable at once: nobody else gives them out on this link.
    Off,
    /// The kernel asks the link's other hosts once they can be reached.
    On,
}

/// A link of the host in a result.
pub fn of_host(name: &IfName, mac: Mac) -> Interface {
    Interface {
        name: name.to_string(),
        mac: mac.to_string(),
        ..Interface::default()
    }
}

/// The links on the host's side that the result so far names.
pub fn host_links(prev: &AddResult) -> impl Iterator<Item = LinkRef> {
    let of_host = prev
        .interfaces
        .iter()
        .filter(|interface| interface.sandbox.is_empty());
    of_host.filter_map(|interface| IfName::parse(&interface.name).ok().map(LinkRef::host))
}

/// The steps that put `ips` and `routes` on `link` and set it up.
pub fn configure(link: &LinkRef, ips: &[IpConfig], routes: &[Route], dad: Dad) -> Vec<Step> {
    let has_v6 = ips.iter().any(|ip| ip.address.addr().is_ipv6());
    let mut steps = sysctls(link, has_v6, dad);
    // While the link is down: the hosts that it reaches learn at once that an address has a new
    // owner, and nobody has to be told of a change.
    steps.push(Step::add(Attr {
        at: link.clone(),
        to: LinkAttr::ArpNotify(true),
    }));
    steps.extend(ips.iter().map(|ip| {
        Step::add(Addr {
            at: link.clone(),
            net: ip.address,
            no_prefix_route: false,
            no_dad: dad == Dad::Off,
        })
    }));
    steps.push(up(link));
    steps.extend(
        routes
            .iter()
            .map(|route| Step::add(program(link, route, ips))),
    );
    steps
}

/// The plan for the container's interface, which `steps` have come: with what the IPAM gave, or
/// without addresses.
pub fn attached(
    call: &Call<'_>,
    mac: String,
    mut steps: Vec<Step>,
    lease: Option<Lease>,
    dad: Dad,
) -> Result<Planned, Error> {
    let mut result = AddResult {
        interfaces: vec![call.interface(mac)],
        ..AddResult::default()
    };
    match lease {
        None => steps.push(up(&call.pod())),
        Some(Lease {
            mut ips, routes, ..
        }) => {
            refuse_no_addresses(&ips)?;
            for ip in &mut ips {
                ip.interface = Some(0);
            }
            steps.extend(configure(&call.pod(), &ips, &routes, dad));
            (result.ips, result.routes) = (ips, routes);
        }
    }
    Ok(Planned {
        steps,
        result,
        warnings: Vec::new(),
    })
}

/// A new link of the node to containers of `ips` has no duplicate address detection of its own. For
/// a packet that it forwards the node asks for the container from the link's own IPv6 address, and
/// not while that may be a duplicate: it gives up after three seconds, and the detection can take
/// two.
pub fn without_detection(link: &LinkRef, ips: &[IpConfig]) -> Option<Sysctl> {
    ips.iter()
        .any(|ip| ip.address.addr().is_ipv6())
        .then(|| ipv6_off(link, "accept_dad"))
}

/// The container must not be able to advertise itself as the node's router.
pub fn without_advertisements(link: &LinkRef) -> Sysctl {
    ipv6_off(link, "accept_ra")
}

/// A setting of IPv6 on a link of the node; not every kernel has IPv6.
fn ipv6_off(link: &LinkRef, setting: &str) -> Sysctl {
    let key = format!("net/ipv6/conf/{}/{setting}", link.name);
    Sysctl {
        ns: link.ns,
        key,
        value: "0".to_owned(),
        optional: true,
    }
}

/// Waits for the answer to duplicate address detection; the link must reach its neighbours by then.
pub fn settle(link: &LinkRef, ips: &[IpConfig], dad: Dad) -> Option<Step> {
    let asks = dad == Dad::On && ips.iter().any(|ip| ip.address.addr().is_ipv6());
    asks.then(|| Step::Wait(Event::Dad(link.clone())))
}

/// Sets a link up; nothing takes it down again but its end.
pub fn up(link: &LinkRef) -> Step {
    Step::add(Attr {
        at: link.clone(),
        to: LinkAttr::Up(true),
    })
}

fn sysctls(link: &LinkRef, has_v6: bool, dad: Dad) -> Vec<Step> {
    let name = &link.name;
    let set = |key: String, value: &str, optional| {
        Step::add(Sysctl {
            ns: link.ns,
            key,
            value: value.to_owned(),
            optional,
        })
    };
    let mut steps = Vec::new();
    if has_v6 {
        steps.extend([
            set("net/ipv6/conf/lo/disable_ipv6".to_owned(), "0", true),
            set(format!("net/ipv6/conf/{name}/disable_ipv6"), "0", true),
            set(
                format!("net/ipv6/conf/{name}/keep_addr_on_down"),
                "1",
                false,
            ),
            set(format!("net/ipv6/conf/{name}/ndisc_notify"), "1", true),
        ]);
        let accept_dad = if dad == Dad::On { "1" } else { "0" };
        steps.push(set(
            format!("net/ipv6/conf/{name}/accept_dad"),
            accept_dad,
            true,
        ));
        if dad == Dad::On {
            steps.push(set(format!("net/ipv6/conf/{name}/enhanced_dad"), "1", true));
        }
    }
    steps
}

/// A result's route in the kernel's terms; without a next hop of its own it takes the first gateway
/// of its family, unless its scope says that the destination is on the link.
pub(super) fn program(link: &LinkRef, route: &Route, ips: &[IpConfig]) -> thing::Route {
    // The kernel has a bound for either, and lowers to it what is above (v6.12
    // `net/ipv4/metrics.c`).
    const MOST_MTU: u32 = 65_535 - 15;
    const MOST_ADVMSS: u32 = 65_535 - 40;
    let same_family = |gw: &IpAddr| gw.is_ipv4() == route.dst.addr().is_ipv4();
    let scope = route.scope.unwrap_or(0);
    let gateway = || {
        ips.iter()
            .filter(|_| scope < RT_SCOPE_LINK)
            .filter_map(|ip| ip.gateway)
            .find(same_family)
    };
    let set = |value: u32| Some(value).filter(|value| *value > 0);
    thing::Route {
        at: link.clone(),
        dst: route.dst.trunc(),
        gw: if route.gw.is_some() {
            route.next_hop()
        } else {
            gateway()
        },
        src: None,
        table: table(route).unwrap_or(RT_TABLE_MAIN),
        scope,
        priority: set(route.priority),
        mtu: set(route.mtu.min(MOST_MTU)),
        advmss: set(route.advmss.min(MOST_ADVMSS)),
        onlink: false,
    }
}

/// The table that a route asks for; `RT_TABLE_UNSPEC`, 0, is none.
pub fn table(route: &Route) -> Option<u32> {
    route.table.filter(|table| *table != 0)
}

/// The fact needed before [`forwarding`].
pub fn forwarding_needs(ips: &[IpConfig]) -> Option<Need> {
    ips.iter()
        .any(|ip| ip.address.addr().is_ipv6())
        .then_some(Need::Ipv6Forwarding)
}

/// The steps that make the node forward the families in `ips`. With IPv6 the kernel would take away
/// the routes that came by router advertisement, the node's default one among them, and accept no
/// more, unless the link is told to.
pub fn forwarding(ips: &[IpConfig], facts: &Facts) -> Vec<Step> {
    let on = |key: &str| {
        Step::ensure(Sysctl {
            ns: Ns::Host,
            key: key.to_owned(),
            value: "1".to_owned(),
            optional: false,
        })
    };
    let mut steps = Vec::new();
    if ips.iter().any(|ip| ip.address.addr().is_ipv4()) {
        steps.push(on(Sysctl::IPV4_FORWARD));
    }
    if ips.iter().any(|ip| ip.address.addr().is_ipv6()) {
        steps.extend(
            facts
                .advertised
                .iter()
                .filter_map(Advertised::accept)
                .map(Step::ensure),
        );
        steps.push(on(Sysctl::IPV6_FORWARD));
    }
    steps
}

/// The steps that masquerade each address outside its network.
pub fn masquerade(call: &Call<'_>, ips: &[IpConfig]) -> Vec<Step> {
    let one = |ip: &IpConfig| {
        Step::add(Masquerade {
            source: ip.address.addr(),
            network: ip.address.trunc(),
            owner: call.owner.short(),
        })
    };
    ips.iter().map(one).collect()
}

/// The steps that take away a pair of links of which no record is left, and what masqueraded its
/// container's addresses.
pub fn del_pair(call: &Call<'_>, host: IfName, ip_masq: bool) -> impl Iterator<Item = Step> {
    let masquerade = ip_masq.then(|| del_masquerade(call));
    let ends = [LinkRef::host(host), call.pod()].map(|at| Step::del(Link::any(at)));
    masquerade.into_iter().flatten().chain(ends)
}

/// The steps that end masquerading of which no record is left: braid's own, and the reference
/// plugins'.
fn del_masquerade(call: &Call<'_>) -> [Step; 2] {
    let reference = Step::Legacy(Legacy::Masquerade {
        network: call.owner.network.clone(),
        container_id: call.owner.container_id.clone(),
        ifname: call.ifname.clone(),
    });
    [
        Step::Forget(OwnedKind::Masquerades, call.owner.short()),
        reference,
    ]
}

/// Refuses an interface name that the container already has.
pub fn refuse_taken(call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
    match facts.link(&call.pod()) {
        Some(_) => Err(Error::internal(format!(
            "interface {:?} already exists in the container",
            call.ifname.as_str()
        ))),
        None => Ok(()),
    }
}

/// Refuses an IPAM answer without any address.
pub fn refuse_no_addresses(ips: &[IpConfig]) -> Result<(), Error> {
    if ips.is_empty() {
        Err(Error::internal("IPAM plugin returned missing IP config"))
    } else {
        Ok(())
    }
}

/// The configuration's `dns` where it names anything, otherwise what the IPAM gave.
pub fn dns(conf: Option<&Dns>, lease: Dns) -> Dns {
    conf.cloned().unwrap_or(lease)
}

/// First address of a network behind its own; of a network of two addresses the one that is not
/// `net`'s.
pub fn first_address(net: &IpNet) -> Option<IpAddr> {
    if net.prefix_len() + 1 == net.max_prefix_len() {
        return Some(if net.addr() == net.network() {
            net.broadcast()
        } else {
            net.network()
        });
    }
    match net.network() {
        IpAddr::V4(addr) => u32::from(addr)
            .checked_add(1)
            .map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(addr) => u128::from(addr)
            .checked_add(1)
            .map(|next| IpAddr::V6(next.into())),
    }
}

/// Reads an interface name under `key`; `None` where it is absent or empty.
pub fn ifname(json: &Json, key: &str) -> Result<Option<IfName>, Error> {
    match json.str(key)? {
        None | Some("") => Ok(None),
        Some(name) => {
            let name_of = IfName::parse(name);
            name_of
                .map(Some)
                .map_err(|err| Error::config(format!("{key:?}: {name:?}: {err}")))
        }
    }
}

/// Reads the name of a link that is there, which may be an alternative name.
pub fn link_name(json: &Json, key: &str) -> Result<Option<LinkName>, Error> {
    let name = json.str(key)?.filter(|name| !name.is_empty());
    let parse = |name: &str| {
        LinkName::parse(name)
            .map_err(|err| Error::config(format!("{key:?}: {:?}: {err}", shortened(name))))
    };
    name.map(parse).transpose()
}

/// Reads `ipMasq`; `ipMasqBackend` is checked, though masquerading is always done by nf_tables.
pub fn ip_masq(json: &Json) -> Result<bool, Error> {
    match json.str("ipMasqBackend")? {
        None | Some("" | "iptables" | "nftables") => json.bool_or("ipMasq", false),
        Some(other) => Err(Error::config(format!(
            "unknown ipmasq backend {other:?}: \"ipMasqBackend\" is iptables or nftables"
        ))),
    }
}

/// Reads a hardware address.
pub fn mac(key: &str, text: &str) -> Result<Mac, Error> {
    Mac::parse(text)
        .ok_or_else(|| Error::config(format!("{key:?}: {text:?} is no hardware address")))
}

/// The hardware address asked for by `CNI_ARGS`, whose unknown keys are refused.
pub fn mac_of_args(args: &str) -> Result<Option<Mac>, Error> {
    let args = CniArgs::parse(args, &["MAC"])?;
    args.get("MAC").map(|text| mac("MAC", text)).transpose()
}

/// The hardware address in `runtimeConfig`.
pub fn mac_of_runtime(conf: &NetConf) -> Result<Option<Mac>, Error> {
    let Some(runtime) = conf.json.object("runtimeConfig")? else {
        return Ok(None);
    };
    match runtime.str("mac")? {
        None | Some("") => Ok(None),
        Some(text) => mac("runtimeConfig.mac", text).map(Some),
    }
}

/// The hardware address in `args.cni`.
pub fn mac_of_cni_args(conf: &NetConf) -> Result<Option<Mac>, Error> {
    let cni = conf
        .json
        .object("args")?
        .map(|args| args.object("cni"))
        .transpose()?
        .flatten();
    match cni.map(|cni| cni.str("mac")).transpose()?.flatten() {
        None | Some("") => Ok(None),
        Some(text) => mac("args.cni.mac", text).map(Some),
    }
}
