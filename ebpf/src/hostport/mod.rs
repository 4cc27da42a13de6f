//! Ports of the host that lead to containers, translated at the client's link: `hp_in` where its packets come in, `hp_out`
//! where the answers leave. Between the two the host sees an ordinary flow from the client to the container.
//!
//! Two kinds of clients never pass their link again with the answer in it. The container itself is seen as the host, and
//! `hp_in` of its own link turns both ways round. A neighbour's packet is put straight into the container's link, since
//! the answer goes straight back through the bridge; `hp_in` of the container's link rewrites that.
//!
//! Whatever the programs do not know how to lead passes unchanged: nf_tables knows the same ports.

mod local;
mod packet;

use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_SHOT, TC_ACT_UNSPEC},
    btf_maps::{HashMap, LruHashMap},
    helpers::generated::bpf_redirect,
    macros::{btf_map, classifier},
    programs::TcContext,
};
use braid_ebpf_types::hostport::{
    Address, Answer, BRIDGE_PORT, Entrance, FLOWS, HAIRPIN, HOST_PORTS as MOST, ITSELF, NEIGHBOUR, NEIGHBOURS, Origin,
    POD, Target,
};
use packet::{Ends, Packet, macs, set_macs};

const NO_PREALLOC: usize = 1;

#[btf_map]
static HOST_PORTS: HashMap<Entrance, Target, MOST, NO_PREALLOC> = HashMap::new();
#[btf_map]
static NAT: LruHashMap<Answer, Origin, FLOWS> = LruHashMap::new();

/// `PACKET_HOST` and `PACKET_OTHERHOST`.
const TO_THIS_HOST: u32 = 0;
const TO_ANOTHER_HOST: u32 = 3;

/// Leads what clients send to containers.
#[classifier]
pub fn hp_in(ctx: TcContext) -> i32 {
    inward(ctx.skb.skb).unwrap_or(TC_ACT_UNSPEC)
}

/// Makes the containers' answers come from the host.
#[classifier]
pub fn hp_out(ctx: TcContext) -> i32 {
    outward(ctx.skb.skb).unwrap_or(TC_ACT_UNSPEC)
}

#[inline(always)]
fn inward(skb: *mut __sk_buff) -> Option<i32> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the fields.
    let (place, pkt_type, has_vlan, index) =
        unsafe { ((*skb).tc_classid, (*skb).pkt_type, (*skb).vlan_present, (*skb).ifindex) };
    let is_port = place & BRIDGE_PORT != 0;
    // A port carries what is for others, too. What is of a VLAN comes in once more from the link of that VLAN.
    if has_vlan != 0 || pkt_type != TO_THIS_HOST && !(is_port && pkt_type == TO_ANOTHER_HOST) {
        return None;
    }
    let packet = Packet::parse(skb, place)?;
    if place & POD != 0
        && let Some(verdict) = turn_round(&packet)
    {
        return verdict;
    }
    let [client, addr] = packet.ends.addrs;
    if !local::is_noted(&addr) {
        if !is_port {
            forget(&packet);
        }
        return None;
    }
    let target = target_of(&packet)?;
    // SAFETY: the map's value, of which nothing changes but as a whole.
    let target = unsafe { &*target };
    let is_itself = client == target.addr;
    if is_itself && (index != target.link || target.flags & HAIRPIN == 0) || !is_itself && is_port {
        return None;
    }
    let is_neighbour = !is_itself && target.bridge != 0 && is_within(&client, target);
    if is_neighbour && (index != target.bridge || target.flags & NEIGHBOURS == 0) {
        return None;
    }
    lead(&packet, target, is_itself, is_neighbour)
}

/// Leads a packet to the container; none where another flow would have the same answers.
#[inline(always)]
fn lead(packet: &Packet, target: &Target, is_itself: bool, is_neighbour: bool) -> Option<i32> {
    let Ends { addrs: [client, addr], ports: [client_port, port] } = packet.ends;
    let peer = if is_itself { addr } else { client };
    let answer = Answer {
        pod: target.addr,
        peer,
        pod_port: target.port,
        peer_port: client_port,
        protocol: packet.protocol.into(),
    };
    let flags = if is_itself { ITSELF } else { 0 } | if is_neighbour { NEIGHBOUR } else { 0 };
    let origin = Origin { addr, port, flags };
    // SAFETY: the value is copied at once; who changes it changes it to what it is for the flow.
    match unsafe { NAT.get(&answer) } {
        Some(known) if known.addr != addr || known.port != port => return None,
        Some(known) if known.flags == flags => {}
        _ => {
            if !local::is_local(packet) {
                return None;
            }
            NAT.insert(&answer, &origin, 0).ok()?;
        }
    }
    let to = Ends { addrs: [peer, target.addr], ports: [client_port, target.port] };
    if !packet.rewrite(&to) {
        return None;
    }
    if is_itself {
        return Some(back(packet.skb));
    }
    if !is_neighbour {
        return None;
    }
    set_macs(packet.skb, &[target.mac]);
    // SAFETY: a helper that notes an index.
    Some(unsafe { bpf_redirect(target.link, 0) } as i32)
}

/// What a container sends as an answer to itself or to a neighbour; none for all else, and what is inside is the verdict.
#[inline(always)]
fn turn_round(packet: &Packet) -> Option<Option<i32>> {
    let Origin { addr, port, flags } = origin_of(packet)?;
    let Ends { addrs: [pod, peer], ports: [_, peer_port] } = packet.ends;
    if flags & (ITSELF | NEIGHBOUR) == 0 {
        return None;
    }
    let is_itself = flags & ITSELF != 0;
    let to = Ends { addrs: [addr, if is_itself { pod } else { peer }], ports: [port, peer_port] };
    if !packet.rewrite(&to) {
        return Some(Some(TC_ACT_SHOT));
    }
    Some(is_itself.then(|| back(packet.skb)))
}

#[inline(always)]
fn outward(skb: *mut __sk_buff) -> Option<i32> {
    // SAFETY: the context is valid for the run, and the verifier lets a classifier read the field.
    let packet = Packet::parse(skb, unsafe { (*skb).tc_classid })?;
    let Origin { addr, port, flags } = origin_of(&packet)?;
    if flags & (ITSELF | NEIGHBOUR) == 0 {
        let Ends { addrs: [_, peer], ports: [_, peer_port] } = packet.ends;
        packet.rewrite(&Ends { addrs: [addr, peer], ports: [port, peer_port] });
    }
    None
}

/// What the client of an answer takes for its source.
#[inline(always)]
fn origin_of(packet: &Packet) -> Option<Origin> {
    let Ends { addrs: [pod, peer], ports: [pod_port, peer_port] } = packet.ends;
    let answer = Answer { pod, peer, pod_port, peer_port, protocol: packet.protocol.into() };
    // SAFETY: the value is copied at once; who changes it changes it to what it is for the flow.
    unsafe { NAT.get(&answer) }.copied()
}

/// Where the packet's destination leads: its own address goes before all of the host's.
#[inline(always)]
fn target_of(packet: &Packet) -> Option<*const Target> {
    let [_, addr] = packet.ends.addrs;
    let mut at = Entrance { addr, port: packet.ends.ports[1], protocol: packet.protocol.into() };
    if let Some(target) = HOST_PORTS.get_ptr(&at) {
        return Some(target);
    }
    at.addr = local::any_of(&addr);
    HOST_PORTS.get_ptr(&at)
}

/// A client that speaks to the container without the host's port is not to hear of that port any more.
#[inline(always)]
fn forget(packet: &Packet) {
    let Ends { addrs: [peer, pod], ports: [peer_port, pod_port] } = packet.ends;
    let answer = Answer { pod, peer, pod_port, peer_port, protocol: packet.protocol.into() };
    // SAFETY: nothing is read.
    if unsafe { NAT.get(&answer) }.is_some() {
        let _gone = NAT.remove(&answer);
    }
}

#[inline(always)]
fn is_within(addr: &Address, target: &Target) -> bool {
    let differs = |at: usize| (addr[at] ^ target.addr[at]) & target.mask[at];
    differs(0) | differs(1) | differs(2) | differs(3) == 0
}

/// Sends a frame back where it came from.
#[inline(always)]
fn back(skb: *mut __sk_buff) -> i32 {
    if let Some([to, from]) = macs(skb) {
        set_macs(skb, &[from, to]);
    }
    // SAFETY: a helper that notes an index; the context is valid for the run.
    unsafe { bpf_redirect((*skb).ifindex, 0) as i32 }
}
