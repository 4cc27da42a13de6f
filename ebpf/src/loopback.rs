//! Host ports on `[::1]`. A socket of the host that connects to such a port is redirected to the
//! container. The kernel never routes packets from or to `::1` out of `lo`, so the destination must
//! change before there is a packet.
//!
//! The programs are attached to the root of cgroup2, and see the sockets of all network namespaces.
//! `connect6` and `sendmsg6` redirect the host's sockets and record the requested port. `recvmsg6`
//! and `getpeername6` show `[::1]` and that port again.

use aya_ebpf::{
    bindings::{bpf_sock, bpf_sock_addr},
    btf_maps::{HashMap, LruHashMap},
    helpers::generated::{bpf_get_netns_cookie, bpf_get_socket_cookie},
    macros::{btf_map, cgroup_sock_addr},
    programs::SockAddrContext,
};
use braid_ebpf_types::{
    hostport::{Address, HOST_PORTS},
    loopback::{Peer, Port, SOCKETS, Target},
};
use core::ptr::{read_volatile, write_volatile};

const NO_PREALLOC: usize = 1;
/// Return value of the programs: the system call continues.
const GO_ON: i32 = 1;
const LOOPBACK: Address = [0, 0, 0, 1_u32.to_be()];

#[btf_map]
static LOOPBACK_PORTS: HashMap<Port, Target, HOST_PORTS, NO_PREALLOC> = HashMap::new();
#[btf_map]
static LOOPBACK_SOCKETS: LruHashMap<Peer, u32, SOCKETS> = LruHashMap::new();

/// Redirects a socket that connects.
#[cgroup_sock_addr(connect6)]
pub fn connect6(ctx: SockAddrContext) -> i32 {
    lead(ctx.sock_addr, |ctx| {
        let sk = socket(ctx);
        // SAFETY: the context's socket is valid for the run, and the verifier lets the program read
        // the field.
        words(|at| unsafe { read_volatile(&raw const (*sk).src_ip6[at]) })
    });
    GO_ON
}

/// Redirects a datagram that an unconnected socket sends.
#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(ctx: SockAddrContext) -> i32 {
    // SAFETY: the context is valid for the run, and the verifier lets the program read the field.
    lead(ctx.sock_addr, |ctx| {
        words(|at| unsafe { read_volatile(&raw const (*ctx).msg_src_ip6[at]) })
    });
    GO_ON
}

/// Restores the source address of a received datagram.
#[cgroup_sock_addr(recvmsg6)]
pub fn recvmsg6(ctx: SockAddrContext) -> i32 {
    show(ctx.sock_addr);
    GO_ON
}

/// Restores the peer address of a connected socket.
#[cgroup_sock_addr(getpeername6)]
pub fn getpeername6(ctx: SockAddrContext) -> i32 {
    show(ctx.sock_addr);
    GO_ON
}

/// Replaces `::1` by the container's address. A socket that has the source `::1`, or is bound to a
/// link, is not redirected: its packets could not reach the container.
#[inline(always)]
fn lead(ctx: *mut bpf_sock_addr, source: impl Fn(*mut bpf_sock_addr) -> Address) -> Option<()> {
    if !is_loopback(&addr(ctx)) {
        return None;
    }
    // SAFETY: the context is valid for the run, and the verifier lets the programs read the field.
    let (port, protocol) = unsafe { (read_volatile(&raw const (*ctx).user_port), (*ctx).protocol) };
    let target = target_of(port, protocol)?;
    // SAFETY: the map's value is only ever replaced as a whole.
    let target = unsafe { &*target };
    // SAFETY: a helper that reads the context, which is valid for the run.
    let netns = unsafe { bpf_get_netns_cookie(ctx.cast()) };
    // SAFETY: the context's socket is valid for the run, and the verifier lets the programs read
    // the field.
    let link = unsafe { (*socket(ctx)).bound_dev_if };
    if netns != target.netns || link != 0 || is_loopback(&source(ctx)) {
        return None;
    }
    note(&peer(ctx, target.addr, target.port.into()), port);
    write(ctx, &target.addr, target.port.into());
    Some(())
}

/// If the socket was redirected, replaces the container's address and port with `::1` and the
/// requested port.
#[inline(always)]
fn show(ctx: *mut bpf_sock_addr) -> Option<()> {
    // SAFETY: the context is valid for the run, and the verifier lets the programs read the field.
    let port = unsafe { read_volatile(&raw const (*ctx).user_port) };
    // SAFETY: the value is copied immediately, and is the same as long as the key exists.
    let port = *unsafe { LOOPBACK_SOCKETS.get(&peer(ctx, addr(ctx), port)) }?;
    write(ctx, &LOOPBACK, port);
    Some(())
}

/// Returns the target of a port. An entry for `::1` alone takes precedence over an entry for all
/// addresses.
#[inline(always)]
fn target_of(port: u32, protocol: u32) -> Option<*const Target> {
    let mut at = Port {
        number: port as u16,
        protocol: protocol as u8,
        is_any: 0,
    };
    if let Some(target) = LOOPBACK_PORTS.get_ptr(&at) {
        return Some(target);
    }
    at.is_any = 1;
    LOOPBACK_PORTS.get_ptr(&at)
}

/// Records the port that the socket requested, unless it is already recorded. The lookup keeps the
/// entry from eviction.
#[inline(always)]
fn note(peer: &Peer, port: u32) {
    // SAFETY: the value is compared immediately.
    if unsafe { LOOPBACK_SOCKETS.get(peer) } != Some(&port) {
        // If this fails, the socket sees the container's own address, which does no harm.
        let _full = LOOPBACK_SOCKETS.insert(peer, &port, 0);
    }
}

#[inline(always)]
fn peer(ctx: *mut bpf_sock_addr, addr: Address, port: u32) -> Peer {
    // SAFETY: a helper that reads the context, which is valid for the run.
    let socket = unsafe { bpf_get_socket_cookie(ctx.cast()) };
    Peer {
        socket,
        addr,
        port,
        padding: 0,
    }
}

#[inline(always)]
fn socket(ctx: *mut bpf_sock_addr) -> *mut bpf_sock {
    // SAFETY: the context is valid for the run, and always has a socket.
    unsafe { (*ctx).__bindgen_anon_1.sk }
}

#[inline(always)]
fn addr(ctx: *mut bpf_sock_addr) -> Address {
    // SAFETY: the context is valid for the run, and the verifier lets the programs read the field.
    words(|at| unsafe { read_volatile(&raw const (*ctx).user_ip6[at]) })
}

/// Writes address and port word by word: the verifier accepts no other stores.
#[inline(always)]
fn write(ctx: *mut bpf_sock_addr, addr: &Address, port: u32) {
    // SAFETY: the context is valid for the run, and the verifier lets the programs write the
    // fields.
    unsafe {
        write_volatile(&raw mut (*ctx).user_ip6[0], addr[0]);
        write_volatile(&raw mut (*ctx).user_ip6[1], addr[1]);
        write_volatile(&raw mut (*ctx).user_ip6[2], addr[2]);
        write_volatile(&raw mut (*ctx).user_ip6[3], addr[3]);
        write_volatile(&raw mut (*ctx).user_port, port);
    }
}

#[inline(always)]
fn words(word: impl Fn(usize) -> u32) -> Address {
    [word(0), word(1), word(2), word(3)]
}

#[inline(always)]
fn is_loopback(addr: &Address) -> bool {
    addr[0] | addr[1] | addr[2] | (addr[3] ^ LOOPBACK[3]) == 0
}
