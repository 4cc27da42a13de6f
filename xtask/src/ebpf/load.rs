//! Test that a kernel accepts the object. All programs except `xsk_bind` are loaded, and `shape` is
//! also attached and fed with packets. `xsk_bind` is left to `braid doctor`, because not every
//! kernel allows BPF LSM programs.
//!
//! The test runs in a thread with a new network namespace. The namespace, its devices and the
//! programs end with the thread.

use anyhow::{Context, Result, bail, ensure};
use aya::maps::Array;
use aya::programs::tc::{NlOptions, TcAttachOptions, TcAttachType, qdisc_add_clsact};
use aya::programs::{CgroupSockAddr, Program, SchedClassifier};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use braid_ebpf_types::shape::{Conf, Count, PLACES, Shape};
use braid_testbed::sh;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::net::UdpSocket;

const DEVICE: &str = "braid0";
/// Traffic programs that are only loaded here. The network namespace tests send packets through
/// them.
const UNFED: [&str; 3] = ["shape_subnets", "hp_in", "hp_out"];
/// Programs for socket calls, which are only loaded here.
const OF_SOCKETS: [&str; 4] = ["connect6", "sendmsg6", "recvmsg6", "getpeername6"];
/// Rate in bits per second, so high that no datagram waits.
const RATE_BPS: u64 = 1_000_000_000_000;
/// Length of a map value in 64-bit numbers. The value begins with a [`Conf`], then its [`Count`].
const VALUE: usize = PLACES * size_of::<Shape>() / 8;
const CONF: usize = size_of::<Conf>() / 8;
const DATAGRAMS: u64 = 10;
const PAYLOAD: usize = 100;
// Ethernet 14 + IPv4 20 + UDP 8 + payload
const FRAME_BYTES: u64 = 14 + 20 + 8 + PAYLOAD as u64;

/// Loads `object` into the running kernel and fails unless its counters match the sent packets.
pub(super) fn run(object: &[u8]) -> Result<()> {
    let kernel = sh::read(&mut sh::cmd("uname", ["-r"]))?;
    let count = std::thread::scope(|scope| {
        let in_namespace = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace (needs root)")?;
            count_datagrams(object)
        });
        in_namespace
            .join()
            .map_err(|_panic| anyhow::anyhow!("the thread in the namespace died"))?
    })?;
    eprintln!(
        "Linux {}: {}, {} loaded; shape saw {} packets, {} bytes, as many as were sent",
        kernel.trim(),
        UNFED.join(", "),
        OF_SOCKETS.join(", "),
        count.packets,
        count.bytes
    );
    Ok(())
}

fn count_datagrams(object: &[u8]) -> Result<Count> {
    make_device()?;
    let mut ebpf = EbpfLoader::new()
        .verifier_log_level(VerifierLogLevel::STATS)
        .load(object)
        .context("load the object into the kernel")?;
    let mut value = [0u64; VALUE];
    value[0] = RATE_BPS;
    let map = ebpf
        .map_mut("SHAPES")
        .context("the object has no map \"SHAPES\"")?;
    let mut map: Array<_, [u64; VALUE]> = Array::try_from(map).context("map \"SHAPES\"")?;
    map.set(0, value, 0).context("write map \"SHAPES\"")?;
    for name in UNFED {
        let program = ebpf
            .program_mut(name)
            .with_context(|| format!("the object has no program {name:?}"))?;
        verify(program).with_context(|| format!("load {name}"))?;
    }
    for name in OF_SOCKETS {
        let program = ebpf
            .program_mut(name)
            .with_context(|| format!("the object has no program {name:?}"))?;
        let program: &mut CgroupSockAddr =
            program.try_into().context("a program of another kind")?;
        program.load().with_context(|| format!("load {name}"))?;
    }
    attach(&mut ebpf)?;
    // The peer goes up first: a veth that goes up before its peer gets its queue later, from
    // another thread.
    ip("link set braid1 up")?;
    ip("link set braid0 up")?;
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev braid0 nud permanent")?;
    send_datagrams().context("send datagrams to 192.0.2.2 by braid0")?;

    let count = read_count(&ebpf)?;
    let sent = Count {
        packets: DATAGRAMS,
        bytes: DATAGRAMS * FRAME_BYTES,
        ..Count::default()
    };
    let device = transmitted()?;
    ensure!(count == sent, "shape saw {count:?}, but {sent:?} were sent");
    ensure!(
        count == device,
        "shape saw {count:?}, but the device {device:?}"
    );
    Ok(count)
}

fn make_device() -> Result<()> {
    // Without IPv6, the kernel sends nothing when the link goes up.
    let disable_ipv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    if fs::exists(disable_ipv6).unwrap_or(false) {
        fs::write(disable_ipv6, "1").with_context(|| format!("write {disable_ipv6}"))?;
    }
    ip("link add braid0 type veth peer name braid1")?;
    ip("addr add 192.0.2.1/24 dev braid0")
}

/// Attaches `shape` with clsact and `cls_bpf`, as braid does. By default, aya would use tcx.
fn attach(ebpf: &mut Ebpf) -> Result<()> {
    let program = verify(
        ebpf.program_mut("shape")
            .context("the object has no program \"shape\"")?,
    )?;
    qdisc_add_clsact(DEVICE).with_context(|| format!("add clsact to {DEVICE}"))?;
    let options = TcAttachOptions::Netlink(NlOptions::default());
    program
        .attach_with_options(DEVICE, TcAttachType::Egress, options)
        .with_context(|| format!("attach shape to {DEVICE}"))?;
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    sh::run(&mut sh::cmd("ip", arguments.split(' ')))
}

/// Sends the datagrams. A veth has no queue, so each packet has passed the program when `send_to`
/// returns.
fn send_datagrams() -> std::io::Result<()> {
    let socket = UdpSocket::bind("192.0.2.1:0")?;
    for _ in 0..DATAGRAMS {
        socket.send_to(&[0; PAYLOAD], "192.0.2.2:9")?;
    }
    Ok(())
}

fn verify(program: &mut Program) -> Result<&mut SchedClassifier> {
    let program: &mut SchedClassifier = program.try_into().context("a program of another kind")?;
    program.load().context("verify a program")?;
    Ok(program)
}

fn read_count(ebpf: &Ebpf) -> Result<Count> {
    let map = ebpf
        .map("SHAPES")
        .context("the object has no map \"SHAPES\"")?;
    let map: Array<_, [u64; VALUE]> = map.try_into().context("map \"SHAPES\"")?;
    let value = map.get(&0, 0).context("read map \"SHAPES\"")?;
    let [packets, bytes, delayed, dropped, marked, bypassed] = value[CONF..][..6] else {
        bail!("map \"SHAPES\" is too short")
    };
    Ok(Count {
        packets,
        bytes,
        delayed,
        dropped,
        marked,
        bypassed,
    })
}

/// Returns the transmit counters of the device from `/proc/net/dev`. Bytes and packets are the
/// first two of the eight transmit columns.
fn transmitted() -> Result<Count> {
    let path = "/proc/thread-self/net/dev";
    let table = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let columns = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
    let columns: Vec<u64> = columns
        .unwrap_or_default()
        .split_whitespace()
        .flat_map(str::parse)
        .collect();
    match columns[..] {
        [_, _, _, _, _, _, _, _, bytes, packets, ..] => Ok(Count {
            packets,
            bytes,
            ..Count::default()
        }),
        _ => bail!("{path}: no line of 16 columns for {DEVICE}"),
    }
}
