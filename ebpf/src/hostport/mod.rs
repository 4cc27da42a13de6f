//! Host ports, translated on the client's link: `hp_in` rewrites requests on ingress, `hp_out`
//! replies on egress. In between, the host sees an ordinary flow from the client to the container.
//!
//! For two kinds of clients, `hp_in` on the container's link rewrites the replies as well. The
//! first is the container itself, which sees the host as its client. The second is a neighbour on
//! the bridge, because the reply goes straight back through the bridge. Its packet is redirected to
//! the container's link.
//!
//! Packets of other clients bypass the bridge of the container in both directions. They are
//! redirected from the bridge's egress to the container's link, and replies from that link to the
//! bridge's ingress.
//!
//! Packets that the programs cannot forward pass unchanged, because nf_tables has the same ports.
//! This includes packets that a rate-limited container sends to itself. Replies of such a container
//! pass through the bridge, because no packet may bypass the queue that follows `hp_in`.

mod error;
mod known;
mod local;
mod packet;

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_INGRESS, TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::{Array, HashMap, LruHashMap},
    helpers::generated::bpf_redirect,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::hostport::{
    Address, Answer, BRIDGE, BRIDGE_PORT, Entrance, FLOWS, HAIRPIN, HOST_PORTS as MOST, ITSELF,
    Known, Mac, NEIGHBOUR, NEIGHBOURS, Origin, POD, SHAPED, Target,
};
use error::Quote;
use known::{ANSWER, LED, NO_PROTOCOL, NOTHING, last, note, put, recall};
use local::Noted;
use packet::{Ends, Packet, mac_words, macs, set_macs};

const NO_PREALLOC: usize = 1;

#[btf_map]
static HOST_PORTS: HashMap<Entrance, Target, MOST, NO_PREALLOC> = HashMap::new();
/// Nonzero once any port was forwarded for a single host address.
#[btf_map]
static BY_ADDRESS: Array<u32, 1> = Array::new();
#[btf_map]
static NAT: LruHashMap<Answer, Origin, FLOWS> = LruHashMap::new();

/// Value of [`Origin::home`] until a packet of the flow was redirected from the bridge to the
/// container.
const NO_HOME: Mac = [0; 2];
/// `PACKET_HOST` and `PACKET_OTHERHOST`.
const TO_THIS_HOST: u32 = 0;
const TO_ANOTHER_HOST: u32 = 3;

/// Forwards clients' packets to containers.
#[classifier]
pub fn hp_in(ctx: TcContext) -> i32 {
    inward(ctx.skb.skb).unwrap_or(TC_ACT_UNSPEC)
}

/// Replaces the source of containers' replies with the host's address and port.
#[classifier]
pub fn hp_out(ctx: TcContext) -> i32 {
    outward(ctx.skb.skb).unwrap_or(TC_ACT_UNSPEC)
}

#[inline(always)]
fn inward(skb: *mut __sk_buff) -> Option<i32> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the fields.
    let (place, pkt_type, has_vlan, index, known) = unsafe {
        (
            (*skb).tc_classid,
            (*skb).pkt_type,
            (*skb).vlan_present,
            (*skb).ifindex,
            (*skb).tc_index,
        )
    };
    if known == ANSWER && place & POD == 0 {
        return None;
    }
    if known != NOTHING {
        note(skb, NOTHING);
    }
    let is_port = place & BRIDGE_PORT != 0;
    // A bridge port also receives frames for other hosts. A frame with a VLAN tag is received again
    // on the link of that VLAN.
    if has_vlan != 0 || pkt_type != TO_THIS_HOST && !(is_port && pkt_type == TO_ANOTHER_HOST) {
        return None;
    }
    let Some(packet) = Packet::parse(skb, place) else {
        return error_inward(&Quote::parse(skb, place)?, place);
    };
    if place & POD != 0
        && let Some(verdict) = turn_round(&packet, place)
    {
        return verdict;
    }
    let Some((target, flags)) = way(&packet, index, place) else {
        stays(&packet, is_port);
        return None;
    };
    lead(&packet, target, flags, is_port)
}

/// Returns the target to which the packet is forwarded on this link, with [`Origin::flags`] for its
/// client. `None` if the packet is not forwarded.
#[inline(always)]
fn way(packet: &Packet, index: u32, place: u32) -> Option<(&'static Target, u16)> {
    let [client, addr] = &packet.ends.addrs;
    let target = target_of(addr, packet.ends.ports[1], packet.protocol)?;
    // SAFETY: the map's value is only ever replaced as a whole, and outlives the run.
    let target = unsafe { &*target };
    if *client == target.addr {
        let turns = index == target.link && target.flags & HAIRPIN != 0 && place & SHAPED == 0;
        return turns.then_some((target, ITSELF));
    }
    if place & BRIDGE_PORT != 0 {
        return None;
    }
    if target.bridge == 0 || !is_within(client, target) {
        return Some((target, 0));
    }
    (index == target.bridge && target.flags & NEIGHBOURS != 0).then_some((target, NEIGHBOUR))
}

/// Forwards a packet to the container. `None` if the destination is not an address of the host, or
/// if another flow would have the same replies.
#[inline(always)]
fn lead(packet: &Packet, target: &Target, flags: u16, is_port: bool) -> Option<i32> {
    let Ends {
        addrs: [client, addr],
        ports: [client_port, port],
    } = packet.ends;
    let (is_itself, is_neighbour) = (flags & ITSELF != 0, flags & NEIGHBOUR != 0);
    let peer = if is_itself { addr } else { client };
    let last = last()?;
    let protocol = packet.protocol.into();
    let answer = Answer {
        pod: target.addr,
        peer,
        pod_port: target.port,
        peer_port: client_port,
        protocol,
    };
    put(&answer, &mut last.answer);
    let Target { link, bridge, .. } = *target;
    put(
        &Origin {
            addr,
            port,
            flags,
            link,
            bridge,
            home: NO_HOME,
        },
        &mut last.origin,
    );
    if remember(packet, last, is_port).is_none() {
        last.answer.protocol = NO_PROTOCOL;
        return None;
    }
    let to = Ends {
        addrs: [peer, target.addr],
        ports: [client_port, target.port],
    };
    if !packet.rewrite(&to) {
        return None;
    }
    if is_itself {
        return Some(back(packet.skb));
    }
    if !is_neighbour {
        note(packet.skb, LED);
        return None;
    }
    set_macs(packet.skb, &[target.mac]);
    // SAFETY: the helper only stores an index.
    Some(unsafe { bpf_redirect(target.link, 0) } as i32)
}

/// Stores the packet's flow, if it is new, so that its replies can be rewritten. `None` if the
/// destination is not an address of the host, or if another flow would have the same replies.
#[inline(always)]
fn remember(packet: &Packet, flow: &mut Known, is_port: bool) -> Option<()> {
    let Known { answer, origin } = flow;
    // SAFETY: the value is read immediately; a concurrent writer writes the same for this flow.
    let known = unsafe { NAT.get(&*answer) };
    if let Some(known) = known.filter(|known| leads_alike(known, origin)) {
        origin.home = known.home;
        return Some(());
    }
    let is_others =
        known.is_some_and(|known| known.addr != origin.addr || known.port != origin.port);
    let Some(noted) = Noted::find(&origin.addr) else {
        if !is_port {
            forget(packet);
        }
        return None;
    };
    if is_others || !noted.holds(packet) {
        return None;
    }
    NAT.insert(&*answer, &*origin, 0).ok()
}

/// True if both flows take the same path. `home` is not compared, because it may still be unknown.
#[inline(always)]
fn leads_alike(one: &Origin, other: &Origin) -> bool {
    let Origin {
        addr,
        port,
        flags,
        link,
        bridge,
        ..
    } = *one;
    addr == other.addr
        && port == other.port
        && flags == other.flags
        && link == other.link
        && bridge == other.bridge
}

/// Processes a container's reply and returns the program's result; the outer `None` if the packet
/// is not a reply of a known flow.
#[inline(always)]
fn turn_round(packet: &Packet, place: u32) -> Option<Option<i32>> {
    let last = last()?;
    put(&answer_of(&packet.ends, packet.protocol), &mut last.answer);
    // SAFETY: the value is copied immediately; a concurrent writer writes the same for this flow.
    let Some(origin) = (unsafe { NAT.get(&last.answer) }) else {
        // The value in the map belongs to another flow.
        last.answer.protocol = NO_PROTOCOL;
        return None;
    };
    put(origin, &mut last.origin);
    let Origin {
        addr, port, flags, ..
    } = last.origin;
    let Ends {
        addrs: [pod, peer],
        ports: [_, peer_port],
    } = packet.ends;
    if flags & (ITSELF | NEIGHBOUR) == 0 {
        note(packet.skb, ANSWER);
        return Some(if place & SHAPED == 0 {
            past_bridge_home(packet.skb, &last.origin)
        } else {
            None
        });
    }
    let is_itself = flags & ITSELF != 0;
    let to = Ends {
        addrs: [addr, if is_itself { pod } else { peer }],
        ports: [port, peer_port],
    };
    if !packet.rewrite(&to) {
        return Some(Some(TC_ACT_SHOT));
    }
    Some(is_itself.then(|| back(packet.skb)))
}

#[inline(always)]
fn outward(skb: *mut __sk_buff) -> Option<i32> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the fields.
    let (place, known) = unsafe { ((*skb).tc_classid, (*skb).tc_index) };
    if known == LED {
        return past_bridge(skb, place);
    }
    let Some(packet) = Packet::parse(skb, place) else {
        let error = Quote::parse(skb, place)?;
        let Origin {
            addr, port, flags, ..
        } = origin_of(&answer_of(&turned(&error.ends), error.protocol))?;
        if flags & (ITSELF | NEIGHBOUR) == 0 {
            about_client(&error, addr, port);
        }
        return None;
    };
    let answer = answer_of(&packet.ends, packet.protocol);
    let origin = if known == ANSWER {
        note(skb, NOTHING);
        recalled(&answer)
    } else {
        origin_of(&answer)
    };
    let Origin {
        addr, port, flags, ..
    } = origin?;
    if flags & (ITSELF | NEIGHBOUR) == 0 {
        let Ends {
            addrs: [_, peer],
            ports: [_, peer_port],
        } = packet.ends;
        packet.rewrite(&Ends {
            addrs: [addr, peer],
            ports: [port, peer_port],
        });
    }
    None
}

/// Redirects a client's packet to the container's bridge port, as the bridge would forward it.
/// `None` if the packet is not on the flow's bridge. Also `None` for a packet with a VLAN tag,
/// which the bridge port may have to remove.
#[inline(always)]
fn past_bridge(skb: *mut __sk_buff, place: u32) -> Option<i32> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the fields.
    let (has_vlan, index) = unsafe { ((*skb).vlan_present, (*skb).ifindex) };
    if place & BRIDGE == 0 || has_vlan != 0 {
        return None;
    }
    let Packet { ends, protocol, .. } = Packet::parse(skb, place)?;
    let answer = answer_of(&turned(&ends), protocol);
    let Origin {
        link, bridge, home, ..
    } = recalled(&answer)?;
    let own = if bridge == index {
        mac_words(skb)?[1]
    } else {
        NO_HOME
    };
    if home != own
        && let Some(origin) = NAT.get_ptr_mut(&answer)
    {
        // SAFETY: the map's value outlives the run; a concurrent writer writes the same.
        unsafe { (*origin).home = own };
    }
    // SAFETY: the helper only stores an index.
    (bridge == index).then(|| unsafe { bpf_redirect(link, 0) } as i32)
}

/// Redirects a reply to the bridge's ingress, the reverse of [`past_bridge`]. `None` if the reply
/// is not sent to the bridge, or comes from another container than the flow's. Such a reply must
/// pass the filters of the bridge.
#[inline(always)]
fn past_bridge_home(skb: *mut __sk_buff, origin: &Origin) -> Option<i32> {
    let [to, _] = mac_words(skb)?;
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    let is_own = unsafe { (*skb).ifindex } == origin.link;
    if origin.home == NO_HOME || origin.home != to || !is_own {
        return None;
    }
    // SAFETY: the helper only stores an index.
    Some(unsafe { bpf_redirect(origin.bridge, u64::from(BPF_F_INGRESS)) } as i32)
}

/// Rewrites an incoming ICMP error. It is about a reply and sent to the host, or it comes from a
/// container and is about a neighbour's packet.
#[inline(always)]
fn error_inward(error: &Quote, place: u32) -> Option<i32> {
    if place & POD != 0
        && let Some(Origin {
            addr,
            port,
            flags: NEIGHBOUR,
            ..
        }) = origin_of(&answer_of(&turned(&error.ends), error.protocol))
    {
        about_client(error, addr, port);
        return None;
    }
    let [host, client] = error.ends.addrs;
    let [port, client_port] = error.ends.ports;
    Noted::find(&host)?;
    // SAFETY: the map's value is only ever replaced as a whole.
    let target = unsafe { &*target_of(&host, port, error.protocol)? };
    let ends = Ends {
        addrs: [target.addr, client],
        ports: [target.port, client_port],
    };
    let origin = origin_of(&answer_of(&ends, error.protocol))?;
    if origin.addr == host && origin.port == port {
        error.rewrite(&[error.addrs[0], target.addr], &ends);
    }
    None
}

/// Rewrites an ICMP error about a client's packet, so that it refers to the host port instead of
/// the container.
#[inline(always)]
fn about_client(error: &Quote, host: Address, port: u16) {
    let Ends {
        addrs: [client, pod],
        ports: [client_port, _],
    } = error.ends;
    let [from, to] = error.addrs;
    let ends = Ends {
        addrs: [client, host],
        ports: [client_port, port],
    };
    // Word by word, because LLVM 22 crashes on the copy of the whole array.
    let differs = (from[0] ^ pod[0]) | (from[1] ^ pod[1]) | (from[2] ^ pod[2]) | (from[3] ^ pod[3]);
    let word = |at: usize| if differs == 0 { host[at] } else { from[at] };
    error.rewrite(&[[word(0), word(1), word(2), word(3)], to], &ends);
}

/// Returns the ends with source and destination swapped.
#[inline(always)]
fn turned(ends: &Ends) -> Ends {
    Ends {
        addrs: [ends.addrs[1], ends.addrs[0]],
        ports: [ends.ports[1], ends.ports[0]],
    }
}

/// Returns the key of the flow of a packet that a container sends.
#[inline(always)]
fn answer_of(ends: &Ends, protocol: u8) -> Answer {
    let Ends {
        addrs: [pod, peer],
        ports: [pod_port, peer_port],
    } = *ends;
    Answer {
        pod,
        peer,
        pod_port,
        peer_port,
        protocol: protocol.into(),
    }
}

/// Returns the address and port that the client of a flow connected to; `None` if the flow is
/// unknown.
#[inline(always)]
fn origin_of(answer: &Answer) -> Option<Origin> {
    // SAFETY: the value is copied immediately; a concurrent writer writes the same for this flow.
    unsafe { NAT.get(answer) }.copied()
}

/// Returns the same as [`origin_of`], and is faster for a packet that `hp_in` has just processed.
#[inline(always)]
fn recalled(answer: &Answer) -> Option<Origin> {
    recall(answer).or_else(|| origin_of(answer))
}

/// Returns the target of a host port. An entry for the address `addr` takes precedence over an
/// entry for all host addresses.
#[inline(always)]
fn target_of(addr: &Address, port: u16, protocol: u8) -> Option<*const Target> {
    let mut at = Entrance {
        addr: *addr,
        port,
        protocol: protocol.into(),
    };
    if BY_ADDRESS.get(0).is_some_and(|is| *is != 0)
        && let Some(target) = HOST_PORTS.get_ptr(&at)
    {
        return Some(target);
    }
    at.addr = local::any_of(addr);
    HOST_PORTS.get_ptr(&at)
}

/// Deletes the flow of a packet that is not forwarded. Does nothing on a bridge port, or if braid
/// recorded the packet's destination as an address of the host.
#[inline(always)]
fn stays(packet: &Packet, is_port: bool) {
    if !is_port && Noted::find(&packet.ends.addrs[1]).is_none() {
        forget(packet);
    }
}

/// Deletes the flow of a client that connects to the container directly, so that its replies no
/// longer come from the host's port.
#[inline(always)]
fn forget(packet: &Packet) {
    let answer = answer_of(&turned(&packet.ends), packet.protocol);
    // SAFETY: the value is not read.
    if unsafe { NAT.get(&answer) }.is_some() {
        let _gone = NAT.remove(&answer);
    }
}

#[inline(always)]
fn is_within(addr: &Address, target: &Target) -> bool {
    let differs = |at: usize| (addr[at] ^ target.addr[at]) & target.mask[at];
    differs(0) | differs(1) | differs(2) | differs(3) == 0
}

/// Sends a frame back out of the link on which it arrived.
#[inline(always)]
fn back(skb: *mut __sk_buff) -> i32 {
    if let Some([to, from]) = macs(skb) {
        set_macs(skb, &[from, to]);
    }
    // SAFETY: the helper only stores an index; the context is valid for the run.
    unsafe { bpf_redirect((*skb).ifindex, 0) as i32 }
}
