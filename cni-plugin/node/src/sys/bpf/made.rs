//! Instructions of the programs, made by `cargo xtask ebpf`.

/// Shapes all packets of an attachment.
pub(crate) const SHAPE: &[u8] = include_bytes!("shape.insns");
/// Shapes a part of them, by subnet.
pub(crate) const SHAPE_SUBNETS: &[u8] = include_bytes!("shape_subnets.insns");
/// Host ports, of what comes in.
pub(crate) const HP_IN: &[u8] = include_bytes!("hp_in.insns");
/// Host ports, of what goes out.
pub(crate) const HP_OUT: &[u8] = include_bytes!("hp_out.insns");
/// Host ports at `[::1]`, of sockets that connect.
pub(crate) const CONNECT6: &[u8] = include_bytes!("connect6.insns");
/// The same of those that send without.
pub(crate) const SENDMSG6: &[u8] = include_bytes!("sendmsg6.insns");
/// The same of those that receive.
pub(crate) const RECVMSG6: &[u8] = include_bytes!("recvmsg6.insns");
/// The same of those that ask for their peer.
pub(crate) const GETPEERNAME6: &[u8] = include_bytes!("getpeername6.insns");
/// Refuses `AF_XDP` sockets.
pub(crate) const XSK_BIND: &[u8] = include_bytes!("xsk_bind.insns");
