//! Redirection of received packets to another link of the same namespace.

use super::state::{State, Verb, refuse_if};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Redirection of a link's received packets to another link of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// The link that receives the packets.
    pub from: LinkRef,
    /// The link that the packets leave by.
    pub to: LinkRef,
}

impl Redirect {
    fn is_there(&self, facts: &Facts) -> bool {
        let through = facts
            .shaped
            .get(&self.from)
            .and_then(|fact| fact.redirected_to);
        through.is_some() && through == facts.link(&self.to).map(|fact| fact.index)
    }
}

impl State for Redirect {
    fn ns(&self) -> Ns {
        self.from.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, preference) = (&self.from.name, preference(self.from.ns));
        if verb == Verb::Del {
            return write!(f, "tc filter del dev {from} ingress pref {preference}");
        }
        let filter = filter(self.from.ns);
        write!(
            f,
            "tc qdisc add dev {from} clsact; tc filter add dev {from} ingress pref {preference} bpf "
        )?;
        write!(f, "bytecode '{}", filter.len())?;
        for Instruction {
            code,
            jumps: [holds, fails],
            value,
        } in filter
        {
            write!(f, ",{code} {holds} {fails} {value}")?;
        }
        write!(f, "' action mirred egress redirect dev {}", self.to.name)
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Shaped(self.from.clone()), Need::Link(self.to.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let Self { from, to } = self;
        refuse_if(!self.is_there(facts), || {
            format!("packets received by {from} are not redirected to {to}")
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.from]
    }
}

/// An instruction of a classic BPF program (`struct sock_filter`).
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// The operation (`include/uapi/linux/bpf_common.h`).
    pub code: u16,
    /// Number of instructions to skip if the condition holds, and if it does not.
    pub jumps: [u8; 2],
    /// Value to compare or to return, or the offset to load from.
    pub value: u32,
}

/// Program that returns -1, which means that every packet matches.
const ALL: [Instruction; 1] = [Instruction {
    code: 0x06,
    jumps: [0, 0],
    value: u32::MAX,
}];

/// Program that loads the packet's protocol (`SKF_AD_PROTOCOL`), and returns 0 for ARP, otherwise
/// -1. So all packets except ARP match.
const ALL_BUT_ARP: [Instruction; 4] = [
    Instruction {
        code: 0x28,
        jumps: [0, 0],
        value: 0xffff_f000,
    },
    Instruction {
        code: 0x15,
        jumps: [0, 1],
        value: 0x0806,
    },
    Instruction {
        code: 0x06,
        jumps: [0, 0],
        value: 0,
    },
    Instruction {
        code: 0x06,
        jumps: [0, 0],
        value: u32::MAX,
    },
];

/// Returns the filter program that selects the packets to redirect to an ifb, for a link in `from`.
///
/// In the container's namespace it excludes ARP. A macvlan that comes up announces itself to all
/// its neighbours by ARP, and continues only after the last one has received the announcement. In
/// the host's namespace it selects all packets. They come from the container, which could otherwise
/// exceed its limit with ARP.
pub fn filter(from: Ns) -> &'static [Instruction] {
    match from {
        Ns::Host => &ALL,
        Ns::Pod => &ALL_BUT_ARP,
    }
}

/// Returns the preference of the redirect's filter on a link in `from`. The filter with the lowest
/// number runs first. On the host, the filter of host ports precedes the redirect.
pub fn preference(from: Ns) -> u32 {
    match from {
        Ns::Host => 2843,
        Ns::Pod => 1,
    }
}
