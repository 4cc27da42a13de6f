//! The fence: all system calls and all `unsafe` but those of `entry/` are here.
//!
//! ```text
//!  netns  ─ open, compare, run inside     netlink ─ one blocking socket: batch, ack, dump
//!  rtnl   ─ links, addresses, routes      nft     ─ masquerading, host ports, hardware addresses
//!  sysctl ─ /proc/sys of a namespace      release ─ which kernel this is
//!  bpf    ─ the bpf system call           carrier ─ whether a link is up
//!  conntrack ─ connections to forget      cgroup ─ the root of cgroup2
//!  writers ─ who has a file open for writing          iptables ─ tables of the older iptables
//!  lock   ─ waiting for one, with a bound             executable ─ the file that runs
//!  stderr ─ sentences for the operator                private ─ folders and files of root alone
//!  tap ─ what /dev/net/tun makes          packet ─ sockets of a DHCP client
//!  events ─ waiting for many descriptors              activation ─ a socket of systemd
//!  birth ─ creation time of a file        boot ─ the id of this boot
//!  outputs ─ both outputs of a program
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
pub mod rtnl;
pub mod stderr;
pub mod sysctl;
pub mod tap;
