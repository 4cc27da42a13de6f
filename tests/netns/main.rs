//! Every plugin on a real kernel, in namespaces of its own, judged by tools that braid did not write.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod addresses;
mod advertised;
mod bandwidth;
mod bridge;
mod check;
mod circles;
mod commands;
mod conf;
mod del;
mod delivery;
mod dummy;
mod errors;
mod firewall;
mod flush;
mod gc_status;
mod hostile;
mod hostport;
mod interop;
mod ipvlan;
mod legacy;
mod lists;
mod locks;
mod loopback;
mod macvlan;
mod masquerade;
mod modes;
mod mtu;
mod networks;
mod no_ipv6;
mod parallel;
mod pods;
mod ports;
mod protocol;
mod ptp;
mod reboot;
mod reference;
mod refused;
mod reused;
mod rollback;
mod steps;
mod tap;
mod tuning;
mod versions;
mod vlan;
