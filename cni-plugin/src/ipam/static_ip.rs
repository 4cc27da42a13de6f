//! The `static` IPAM: the addresses that the configuration names.
