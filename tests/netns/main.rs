//! Every plugin on a real kernel, in namespaces of its own, judged by tools that braid did not write.

mod addresses;
mod bridge;
mod conf;
mod ipvlan;
mod loopback;
mod macvlan;
mod masquerade;
mod ports;
mod ptp;
mod reference;
mod tuning;
