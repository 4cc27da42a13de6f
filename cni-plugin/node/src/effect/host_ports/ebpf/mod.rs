//! Host ports in eBPF: the elements of the maps, and the links that run the programs. One call at a
//! time changes them.
//!
//! The first port on a node attaches the programs to all links that clients use, and the last port
//! to be deleted detaches them. In between, a call attaches them only to its container's link and
//! bridge. nf_tables redirects packets that come in on other links.

pub(super) mod programs;

use super::fact::fact;
use crate::effect::link::parse;
use crate::effect::{addr, found, redirect};
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::sys::netlink::{CREATE, EXCL, KernelError, Socket};
use crate::sys::rtnl::{self, link, tc};
use crate::{Cause, Context, Error};
use braid_core::kernel_numbers::LOOPBACK_IFINDEX;
use braid_core::name::Hook;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::host_ports::{
    EbpfPath, HostEndpoint, HostPort, HostPortFact, MOST_BY_EBPF,
};
use braid_core::plan::thing::{HostPorts, LinkRef};
use braid_ebpf_types::hostport::{BRIDGE, BRIDGE_PORT, ETHERNET, POD, SHAPED};
use nix::errno::Errno;
use programs::{EbpfPort, Maps, NAMES, PortValue, Programs, unpin_maps, unpin_programs};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `ARPHRD_ETHER` and `ARPHRD_NONE`: hardware types, which determine the start of a link's frames.
const LINK_ETHERNET: u16 = 1;
const LINK_IP: u16 = 0xfffe;
/// Number of links in one send. All requests of the send, and the errors in reply, have to fit into
/// the socket's buffers.
const LINKS_IN_A_SEND: usize = 64;
const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

/// Classes by link index. The filters of a link pass the link's class to the programs.
type Places = BTreeMap<u32, u32>;

/// Redirects the host ports to the container. Replaces entries of the owner `leaving`, if given.
pub(crate) fn add(
    kernel: &mut Kernel,
    all: &HostPorts,
    way: &EbpfPath,
    leaving: Option<&str>,
) -> Result<(), Cause> {
    let _held = Lock::Ebpf.hold()?;
    let link = kernel.index(&way.link)?;
    let bridge = match &way.bridge {
        Some(at) => Some(kernel.index(at)?),
        None => None,
    };
    let own = Places::from([(link, class_of_pod(kernel, link, bridge.is_some())?)]);
    let maps = match (Maps::pinned()?, Programs::pinned()?) {
        (Some(maps), Some(programs)) => {
            let mut bridges = Places::new();
            if let Some(index) = bridge {
                bridges.insert(index, ETHERNET | BRIDGE);
            }
            attach(kernel, &programs, &bridges, EXCL)?;
            attach(kernel, &programs, &own, 0)?;
            maps
        }
        _ => start(kernel, &own)?,
    };
    maps.note_addrs(addrs(kernel)?)?;
    for HostPort { at, to } in all.by_ebpf() {
        let Some(net) = way.nets.iter().find(|net| net.addr() == to.ip()) else {
            continue;
        };
        let value = PortValue {
            to: *to,
            net: *net,
            link,
            bridge,
            mac: way.mac.0,
            hairpin: way.hairpin,
            neighbours: way.neighbours,
            owner: &all.owner,
        };
        match maps.add(at, &value) {
            Err(Errno::EEXIST) => replace(kernel, &maps, at, &value, all, leaving)?,
            Err(Errno::E2BIG) => {
                let full =
                    format!("host port {at}: all {MOST_BY_EBPF} host ports of eBPF are in use");
                return Err(Cause::Refused(full));
            }
            other => other?,
        }
    }
    Ok(())
}

/// Redirects a port that has an entry already. Fails if another container owns the port.
fn replace(
    kernel: &mut Kernel,
    maps: &Maps,
    at: &HostEndpoint,
    value: &PortValue<'_>,
    all: &HostPorts,
    leaving: Option<&str>,
) -> Result<(), Cause> {
    if let Some(EbpfPort { to, owner, .. }) = maps.find(at)?
        && Some(owner.as_str()) != leaving
    {
        let fact = fact(kernel, Some(to), owner);
        if let Some(refusal) = fact.refusal(at, &all.container_id, &all.owner) {
            return Err(Cause::Refused(refusal));
        }
    }
    Ok(maps.set(at, value)?)
}

/// Deletes the ports in `all` that still belong to its owner.
pub(super) fn del(kernel: &mut Kernel, all: &HostPorts) -> Result<(), Cause> {
    if Maps::pinned()?.is_none() {
        // The pins were deleted by another program, and the links still run the programs.
        let _held = Lock::Ebpf.hold()?;
        return if Maps::pinned()?.is_none() {
            stop(kernel)
        } else {
            Ok(())
        };
    }
    change(kernel, |maps| {
        all.by_ebpf()
            .try_for_each(|port| maps.del(&port.at, &all.owner))
    })
}

/// Deletes all ports of an owner.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), Cause> {
    change(kernel, |maps| maps.del_owner(owner))
}

/// Stops the redirection of packets from bridge neighbours to an owner's ports.
pub(crate) fn keep_apart(owner: &str) -> Result<(), Cause> {
    if Maps::pinned()?.is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    Ok(Maps::pinned()?.map_or(Ok(()), |maps| maps.keep_apart(owner))?)
}

/// Calls `work` to delete ports. If no port is left, also deletes the programs and maps.
fn change(kernel: &mut Kernel, work: impl FnOnce(&Maps) -> Result<(), Errno>) -> Result<(), Cause> {
    if Maps::pinned()?.is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    let Some(maps) = Maps::pinned()? else {
        return Ok(());
    };
    work(&maps)?;
    if maps.are_empty()? {
        stop(kernel)
    } else {
        Ok(())
    }
}

/// Returns target and owner of a host port; `None` if the port is free.
fn observe(kernel: &mut Kernel, at: &HostEndpoint) -> Result<Option<HostPortFact>, Cause> {
    let Some(maps) = Maps::pinned()? else {
        return Ok(None);
    };
    let Some(EbpfPort { to, owner, .. }) = maps.find(at)? else {
        return Ok(None);
    };
    Ok(Some(fact(kernel, Some(to), owner)))
}

/// Lists the owners of the redirected ports, one entry for each port.
pub(super) fn owners() -> Result<Vec<String>, Errno> {
    let Some(maps) = Maps::pinned()? else {
        return Ok(Vec::new());
    };
    let ports = maps.list()?;
    Ok(ports.into_iter().map(|port| port.owner).collect())
}

/// True if a link runs the pinned programs. A bridge port needs only the ingress program, other
/// links need both.
fn is_hooked(kernel: &mut Kernel, at: &LinkRef) -> Result<bool, Cause> {
    let (Some(programs), Some(fact)) = (Programs::pinned()?, kernel.link(at)?) else {
        return Ok(false);
    };
    let is_port = fact.is_end() && fact.master.is_some();
    let [inward, outward] = programs.ids()?;
    for (hook, id) in [(Hook::Ingress, inward), (Hook::Egress, outward)] {
        let socket = kernel.route(at.ns)?;
        let filters = found(socket.dump(tc::GETTFILTER, |out| {
            tc::dump_filters(fact.index, hook, out);
        }))?;
        let runs = filters
            .unwrap_or_default()
            .iter()
            .any(|filter| tc::hostport::parse(&filter.body) == Some(id));
        let need_not = is_port && hook == Hook::Egress;
        if !(runs || need_not) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Computes the class that the filters of a container's link pass to the programs.
fn class_of_pod(kernel: &mut Kernel, index: u32, is_bridged: bool) -> Result<u32, Cause> {
    let filters = kernel.host().dump(tc::GETTFILTER, |out| {
        tc::dump_filters(index, Hook::Ingress, out);
    });
    let filters = found(filters)?.unwrap_or_default();
    let is_shaped = filters
        .iter()
        .any(|filter| redirect::parse(&filter.body).is_some());
    let mut class = ETHERNET | POD;
    if is_bridged {
        class |= BRIDGE_PORT;
    }
    if is_shaped {
        class |= SHAPED;
    }
    Ok(class)
}

/// Sets a flag in the class of a container's link. It tells the link's programs that ingress
/// packets are shaped after the programs have run. Does nothing if the link does not run the
/// programs.
pub(crate) fn shape(kernel: &mut Kernel, index: u32) -> Result<(), Cause> {
    if Programs::pinned()?.is_none() {
        return Ok(());
    }
    let _held = Lock::Ebpf.hold()?;
    let Some(programs) = Programs::pinned()? else {
        return Ok(());
    };
    let filters = kernel.host().dump(tc::GETTFILTER, |out| {
        tc::dump_filters(index, Hook::Ingress, out);
    })?;
    for filter in &filters {
        if tc::hostport::parse(&filter.body).is_none() {
            continue;
        }
        if let Some((_, class)) = tc::parse_program(&filter.body) {
            let places = Places::from([(index, class | SHAPED)]);
            return attach(kernel, &programs, &places, 0);
        }
    }
    Ok(())
}

/// Attaches the programs to the links that clients use and to the links in `own`. The programs are
/// pinned last, so a call that finds no pins starts over.
fn start(kernel: &mut Kernel, own: &Places) -> Result<Maps, Cause> {
    let (maps, programs) = Programs::make()?;
    let mut links = client_links(kernel)?;
    // An earlier version of braid may have put other programs on links with ports.
    for EbpfPort {
        link, is_bridged, ..
    } in maps.list()?
    {
        links.insert(link, class_of_pod(kernel, link, is_bridged)?);
    }
    links.retain(|link, _| !own.contains_key(link));
    attach(kernel, &programs, &links, 0)?;
    attach(kernel, &programs, own, 0)?;
    programs.pin()?;
    Ok(maps)
}

/// Detaches the programs from all links and deletes all pins.
fn stop(kernel: &mut Kernel) -> Result<(), Cause> {
    unpin_programs()?;
    let socket = kernel.host();
    for queue in socket.dump(tc::GETQDISC, tc::dump_queues)? {
        if let Some(index) = tc::hostport::parse_clsact(&queue.body) {
            detach(socket, index)?;
        }
    }
    Ok(unpin_maps()?)
}

/// Detaches the programs from a link. If `clsact` has no other filters, deletes `clsact` with its
/// filters in one request.
fn detach(socket: &mut Socket, index: u32) -> Result<(), Cause> {
    let (mut own, mut is_shared) = (Vec::new(), false);
    for hook in HOOKS {
        let filters = found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, hook, out)))?;
        for filter in filters.unwrap_or_default() {
            if !tc::hostport::is_filter(&filter.body) {
                continue;
            }
            match tc::hostport::parse(&filter.body) {
                Some(_) => own.push(hook),
                None => is_shared = true,
            }
        }
    }
    if is_shared {
        for hook in own {
            found(socket.call(tc::DELTFILTER, 0, |out| {
                tc::hostport::detach(index, hook, out);
            }))?;
        }
    } else if !own.is_empty() {
        found(socket.call(tc::DELQDISC, 0, |out| tc::clsact(index, out)))?;
    }
    Ok(())
}

/// Lists the links that clients use. These are all links that pass packets to the host itself,
/// except `lo`, links with a master, `ifb` links, and links with an `ingress` qdisc. A link with an
/// `ingress` qdisc has no egress hook.
fn client_links(kernel: &mut Kernel) -> Result<Places, Cause> {
    let socket = kernel.host();
    let queues = socket.dump(tc::GETQDISC, tc::dump_queues)?;
    let mut links = Places::new();
    for message in socket.dump(rtnl::GETLINK, link::link_dump)? {
        let Some((_, fact)) = parse(&message.body) else {
            continue;
        };
        let class = match link::hardware(&message.body) {
            Some(LINK_ETHERNET) if fact.kind == "bridge" => ETHERNET | BRIDGE,
            Some(LINK_ETHERNET) => ETHERNET,
            Some(LINK_IP) => 0,
            _ => continue,
        };
        let has_ingress = || {
            queues
                .iter()
                .any(|queue| tc::is_ingress(&queue.body, fact.index))
        };
        if fact.index != LOOPBACK_IFINDEX
            && fact.master.is_none()
            && fact.kind != "ifb"
            && !has_ingress()
        {
            links.insert(fact.index, class);
        }
    }
    Ok(links)
}

/// Attaches the programs to `links`, up to [`LINKS_IN_A_SEND`] links in one send.
fn attach(
    kernel: &mut Kernel,
    programs: &Programs,
    links: &Places,
    flags: u16,
) -> Result<(), Cause> {
    let socket = kernel.host();
    let links: Vec<_> = links.iter().collect();
    for links in links.chunks(LINKS_IN_A_SEND) {
        attach_some(socket, programs, links, flags)?;
    }
    Ok(())
}

fn attach_some(
    socket: &mut Socket,
    programs: &Programs,
    links: &[(&u32, &u32)],
    flags: u16,
) -> Result<(), KernelError> {
    let [inward, outward] = programs.fds();
    let filters = [
        (Hook::Ingress, inward, NAMES[0]),
        (Hook::Egress, outward, NAMES[1]),
    ];
    for (index, class) in links {
        socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(**index, out));
        for (hook, program, name) in filters {
            if **class & BRIDGE_PORT != 0 && hook == Hook::Egress {
                continue;
            }
            socket.push(tc::NEWTFILTER, CREATE | flags, |out| {
                tc::hostport::attach(**index, hook, program, name, **class, out);
            });
        }
    }
    // An existing clsact of another program serves as well. With `EXCL`, so does an existing
    // filter. A link may have been deleted meanwhile.
    let is_fine = |err: &KernelError| err.errno == Errno::EEXIST || err.errno == Errno::ENODEV;
    for outcome in socket.flush()? {
        if let Some(err) = outcome.error
            && !is_fine(&err)
        {
            return Err(err);
        }
    }
    Ok(())
}

/// Lists the host's addresses.
fn addrs(kernel: &mut Kernel) -> Result<Vec<IpAddr>, Cause> {
    let addrs = addr::list(kernel.host(), 0)?;
    Ok(addrs.iter().map(|(_, fact)| fact.net.addr()).collect())
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &HostEndpoint, facts: &mut Facts) -> Result<(), Error> {
    let found = observe(kernel, at).doing(format_args!("look up host port {at} in eBPF"))?;
    if let Some(fact) = found {
        facts.ebpf_ports.insert(*at, fact);
    }
    Ok(())
}

#[cold]
pub(crate) fn read_hook(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let is_hooked = is_hooked(kernel, at);
    let is_hooked = is_hooked.doing(format_args!(
        "query the programs for host ports of link {at}"
    ))?;
    facts.host_port_hooks.extend(is_hooked.then(|| at.clone()));
    Ok(())
}
