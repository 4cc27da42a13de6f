//! Addresses and routes of an interface, and keys that several plugins share.

use super::Call;
use crate::cni::args::CniArgs;
use crate::cni::bounds::shortened;
use crate::cni::{AddResult, Dns, Error, Interface, IpConfig, Json, NetConf, Route};
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::{IfName, LinkName, Mac, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Event, Legacy, OwnedKind, Step};
use crate::plan::thing::{self, Addr, Attr, Link, LinkAttr, LinkRef, Masquerade, Sysctl};
use crate::plan::{Facts, Need};
use ipnet::IpNet;
use std::net::IpAddr;

/// Duplicate address detection of the container's IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dad {
    /// Addresses are usable immediately: no other host assigns them on this link.
    Off,
    /// The kernel asks the other hosts on the link for each address. It asks as soon as these hosts
    /// can be reached.
    On,
}

/// Returns the entry of a host link in `interfaces` of a CNI result.
pub fn of_host(name: &IfName, mac: Mac) -> Interface {
    Interface {
        name: name.to_string(),
        mac: mac.to_string(),
        ..Interface::default()
    }
}

/// Returns the host links named in `prev`, the result of the earlier plugins.
pub fn host_links(prev: &AddResult) -> impl Iterator<Item = LinkRef> {
    prev.interfaces.iter().filter_map(host_link)
}

fn host_link(interface: &Interface) -> Option<LinkRef> {
    if !interface.sandbox.is_empty() {
        return None;
    }
    let name = IfName::parse(&interface.name).ok()?;
    Some(LinkRef::host(name))
}

/// Returns the first host link in `prev` that is an end of a link pair.
pub fn host_end(prev: &AddResult, facts: &Facts) -> Option<LinkRef> {
    host_links(prev).find(|at| facts.link(at).is_some_and(LinkFact::is_end))
}

fn has_ipv4(ips: &[IpConfig]) -> bool {
    ips.iter().any(|ip| ip.address.addr().is_ipv4())
}

fn has_ipv6(ips: &[IpConfig]) -> bool {
    ips.iter().any(|ip| ip.address.addr().is_ipv6())
}

/// Returns the first gateway in `ips` of the given address family.
pub fn first_gateway(ips: &[IpConfig], is_ipv4: bool) -> Option<IpAddr> {
    let mut gateways = ips.iter().filter_map(|ip| ip.gateway);
    gateways.find(|gateway| gateway.is_ipv4() == is_ipv4)
}

/// Returns the steps that add `ips` and `routes` to `link` and set it up.
pub fn configure(link: &LinkRef, ips: &[IpConfig], routes: &[Route], dad: Dad) -> Vec<Step> {
    configure_with(link, Some(up(link)), ips, routes, dad)
}

/// Like [`configure`], with `up` as the step that sets the link up. `None` adds no such step.
pub(super) fn configure_with(
    link: &LinkRef,
    up: Option<Step>,
    ips: &[IpConfig],
    routes: &[Route],
    dad: Dad,
) -> Vec<Step> {
    let mut steps = sysctls(link, has_ipv6(ips), dad);
    // Set while the link is down: when it comes up, the kernel announces the addresses. The link's
    // other hosts learn the new owner of an address immediately, without a separate announcement.
    steps.push(Step::add(Attr {
        at: link.clone(),
        to: LinkAttr::ArpNotify(true),
    }));
    for ip in ips {
        steps.push(Step::add(Addr {
            at: link.clone(),
            net: ip.address,
            no_prefix_route: false,
            no_dad: dad == Dad::Off,
        }));
    }
    steps.extend(up);
    for route in routes {
        steps.push(Step::add(program(link, route, ips)));
    }
    steps
}

/// Returns the sysctl that disables duplicate address detection on a new host link to containers
/// with the addresses `ips`; `None` if no address is IPv6.
///
/// To forward a packet, the node solicits the container. The source is the link's own IPv6 address,
/// which must no longer be tentative. Detection can keep that address tentative for two seconds.
/// The kernel gives up after three seconds.
pub fn without_detection(link: &LinkRef, ips: &[IpConfig]) -> Option<Sysctl> {
    has_ipv6(ips).then(|| ipv6_off(link, "accept_dad"))
}

/// Returns the sysctl that ignores router advertisements on `link`, so that the node never accepts
/// a container as its router.
pub fn without_advertisements(link: &LinkRef) -> Sysctl {
    ipv6_off(link, "accept_ra")
}

/// Returns the sysctl that sets an IPv6 setting of a link to 0. It is optional because a kernel can
/// lack IPv6.
fn ipv6_off(link: &LinkRef, setting: &str) -> Sysctl {
    let key = format!("net/ipv6/conf/{}/{setting}", link.name);
    Sysctl {
        ns: link.ns,
        key,
        value: "0".to_owned(),
        optional: true,
    }
}

/// Returns the step that waits for the end of duplicate address detection; `None` without
/// detection. The step belongs after the steps that connect the link to its neighbours.
pub fn settle(link: &LinkRef, ips: &[IpConfig], dad: Dad) -> Option<Step> {
    let asks = dad == Dad::On && has_ipv6(ips);
    asks.then(|| Step::Wait(Event::Dad(link.clone())))
}

/// Returns the step that sets a link up. The link stays up until it is deleted.
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

/// Converts a route of a CNI result to a kernel route. A route without a next hop gets the first
/// gateway of its family. A route of scope link or narrower is on-link, so it gets no gateway.
pub(super) fn program(link: &LinkRef, route: &Route, ips: &[IpConfig]) -> thing::Route {
    // The kernel lowers larger values to these bounds (v6.12 `net/ipv4/metrics.c`).
    const MOST_MTU: u32 = 65_535 - 15;
    const MOST_ADVMSS: u32 = 65_535 - 40;
    let scope = route.scope.unwrap_or(0);
    let gw = if route.gw.is_some() {
        route.next_hop()
    } else if scope < RT_SCOPE_LINK {
        first_gateway(ips, route.dst.addr().is_ipv4())
    } else {
        None
    };
    let set = |value: u32| (value > 0).then_some(value);
    thing::Route {
        at: link.clone(),
        dst: route.dst.trunc(),
        gw,
        src: None,
        table: table(route).unwrap_or(RT_TABLE_MAIN),
        scope,
        priority: set(route.priority),
        mtu: set(route.mtu.min(MOST_MTU)),
        advmss: set(route.advmss.min(MOST_ADVMSS)),
        onlink: false,
    }
}

/// Returns the table of a route; `None` for `RT_TABLE_UNSPEC`, 0.
pub fn table(route: &Route) -> Option<u32> {
    route.table.filter(|table| *table != 0)
}

/// Returns the fact that [`forwarding`] needs; `None` if no address is IPv6.
pub fn forwarding_needs(ips: &[IpConfig]) -> Option<Need> {
    has_ipv6(ips).then_some(Need::Ipv6Forwarding)
}

/// Returns the steps that enable forwarding for the families in `ips`.
///
/// When IPv6 forwarding is enabled, the kernel deletes all routes from router advertisements, such
/// as the node's default route. It also accepts no further advertisements. To prevent that, a step
/// first sets `accept_ra` of each link with such routes.
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
    if has_ipv4(ips) {
        steps.push(on(Sysctl::IPV4_FORWARD));
    }
    if has_ipv6(ips) {
        for advertised in &facts.advertised {
            if let Some(accept_ra) = advertised.accept() {
                steps.push(Step::ensure(accept_ra));
            }
        }
        steps.push(on(Sysctl::IPV6_FORWARD));
    }
    steps
}

/// Returns the steps that masquerade each address towards destinations outside its network.
pub fn masquerade(call: &Call<'_>, ips: &[IpConfig]) -> Vec<Step> {
    let mut steps = Vec::new();
    for ip in ips {
        steps.push(Step::add(Masquerade {
            source: ip.address.addr(),
            network: ip.address.trunc(),
            owner: call.owner.short(),
        }));
    }
    steps
}

/// Returns the steps with which a DEL without a record deletes a container's link pair. With
/// `ip_masq` the steps also delete the masquerading of the container's addresses.
pub fn del_pair(call: &Call<'_>, host: IfName, ip_masq: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if ip_masq {
        steps.extend(del_masquerade(call));
    }
    steps.push(Step::del(Link::any(LinkRef::host(host))));
    steps.push(Step::del(Link::any(call.pod())));
    steps
}

/// Returns the steps with which a DEL without a record deletes the container's masquerade rules.
/// These are the rules of braid and of the reference plugins.
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

/// Refuses the call if the container already has an interface with the requested name.
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

/// Returns the configuration's `dns` if present, otherwise the lease's.
pub fn dns(conf: Option<&Dns>, lease: Dns) -> Dns {
    conf.cloned().unwrap_or(lease)
}

/// Returns the first address after the network address. In a network of two addresses, returns the
/// address other than `net.addr()`.
pub fn first_address(net: &IpNet) -> Option<IpAddr> {
    if net.prefix_len() + 1 == net.max_prefix_len() {
        return Some(if net.addr() == net.network() {
            net.broadcast()
        } else {
            net.network()
        });
    }
    match net.network() {
        IpAddr::V4(addr) => {
            let next = u32::from(addr).checked_add(1)?;
            Some(IpAddr::V4(next.into()))
        }
        IpAddr::V6(addr) => {
            let next = u128::from(addr).checked_add(1)?;
            Some(IpAddr::V6(next.into()))
        }
    }
}

/// Reads an interface name under `key`; `None` if absent or empty.
pub fn ifname(json: &Json, key: &str) -> Result<Option<IfName>, Error> {
    let Some(text) = json.text(key)? else {
        return Ok(None);
    };
    let name = IfName::parse(text)
        .map_err(|err| Error::config(format!("{key:?}: {text:?}: {err}")).at_key(key))?;
    Ok(Some(name))
}

/// Reads the name or an alternative name of an existing link under `key`; `None` if absent or
/// empty.
pub fn link_name(json: &Json, key: &str) -> Result<Option<LinkName>, Error> {
    let Some(text) = json.text(key)? else {
        return Ok(None);
    };
    let name = LinkName::parse(text).map_err(|err| {
        Error::config(format!("{key:?}: {:?}: {err}", shortened(text))).at_key(key)
    })?;
    Ok(Some(name))
}

/// Reads `ipMasq`. `ipMasqBackend` is only checked: masquerading always uses nf_tables.
pub fn ip_masq(json: &Json) -> Result<bool, Error> {
    match json.str("ipMasqBackend")? {
        None | Some("" | "iptables" | "nftables") => json.bool_or("ipMasq", false),
        Some(other) => Err(Error::config(format!(
            "unknown ipmasq backend {other:?}: \"ipMasqBackend\" is iptables or nftables"
        ))
        .at_key("ipMasqBackend")),
    }
}

/// Parses `text` as a hardware address; the error names `key`.
pub fn mac(key: &str, text: &str) -> Result<Mac, Error> {
    Mac::parse(text).ok_or_else(|| {
        Error::config(format!("{key:?}: {text:?} is not a hardware address")).at_keys(key)
    })
}

fn optional_mac(key: &str, text: Option<&str>) -> Result<Option<Mac>, Error> {
    match text {
        Some(text) => Ok(Some(mac(key, text)?)),
        None => Ok(None),
    }
}

/// Reads the hardware address from `mac` of the configuration; `None` if absent or empty.
pub fn mac_of_conf(conf: &NetConf) -> Result<Option<Mac>, Error> {
    optional_mac("mac", conf.json.text("mac")?)
}

/// Reads the hardware address in `CNI_ARGS`; unknown keys are refused.
pub fn mac_of_args(args: &str) -> Result<Option<Mac>, Error> {
    let args = CniArgs::parse(args, &["MAC"])?;
    optional_mac("MAC", args.get("MAC"))
}

/// Reads the hardware address in `runtimeConfig`.
pub fn mac_of_runtime(conf: &NetConf) -> Result<Option<Mac>, Error> {
    let Some(runtime) = conf.json.object("runtimeConfig")? else {
        return Ok(None);
    };
    let text = runtime.text("mac").map_err(|e| e.at_key("runtimeConfig"))?;
    optional_mac("runtimeConfig.mac", text)
}

/// Reads the hardware address in `args.cni`.
pub fn mac_of_cni_args(conf: &NetConf) -> Result<Option<Mac>, Error> {
    let Some(cni) = conf.json.object_in("args", "cni")? else {
        return Ok(None);
    };
    optional_mac("args.cni.mac", cni.text("mac")?)
}
