//! Redirects: filters that send ingress packets of one link out through another link.

use super::Effect;
use super::host_ports::ebpf;
use super::shaping::{self, batch::Batch};
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::netlink::{attr, find, nest};
use crate::sys::rtnl::tc::{TCA_OPTIONS, bpf_options, filter_at, numbers};
use crate::sys::rtnl::{text_of, u32_of};
use braid_core::name::{Hook, Ns};
use braid_core::plan::thing::redirect::{self as thing, Instruction};
use braid_core::plan::thing::{LinkRef, Redirect};

impl Effect for Redirect {
    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        add(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        shaping::detach(kernel, &self.from, |index, out| {
            filter(self.from.ns, index, out);
        })
    }

    fn is_several(&self) -> bool {
        true
    }
}

/// Adds the filter that sends all ingress packets of `from` out through `to`.
fn add(kernel: &mut Kernel, Redirect { from, to }: &Redirect) -> Result<(), Cause> {
    let (index, to) = (kernel.index(from)?, kernel.index(to)?);
    let mut batch = Batch::on(kernel.route(from.ns)?);
    batch.clsact(index);
    batch.redirect(from.ns, index, to);
    batch.send()?;
    led(kernel, from)
}

/// Tells the host-port programs on host link `from` that its ingress traffic is redirected, so that
/// they do not bypass the shaping queue behind the redirect. Does nothing for a link in the pod.
pub(super) fn led(kernel: &mut Kernel, from: &LinkRef) -> Result<(), Cause> {
    if from.ns == Ns::Pod {
        return Ok(());
    }
    let index = kernel.index(from)?;
    ebpf::shape(kernel, index)
}

/// Writes the body of `RTM_NEWTFILTER`: ingress packets leave through the link with index `to`, in
/// the same namespace. The filter is a classic BPF program, since not every kernel has
/// `cls_matchall`.
pub(crate) fn request(ns: Ns, index: u32, to: u32, out: &mut Vec<u8>) {
    const ACT: u16 = 1;
    const OPS_LEN: u16 = 4;
    const OPS: u16 = 5;
    let program = thing::filter(ns);
    filter(ns, index, out);
    nest(TCA_OPTIONS, out, |out| {
        attr(
            OPS_LEN,
            &u16::try_from(program.len())
                .unwrap_or(u16::MAX)
                .to_ne_bytes(),
            out,
        );
        nest(OPS, out, |out| {
            for insn in program {
                instruction(*insn, out);
            }
        });
        nest(ACT, out, |out| nest(1, out, |out| mirred(to, out)));
    });
}

/// Writes a `struct sock_filter`.
fn instruction(of: Instruction, out: &mut Vec<u8>) {
    out.extend_from_slice(&of.code.to_ne_bytes());
    out.extend_from_slice(&of.jumps);
    out.extend_from_slice(&of.value.to_ne_bytes());
}

/// Writes an action that takes a packet and sends it through another link
/// (`include/uapi/linux/tc_act/tc_mirred.h`).
fn mirred(to: u32, out: &mut Vec<u8>) {
    const ACT_KIND: u16 = 1;
    const ACT_OPTIONS: u16 = 2;
    const PARMS: u16 = 2;
    const STOLEN: u32 = 4;
    const EGRESS_REDIR: u32 = 1;
    attr(ACT_KIND, b"mirred\0", out);
    nest(ACT_OPTIONS, out, |out| {
        nest(PARMS, out, |out| {
            numbers([0, 0, STOLEN, 0, 0, EGRESS_REDIR, to], out);
        });
    });
}

/// Writes the body of `RTM_DELTFILTER` for a redirect.
fn filter(ns: Ns, index: u32, out: &mut Vec<u8>) {
    filter_at(thing::preference(ns), index, Hook::Ingress, out);
}

/// Parses `RTM_NEWTFILTER` and returns the index of the link to which the filter redirects packets.
/// Returns `None` if the filter's first action is not `mirred`.
pub(super) fn parse(body: &[u8]) -> Option<u32> {
    const ACT: u16 = 1;
    let action = find(1, find(ACT, bpf_options(body)?)?)?;
    if text_of(find(1, action)?) != "mirred" {
        return None;
    }
    let parms = find(2, find(2, action)?)?;
    u32_of(parms.get(24..28)?)
}
