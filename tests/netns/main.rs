//! Every plugin on a real kernel, in namespaces of its own, judged by tools that braid did not write.

mod addresses;
mod bridge;
mod check;
mod conf;
mod del;
mod gc_status;
mod ipvlan;
mod loopback;
mod macvlan;
mod masquerade;
mod ports;
mod protocol;
mod ptp;
mod reference;
mod tuning;
mod versions;
