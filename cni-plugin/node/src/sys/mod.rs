//! System calls. All `unsafe` code except in `entry/` is here.
//!
//! ```text
//! netns  ─ open, compare, run inside     netlink ─ one blocking socket: batch, ack, dump
//! rtnl   ─ links, addresses, routes      nft     ─ masquerading, host ports, hardware addresses
//! sysctl ─ /proc/sys of a namespace      release ─ version of the kernel
//! bpf    ─ the bpf system call           carrier ─ operational state of a link
//! conntrack ─ deletion of connections    cgroup  ─ the root of cgroup2
//! exec_busy ─ files open for writing     iptables ─ tables of legacy iptables
//! lock   ─ file locks with a timeout     executable ─ the file of this program
//! kernel_error ─ errno and message       private ─ folders and files of root only
//! replace ─ files replaced by rename
//! tap    ─ taps from /dev/net/tun        packet  ─ sockets of a DHCP client
//! events ─ waiting for descriptors       activation ─ a socket from systemd
//! birth  ─ creation time of a file       boot    ─ the id of this boot
//! outputs ─ both outputs of a program    dbus    ─ calls on the system bus
//! firewalld ─ addresses in its zones     free_space ─ test for a full file system
//! ```

pub mod activation;
pub mod birth;
pub mod boot;
pub mod bpf;
pub mod carrier;
pub mod cgroup;
pub mod conntrack;
pub mod dbus;
pub mod events;
pub mod exec_busy;
pub mod executable;
pub mod firewalld;
pub mod free_space;
pub mod iptables;
mod kernel_error;
pub mod lock;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod outputs;
pub mod packet;
pub mod private;
pub mod release;
pub mod replace;
pub mod rtnl;
pub mod sysctl;
pub mod tap;
