//! Every plugin on a real kernel, in namespaces of its own, judged by tools that braid did not write.

mod bridge;
mod conf;
mod ipvlan;
mod macvlan;
mod masquerade;
mod ports;
mod ptp;
mod reference;
