//! Requests for queues and filters, sent together.

use super::loaded::Loaded;
use super::program::NAME;
use crate::Cause;
use crate::effect::redirect;
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, EXCL, KernelError, REPLACE, Socket};
use crate::sys::rtnl::tc::{self, Class};
use braid_core::name::{Hook, Ns};
use braid_core::plan::queue_fallback::Queue;
use braid_core::plan::thing::Shaping;
use braid_core::plan::thing::shaping::{Shaper, Toward};
use braid_ebpf_types::shape::{CLASS_FREE, CLASS_SPARSE, FROM_POD, TO_POD};
use nix::errno::Errno;
use std::os::fd::AsRawFd;

/// Horizon of `fq` in microseconds. `fq` drops packets beyond its horizon. This horizon is far
/// beyond the program's horizon, so no packet exceeds it.
const FQ_HORIZON_US: u64 = 10_000_000;
const CLASS_NUMBER: u32 = 0xffff;
/// Number of the class for packets that no filter assigns to a class.
const BULK: u32 = 0x12;
/// Rate in bytes per second, more than any link transmits.
const UNBOUNDED: u64 = 1 << 40;
/// Number of the class that is the parent of the two other classes.
pub(super) const CLASS_ALL: u32 = 1;

/// Queues and filters on the links of one namespace.
pub(super) struct Side<'a> {
    pub(super) ns: Ns,
    /// Queues by link index.
    pub(super) queues: Vec<(u32, &'a Shaper)>,
    /// Filters that run the program: link index, hook and place.
    pub(super) filters: Vec<(u32, Hook, u32)>,
}

impl<'a> Side<'a> {
    pub(super) fn of(kernel: &mut Kernel, shaping: &'a Shaping, ns: Ns) -> Result<Self, Cause> {
        let mut side = Self {
            ns,
            queues: Vec::new(),
            filters: Vec::new(),
        };
        for shaper in &shaping.shapers {
            if shaper.at.ns != ns {
                continue;
            }
            let index = kernel.index(&shaper.at)?;
            side.queues.push((index, shaper));
            if shaper.queue.has_program() {
                let place = match shaper.toward {
                    Toward::Pod => TO_POD,
                    Toward::Network => FROM_POD,
                };
                side.filters.push((index, Hook::Egress, place));
            }
        }
        Ok(side)
    }
}

/// Requests for one namespace, sent together.
pub(in crate::effect) struct Batch<'a> {
    socket: &'a mut Socket,
    /// Positions of the requests that create a clsact, with their links. These requests also
    /// succeed if a clsact exists.
    clsacts: Vec<(usize, u32)>,
}

impl<'a> Batch<'a> {
    pub(in crate::effect) fn on(socket: &'a mut Socket) -> Self {
        Self {
            socket,
            clsacts: Vec::new(),
        }
    }

    pub(in crate::effect) fn clsact(&mut self, index: u32) {
        if self.clsacts.iter().any(|(_, link)| *link == index) {
            return;
        }
        self.clsacts.push((self.socket.queued(), index));
        self.socket
            .push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(index, out));
    }

    pub(in crate::effect) fn redirect(&mut self, ns: Ns, from: u32, to: u32) {
        self.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| {
            redirect::request(ns, from, to, out);
        });
    }

    /// Adds the clsacts for the filters.
    pub(super) fn clsacts(&mut self, side: &Side<'_>) {
        for (index, ..) in &side.filters {
            self.clsact(*index);
        }
    }

    /// Adds the filters and the queues.
    pub(super) fn fill(&mut self, side: &Side<'_>, program: Option<&Loaded>, shaping: &Shaping) {
        for (index, hook, place) in &side.filters {
            let Some(program) = program else { break };
            self.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| {
                tc::program(
                    *index,
                    *hook,
                    program.as_raw_fd(),
                    NAME,
                    program.class(*place),
                    out,
                );
            });
        }
        for (index, shaper) in &side.queues {
            self.queue(*index, shaper, shaping.subnets.is_some());
        }
    }

    /// Changes the parameters of a queue that exists.
    pub(super) fn retune(&mut self, index: u32, shaper: &Shaper) {
        match shaper.queue {
            // A request for a queue of the same kind changes it.
            Queue::Fq | Queue::TbfPfifoFast | Queue::TbfFqCodel | Queue::Tbf => {
                self.queue(index, shaper, false);
            }
            Queue::Htb => {
                for class in classes(shaper, CLASS_SPARSE & CLASS_NUMBER, BULK) {
                    self.socket
                        .push(tc::NEWTCLASS, 0, |out| tc::class(index, class, out));
                }
                self.socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::bfifo(index, BULK, most_waiting(shaper), out);
                });
            }
        }
    }

    fn queue(&mut self, index: u32, shaper: &Shaper, has_free: bool) {
        let socket = &mut *self.socket;
        match shaper.queue {
            Queue::Fq => {
                let ahead = shaper.longest_ns().saturating_add(shaper.clock_burst_ns()) / 1000;
                let horizon =
                    u32::try_from(FQ_HORIZON_US.max(ahead.saturating_mul(2))).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::fq(index, horizon, shaper.most_packets(), out);
                });
            }
            Queue::Htb => {
                let (sparse, bulk) = (CLASS_SPARSE & CLASS_NUMBER, BULK);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::htb(index, bulk, out);
                });
                let mut add = |class: Class| {
                    socket.push(tc::NEWTCLASS, CREATE | EXCL, |out| {
                        tc::class(index, class, out);
                    });
                };
                for class in classes(shaper, sparse, bulk) {
                    add(class);
                }
                if has_free {
                    add(free());
                }
                socket.push(tc::NEWQDISC, CREATE | EXCL, |out| {
                    tc::bfifo(index, bulk, most_waiting(shaper), out);
                });
            }
            Queue::TbfPfifoFast => {
                let (rate, bucket) = (shaper.rate.bps / 8, shaper.bucket_of_large());
                // The limit 0 applies to the default inner queue, which the next request replaces.
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::tbf(index, rate, bucket, 0, out);
                });
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::pfifo_fast(index, out);
                });
            }
            Queue::TbfFqCodel | Queue::Tbf => {
                let (rate, bucket, limit) =
                    (shaper.rate.bps / 8, shaper.bucket(), shaper.bucket_queue());
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::tbf(index, rate, bucket, limit, out);
                });
            }
        }
        if shaper.queue == Queue::TbfFqCodel {
            let target_us = u32::try_from(shaper.codel_target_ns() / 1000).unwrap_or(u32::MAX);
            socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                tc::fq_codel(index, target_us, out);
            });
        }
    }

    /// Sends the requests. Returns the first error, except `EEXIST` for a clsact.
    pub(in crate::effect) fn send(self) -> Result<(), KernelError> {
        let outcomes = self.socket.flush()?;
        for (position, outcome) in outcomes.into_iter().enumerate() {
            let Some(err) = outcome.error else {
                continue;
            };
            let is_clsact = self.clsacts.iter().any(|(clsact, _)| *clsact == position);
            if !is_clsact || err.errno != Errno::EEXIST {
                return Err(err);
            }
        }
        Ok(())
    }
}

/// Builds three classes. The parent has the whole rate. The class for sparse flows is guaranteed
/// half of the rate. The class for bulk flows gets the rest, so it has a minimal rate and no limit.
/// With a higher rate or a limit, the kernel's timer would fire for that class and for its parent,
/// a moment apart.
fn classes(shaper: &Shaper, sparse: u32, bulk: u32) -> [Class; 3] {
    let rate = shaper.rate.bps / 8;
    let all = Class {
        parent: 0,
        number: CLASS_ALL,
        rate,
        ceil: rate,
        burst_ns: shaper.rate.burst_ns(),
        prio: 0,
    };
    let sparse = Class {
        parent: CLASS_ALL,
        number: sparse,
        rate: (rate / 2).max(1),
        ..all
    };
    let bulk = Class {
        parent: CLASS_ALL,
        number: bulk,
        rate: 1,
        ceil: UNBOUNDED,
        prio: 1,
        ..all
    };
    [all, sparse, bulk]
}

/// Returns the number of bytes that may wait in the queue of bulk flows.
fn most_waiting(shaper: &Shaper) -> u32 {
    let bytes = shaper.rate.bytes_in(2 * shaper.longest_ns() / 1_000_000);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Class of traffic that is not shaped.
fn free() -> Class {
    const BURST_NS: u64 = 100_000_000;
    let number = CLASS_FREE & CLASS_NUMBER;
    Class {
        parent: 0,
        number,
        rate: UNBOUNDED,
        ceil: UNBOUNDED,
        burst_ns: BURST_NS,
        prio: 0,
    }
}
