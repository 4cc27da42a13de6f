//! Instructions of the programs, built by `cargo xtask ebpf`.

/// Shapes all packets of an attachment.
pub(crate) const SHAPE: &[u8] = include_bytes!("shape.insns");
/// Shapes some packets of an attachment, selected by subnet.
pub(crate) const SHAPE_SUBNETS: &[u8] = include_bytes!("shape_subnets.insns");
/// Redirects host ports at ingress.
pub(crate) const HP_IN: &[u8] = include_bytes!("hp_in.insns");
/// Redirects host ports at egress.
pub(crate) const HP_OUT: &[u8] = include_bytes!("hp_out.insns");
/// Redirects host ports at `[::1]` for sockets that call connect(2).
pub(crate) const CONNECT6: &[u8] = include_bytes!("connect6.insns");
/// Redirects host ports at `[::1]` for unconnected sockets that send.
pub(crate) const SENDMSG6: &[u8] = include_bytes!("sendmsg6.insns");
/// Restores the source address of replies from redirected ports for sockets that receive.
pub(crate) const RECVMSG6: &[u8] = include_bytes!("recvmsg6.insns");
/// Restores the peer's address of redirected connections for getpeername(2).
pub(crate) const GETPEERNAME6: &[u8] = include_bytes!("getpeername6.insns");
/// Refuses bind(2) for `AF_XDP` sockets.
pub(crate) const XSK_BIND: &[u8] = include_bytes!("xsk_bind.insns");
