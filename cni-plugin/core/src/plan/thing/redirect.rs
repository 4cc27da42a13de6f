//! The way of what comes in at one link out through another of the same namespace.

use super::{LinkRef, State, Verb, refuse_if};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sends all that comes in from one link out through another of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// The link that packets come in by.
    pub from: LinkRef,
    /// The link that they leave by.
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
            format!("what comes in from {from} does not leave through {to}")
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.from]
    }
}

/// One of a classic program (`struct sock_filter`).
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// The operation (`include/uapi/linux/bpf_common.h`).
    pub code: u16,
    /// By how many instructions to jump where the condition holds, and where it does not.
    pub jumps: [u8; 2],
    /// The value that it compares with or returns, or the place that it loads from.
    pub value: u32,
}

/// Returns -1, which is "matches".
const ALL: [Instruction; 1] = [Instruction {
    code: 0x06,
    jumps: [0, 0],
    value: u32::MAX,
}];

/// Loads the packet's protocol (`SKF_AD_PROTOCOL`), and returns 0 for ARP, otherwise -1.
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

/// The filter of the packets that an ifb gets, of those that come in by a link of that namespace.
/// On a container's own link it leaves out ARP. A link that comes up on a macvlan tells all its
/// neighbours, and goes on when the last one has taken that in. On the host's end of a link it
/// takes all: they come from the container, which could send past its limit by ARP.
pub fn filter(from: Ns) -> &'static [Instruction] {
    match from {
        Ns::Host => &ALL,
        Ns::Pod => &ALL_BUT_ARP,
    }
}

/// The preference of the filter among those of the link: the lower number is asked first. On the
/// host's side the filter of host ports goes before.
pub fn preference(from: Ns) -> u32 {
    match from {
        Ns::Host => 2843,
        Ns::Pod => 1,
    }
}
