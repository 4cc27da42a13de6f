//! Features that a kernel or machine may lack. They are detected by use, not by version.

use crate::{binary, journal};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io::Write;
use std::process::Command;
use std::sync::OnceLock;

/// A feature that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Links of kind ipvlan.
    Ipvlan,
    /// Bridges with VLAN filtering.
    VlanFiltering,
    /// Links of kind vlan.
    Vlan,
    /// Links of kind vxlan.
    Vxlan,
    /// Links of kind dummy.
    Dummy,
    /// Links of kind netkit.
    Netkit,
    /// Links of kind vrf.
    Vrf,
    /// Queues of kind `fq_codel`.
    FqCodel,
    /// Queues of kind `fq`.
    Fq,
    /// SCTP sockets.
    Sctp,
    /// Netfilter hooks for bridged packets (`br_netfilter`).
    BridgeNf,
    /// `AF_XDP` sockets, and BPF LSM programs on `bind()`.
    XskBind,
    /// The tool bpftool.
    Bpftool,
    /// The legacy iptables: its kernel tables and its program.
    IptablesLegacy,
    /// The reference CNI plugins.
    Reference,
    /// flannel's CNI plugin, of any release.
    ReferenceFlannel,
    /// The reference `dhcp` plugin.
    ReferenceDhcp,
    /// The DHCP server dnsmasq.
    Dnsmasq,
}

impl Feature {
    /// True if the machine has the feature. If not, notes in the journal that this thread's test
    /// skips a part, and which kernel that part needs.
    pub fn is_here(self) -> bool {
        let missing = self.missing();
        if let Some(why) = &missing {
            journal::skip(&journal::test(), why);
        }
        missing.is_none()
    }

    /// Returns the reason why a test that needs the feature cannot run on this machine; `None` if
    /// it can.
    pub fn missing(self) -> Option<String> {
        static KERNEL: [OnceLock<bool>; 9] = [const { OnceLock::new() }; 9];
        let run_by = "run by cargo xtask vm 6.12";
        let kernel = |at: usize, what: &str, thing: &'static str| {
            let has = *KERNEL[at].get_or_init(|| can_add(thing));
            (!has).then(|| format!("needs {what}, {run_by}"))
        };
        match self {
            Self::Ipvlan => kernel(0, "ipvlan", "link lo name probe type ipvlan"),
            Self::VlanFiltering => kernel(
                1,
                "bridge VLAN filtering",
                "name probe type bridge vlan_filtering 1",
            ),
            Self::Vlan => kernel(2, "vlan", "link lo name probe type vlan id 5"),
            Self::Vxlan => kernel(8, "vxlan", "name probe type vxlan id 5 dstport 4789"),
            Self::Dummy => kernel(3, "dummy", "name probe type dummy"),
            Self::Vrf => kernel(7, "vrf", "name probe type vrf table 7"),
            Self::FqCodel => kernel(4, "fq_codel", "qdisc add dev lo root fq_codel"),
            Self::Fq => kernel(5, "fq", "qdisc add dev lo root fq"),
            Self::Netkit => kernel(6, "netkit", "name probe type netkit"),
            Self::Sctp => socket(
                AddressFamily::Inet,
                SockType::Stream,
                SockFlag::empty(),
                SockProtocol::Sctp,
            )
            .is_err()
            .then(|| format!("needs sctp, {run_by}")),
            Self::BridgeNf => (!std::fs::exists("/proc/sys/net/bridge/bridge-nf-call-iptables")
                .unwrap_or(false))
            .then(|| "needs br_netfilter, a module of the kernel".to_owned()),
            Self::XskBind => {
                (!asks_programs()).then(|| format!("needs LSM programs and AF_XDP, {run_by}"))
            }
            Self::Bpftool => {
                (!has_bpftool()).then(|| "needs bpftool, a package of that name".to_owned())
            }
            Self::IptablesLegacy => {
                (!has_iptables_legacy()).then(|| "needs iptables-legacy, and its tables".to_owned())
            }
            Self::ReferenceFlannel => (!binary::reference()
                .is_some_and(|folder| folder.join("flannel").is_file()))
            .then(|| {
                "needs flannel's plugin in $BRAID_REFERENCE, built by cargo xtask bench".to_owned()
            }),
            Self::Dnsmasq => (!std::fs::exists("/usr/sbin/dnsmasq").unwrap_or(false))
                .then(|| "needs dnsmasq, of the package dnsmasq-base".to_owned()),
            Self::ReferenceDhcp => (!binary::reference()
                .is_some_and(|folder| folder.join("dhcp").is_file()))
            .then(|| {
                "needs the reference's dhcp in $BRAID_REFERENCE, built by cargo xtask bench"
                    .to_owned()
            }),
            Self::Reference => binary::reference().is_none().then(|| {
                "needs the reference plugins in $BRAID_REFERENCE, built by cargo xtask bench"
                    .to_owned()
            }),
        }
    }
}

fn has_iptables_legacy() -> bool {
    [
        "/proc/net/ip_tables_names",
        "/proc/net/ip6_tables_names",
        "/usr/sbin/iptables-legacy",
    ]
    .iter()
    .all(|path| std::fs::exists(path).unwrap_or(false))
}

/// True if the kernel runs BPF LSM programs before it binds a socket, and has `AF_XDP` sockets.
fn asks_programs() -> bool {
    const TRY: &str = r#"
import ctypes, platform, socket, struct
socket.socket(44, socket.SOCK_RAW, 0)
whole = open("/sys/kernel/btf/vmlinux", "rb").read()
header, types, types_len, names, names_len = struct.unpack_from("IIIII", whole, 4)
names, at, number, function = header + names, header + types, 1, None
end = at + types_len
while at < end and function is None:
    name, info, _ = struct.unpack_from("III", whole, at)
    kind, members = info >> 24 & 31, info & 0xffff
    if kind == 12 and whole.startswith(b"bpf_lsm_socket_bind\0", names + name):
        function = number
    lens = {1: 4, 3: 12, 4: 12 * members, 5: 12 * members, 6: 8 * members, 13: 8 * members, 14: 4, 15: 12 * members,
        17: 4, 19: 12 * members}
    at, number = at + 12 + lens.get(kind, 0), number + 1
def place(of):
    return ctypes.cast(of, ctypes.c_void_p).value
# For a family of nobody: r2 = address; r2 = its family; r0 = 0; if r2 != 45 exit; r0 = -ENODATA; exit.
code = [(0x79, 0x12, 8, 0), (0x69, 0x22, 0, 0), (0xb7, 0, 0, 0), (0x55, 2, 1, 45), (0xb7, 0, 0, -61), (0x95, 0, 0, 0)]
code = ctypes.create_string_buffer(b"".join(struct.pack("BBhi", *one) for one in code))
terms = ctypes.create_string_buffer(b"GPL")
load = struct.pack("IIQQ", 29, 6, place(code), place(terms)).ljust(68, b"\0") + struct.pack("I", 27)
load = load.ljust(108, b"\0") + struct.pack("I", function)
bpf, libc = {"x86_64": 321}.get(platform.machine(), 280), ctypes.CDLL(None, use_errno=True)
program = libc.syscall(bpf, 5, ctypes.create_string_buffer(load.ljust(128, b"\0")), 128)
assert program > 0 and libc.syscall(bpf, 17, ctypes.create_string_buffer(struct.pack("QQ", 0, program)), 16) > 0
asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
assert libc.bind(asked.fileno(), struct.pack("H", 45).ljust(16, b"\0"), 16) == -1 and ctypes.get_errno() == 61
"#;
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| python_agrees(TRY))
}

fn python_agrees(text: &str) -> bool {
    Command::new("python3")
        .args(["-c", text])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn has_bpftool() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| run("bpftool", "version"))
}

/// True if a link or qdisc can be added in a new network namespace. `thing` holds the arguments of
/// `ip link add`, or of `tc` if it begins with `qdisc`.
fn can_add(thing: &str) -> bool {
    let attempt = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("new network namespace");
        if thing.starts_with("qdisc") {
            return run("tc", thing);
        }
        // With lo as their parent, ipvlan and vlan are refused even by a kernel that has them, so
        // they get a bridge.
        let parent = thing
            .contains("link lo")
            .then(|| run("ip", "link add parent type bridge"));
        parent.is_none_or(|made| made)
            && run(
                "ip",
                &format!("link add {}", thing.replace("link lo", "link parent")),
            )
    };
    std::thread::scope(|scope| scope.spawn(attempt).join())
        .expect("thread of a new network namespace")
}

fn run(tool: &str, args: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    Command::new(tool)
        .args(args.split(' '))
        .env("PATH", path)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Reports a skipped test on standard error and in the journal. The line goes past the test
/// harness, which would hide it.
pub fn tell_skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
    journal::skip(test, why);
}

/// Overwrites braid's feature cache: the kernel has the features `has` and lacks the features
/// `lacks`.
pub fn pretend(has: &[&str], lacks: &[&str]) {
    let release =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel says its release");
    let has = has.iter().map(|name| format!("{name}\n"));
    let lacks = lacks.iter().map(|name| format!("{name}\tnot here\n"));
    std::fs::create_dir_all("/run/braid").expect("a folder");
    let text = has.chain(lacks).fold(release, |text, line| text + &line);
    std::fs::write("/run/braid/kernel", text).expect("written");
}
