//! Encoding of an nf_tables transaction: messages and attributes.
//!
//! Numbers are from `include/uapi/linux/netfilter/nf_tables.h`. All integers are big-endian.

use super::expression::Verdict;
use crate::sys::netlink::{KernelError, NESTED, Socket, attr, begin, end, nest, request};
use braid_core::name::IfName;
use std::borrow::Cow;

pub(crate) const SUBSYS: u16 = 10 << 8;
const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;
const DELRULE: u16 = 8;
const NEWSET: u16 = 9;
pub(super) const NEWSETELEM: u16 = 12;
const DELSETELEM: u16 = 14;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const ACK: u16 = 0x4;
const EXCL: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// `NFNL_SUBSYS_NFTABLES`, the resource id of a batch.
const NFTABLES: u16 = 10;
/// `NFT_DATA_VERDICT`.
const DATA_VERDICT: u32 = 0xffff_ff00;
const SET_INTERVAL: u32 = 0x4;
const SET_MAP: u32 = 0x8;
/// Hooks of base chains, `enum nf_inet_hooks` (`include/uapi/linux/netfilter.h`).
pub(crate) const HOOK_PREROUTING: u32 = 0;
pub(crate) const HOOK_INPUT: u32 = 1;
pub(crate) const HOOK_FORWARD: u32 = 2;
pub(crate) const HOOK_OUTPUT: u32 = 3;
pub(crate) const HOOK_POSTROUTING: u32 = 4;

/// Family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// Packets of one link.
    Netdev = 5,
    /// Frames on a bridge.
    Bridge = 7,
    /// IPv6.
    Ip6 = 10,
}

impl Family {
    /// Returns the family's name in `nft`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Netdev => "netdev",
            Self::Bridge => "bridge",
            Self::Ip6 => "ip6",
        }
    }
}

/// Position of a new rule in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulePosition {
    First,
    Last,
    /// Directly before the rule with this handle.
    Before(u64),
}

/// Value of a map element.
#[derive(Debug, Clone)]
pub(crate) enum Means {
    /// No value: an element of a set.
    Nothing,
    /// Verdict: goto this chain.
    Goto(String),
    /// Verdict: jump to this chain.
    Jump(String),
    /// Raw bytes, in a map from keys to values.
    Value(Vec<u8>),
}

/// A part of a set's key: type number in `nft`, and length in bytes, padded to four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) kind: u32,
    pub(crate) len: u32,
}

/// `ether_addr`.
pub(crate) const ETHER_ADDR: Part = Part { kind: 9, len: 8 };
/// `inet_proto`.
pub(crate) const PROTO: Part = Part { kind: 12, len: 4 };
/// `inet_service`.
pub(crate) const SERVICE: Part = Part { kind: 13, len: 4 };
/// `ifname`. Its bytes are in host byte order. `nft` shows a key with this part alone correctly
/// only if the set's user data states that byte order.
pub(crate) const IFNAME: Part = Part { kind: 41, len: 16 };

/// Contents of a set.
#[derive(Debug, Clone, Copy)]
enum SetKind {
    /// Keys.
    Keys,
    /// Intervals of keys.
    Intervals,
    /// Keys, each with a value of this type.
    Map(Part),
}

/// Computes type and length of a concatenation: six bits of the type number for each part.
fn concatenated(parts: &[Part]) -> Part {
    let mut whole = Part { kind: 0, len: 0 };
    for part in parts {
        whole.kind = whole.kind << 6 | part.kind;
        whole.len += part.len;
    }
    whole
}

/// A transaction: all of it is committed, or nothing.
pub(crate) struct Batch {
    bytes: Vec<u8>,
    family: Family,
    table: Cow<'static, str>,
    seq: u32,
    start: usize,
}

impl Batch {
    pub(crate) fn new(family: Family, table: impl Into<Cow<'static, str>>) -> Self {
        let mut batch = Self {
            bytes: Vec::with_capacity(1024),
            family,
            table: table.into(),
            seq: 0,
            start: 0,
        };
        batch.message(BATCH_BEGIN, 0, NFTABLES, |_| {});
        batch
    }

    /// Builds a transaction; `fill` adds its changes.
    pub(crate) fn of(family: Family, table: &'static str, fill: impl FnOnce(&mut Self)) -> Self {
        let mut batch = Self::new(family, table);
        fill(&mut batch);
        batch
    }

    /// Commits the transaction.
    pub(crate) fn send(mut self, socket: &mut Socket) -> Result<(), KernelError> {
        // The acknowledgement is requested for the last change: BATCH_END itself is acknowledged
        // only since Linux 6.10.
        let last_seq = self.seq;
        if let Some(flags) = self.bytes.get_mut(self.start + 6) {
            *flags |= u8::try_from(ACK).unwrap_or_default();
        }
        self.message(BATCH_END, 0, NFTABLES, |_| {});
        socket.transact(&self.bytes, last_seq)
    }

    fn message(&mut self, kind: u16, flags: u16, resource: u16, body: impl FnOnce(&mut Self)) {
        self.seq += 1;
        self.start = self.bytes.len();
        self.bytes
            .extend_from_slice(&request(kind, flags, self.seq));
        let [high, low] = resource.to_be_bytes();
        self.bytes.extend_from_slice(&[
            if resource == 0 { self.family as u8 } else { 0 },
            0,
            high,
            low,
        ]);
        let start = self.start;
        body(self);
        let len = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// Adds a message that changes the table or its contents.
    fn change(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Self)) -> &mut Self {
        let table = self.table.clone();
        self.message(SUBSYS | kind, flags, 0, |b| body(b.text(1, &table)));
        self
    }

    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        attr(kind, value, &mut self.bytes);
        self
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        nest(kind, &mut self.bytes, |out| {
            out.extend_from_slice(value.as_bytes());
            out.push(0);
        });
        self
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    pub(crate) fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) -> &mut Self {
        let start = begin(kind | NESTED, &mut self.bytes);
        body(self);
        end(start, &mut self.bytes);
        self
    }

    /// Adds the table if missing.
    pub(crate) fn table(&mut self) -> &mut Self {
        self.change(NEWTABLE, CREATE, |_| {})
    }

    /// Deletes the table with its contents.
    pub(crate) fn del_table(&mut self) -> &mut Self {
        self.change(DELTABLE, 0, |_| {})
    }

    /// Adds a base chain at a hook, with a priority. The chain must be new, so that its rules are
    /// added only once.
    pub(crate) fn base_chain(
        &mut self,
        name: &str,
        kind: &str,
        hook: u32,
        priority: i32,
    ) -> &mut Self {
        self.new_base_chain(CREATE | EXCL, name, kind, hook, priority, None)
    }

    /// Adds a base chain if missing.
    pub(crate) fn shared_base_chain(
        &mut self,
        name: &str,
        kind: &str,
        hook: u32,
        priority: i32,
    ) -> &mut Self {
        self.new_base_chain(CREATE, name, kind, hook, priority, None)
    }

    /// Adds a filter base chain at a hook of one link. It must be new.
    pub(crate) fn device_chain(
        &mut self,
        name: &str,
        hook: u32,
        priority: i32,
        device: &IfName,
    ) -> &mut Self {
        self.new_base_chain(CREATE | EXCL, name, "filter", hook, priority, Some(device))
    }

    fn new_base_chain(
        &mut self,
        flags: u16,
        name: &str,
        kind: &str,
        hook: u32,
        priority: i32,
        device: Option<&IfName>,
    ) -> &mut Self {
        self.change(NEWCHAIN, flags, |b| {
            b.text(3, name);
            b.nest(4, |b| {
                b.number(1, hook).put(2, &priority.to_be_bytes());
                if let Some(device) = device {
                    b.text(3, device.as_str());
                }
            });
            b.text(7, kind);
        })
    }

    /// Adds a chain without a hook. It must be new.
    pub(crate) fn chain(&mut self, name: &str) -> &mut Self {
        self.change(NEWCHAIN, CREATE | EXCL, |b| {
            b.text(3, name);
        })
    }

    /// Adds a chain without a hook if missing.
    pub(crate) fn shared_chain(&mut self, name: &str) -> &mut Self {
        self.change(NEWCHAIN, CREATE, |b| {
            b.text(3, name);
        })
    }

    /// Adds a chain if missing, and deletes its rules.
    pub(crate) fn empty_chain(&mut self, name: &str) -> &mut Self {
        self.shared_chain(name).flush_chain(name)
    }

    /// Adds a set. It must be new.
    pub(crate) fn set(&mut self, name: &str, key: &[Part]) -> &mut Self {
        self.new_set(EXCL, name, key, SetKind::Keys)
    }

    /// Adds a set of intervals. It must be new.
    pub(crate) fn interval_set(&mut self, name: &str, key: &[Part]) -> &mut Self {
        self.new_set(EXCL, name, key, SetKind::Intervals)
    }

    /// Adds a set if missing.
    pub(crate) fn shared_set(&mut self, name: &str, key: &[Part]) -> &mut Self {
        self.new_set(0, name, key, SetKind::Keys)
    }

    /// Adds a map from keys to verdicts. It must be new.
    pub(crate) fn verdict_map(&mut self, name: &str, key: &[Part]) -> &mut Self {
        self.new_set(
            EXCL,
            name,
            key,
            SetKind::Map(Part {
                kind: DATA_VERDICT,
                len: 0,
            }),
        )
    }

    /// Adds a map from keys to values. It must be new.
    pub(crate) fn value_map(&mut self, name: &str, key: &[Part], value: &[Part]) -> &mut Self {
        self.new_set(EXCL, name, key, SetKind::Map(concatenated(value)))
    }

    fn new_set(&mut self, flags: u16, name: &str, key: &[Part], set: SetKind) -> &mut Self {
        let (id, Part { kind, len }) = (self.seq, concatenated(key));
        let set_flags = match set {
            SetKind::Keys => 0,
            SetKind::Intervals => SET_INTERVAL,
            SetKind::Map(_) => SET_MAP,
        };
        self.change(NEWSET, CREATE | flags, |b| {
            b.text(2, name)
                .number(3, set_flags)
                .number(4, kind)
                .number(5, len);
            if let SetKind::Map(Part { kind, len }) = set {
                b.number(6, kind).number(7, len);
            }
            b.number(10, id);
            if *key == [IFNAME] {
                // Type 0 is the key's byte order, four bytes long. 1 means host byte order
                // (libnftnl's udata).
                let mut userdata = vec![0, 4];
                userdata.extend(1u32.to_ne_bytes());
                b.put(13, &userdata);
            }
        })
    }

    /// Adds an element with a comment. The element must be new.
    ///
    /// The request has the flag `EXCL`. Without this flag, the kernel would accept an element that
    /// exists already, and keep the old comment. The comment names the owner, so the owner would be
    /// wrong.
    pub(crate) fn add_element(
        &mut self,
        set: &str,
        key: &[u8],
        means: &Means,
        comment: &str,
    ) -> &mut Self {
        self.element(NEWSETELEM, CREATE | EXCL, set, key, |b| {
            let verdict = match means {
                Means::Goto(chain) => Some(Verdict::Goto(chain)),
                Means::Jump(chain) => Some(Verdict::Jump(chain)),
                Means::Nothing | Means::Value(_) => None,
            };
            if let Some(verdict) = verdict {
                b.nest(2, |b| b.verdict(verdict));
            }
            if let Means::Value(value) = means {
                b.nest(2, |b| {
                    b.put(1, value);
                });
            }
            if !comment.is_empty() {
                b.comment(6, comment);
            }
        })
    }

    /// Writes user data of type 0, the comment: its length with the NUL, then the text (libnftnl's
    /// udata).
    fn comment(&mut self, kind: u16, comment: &str) {
        let mut userdata = vec![0, u8::try_from(comment.len() + 1).unwrap_or(u8::MAX)];
        userdata.extend(comment.as_bytes());
        userdata.push(0);
        self.put(kind, &userdata);
    }

    /// Deletes an element. It must exist.
    pub(crate) fn del_element(&mut self, set: &str, key: &[u8]) -> &mut Self {
        self.element(DELSETELEM, 0, set, key, |_| {})
    }

    pub(super) fn element(
        &mut self,
        kind: u16,
        flags: u16,
        set: &str,
        key: &[u8],
        more: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.change(kind, flags, |b| {
            b.text(2, set);
            b.nest(3, |b| {
                b.nest(1, |b| {
                    b.nest(1, |b| {
                        b.put(1, key);
                    });
                    more(b);
                });
            });
        })
    }

    /// Adds a rule at the end of a chain.
    pub(crate) fn rule(&mut self, chain: &str, expressions: impl FnOnce(&mut Self)) -> &mut Self {
        self.new_rule(chain, RulePosition::Last, None, expressions)
    }

    /// Adds a rule at this position of the chain.
    pub(crate) fn rule_at(
        &mut self,
        chain: &str,
        place: RulePosition,
        expressions: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.new_rule(chain, place, None, expressions)
    }

    /// Adds a rule with a comment at this position of the chain.
    pub(crate) fn commented_rule(
        &mut self,
        chain: &str,
        place: RulePosition,
        comment: &str,
        expressions: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.new_rule(chain, place, Some(comment), expressions)
    }

    fn new_rule(
        &mut self,
        chain: &str,
        place: RulePosition,
        comment: Option<&str>,
        expressions: impl FnOnce(&mut Self),
    ) -> &mut Self {
        let flags = if place == RulePosition::Last {
            CREATE | APPEND
        } else {
            CREATE
        };
        self.change(NEWRULE, flags, |b| {
            b.text(2, chain);
            b.nest(4, expressions);
            if let RulePosition::Before(handle) = place {
                b.put(6, &handle.to_be_bytes());
            }
            if let Some(comment) = comment {
                b.comment(7, comment);
            }
        })
    }

    /// Deletes a rule by its handle.
    pub(crate) fn del_rule(&mut self, chain: &str, handle: u64) -> &mut Self {
        self.change(DELRULE, 0, |b| {
            b.text(2, chain).put(3, &handle.to_be_bytes());
        })
    }

    /// Deletes the rules of a chain.
    pub(crate) fn flush_chain(&mut self, chain: &str) -> &mut Self {
        self.change(DELRULE, 0, |b| {
            b.text(2, chain);
        })
    }

    /// Deletes an empty chain.
    pub(crate) fn del_chain(&mut self, chain: &str) -> &mut Self {
        self.change(DELCHAIN, 0, |b| {
            b.text(3, chain);
        })
    }
}
