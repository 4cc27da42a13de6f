//! Rule expressions that braid uses.

use super::batch::Batch;
use super::ip::Ip;

/// First 32-bit register. The 16-byte register 1 has the same storage.
pub(crate) const REG_1: u32 = 8;
/// 32-bit register after the 16 bytes from [`REG_1`].
pub(crate) const REG_2: u32 = 12;
const REG_VERDICT: u32 = 0;
pub(super) const CMP_EQ: u32 = 0;
const CMP_NEQ: u32 = 1;
/// `IPS_SRC_NAT`: status bit of a connection with a rewritten source.
const SRC_NAT: u32 = 1 << 4;
/// `IPS_DST_NAT`: status bit of a connection with a rewritten destination.
const DST_NAT: u32 = 1 << 5;
const META_MARK: u32 = 3;
pub(crate) const META_IIFNAME: u32 = 6;
pub(crate) const META_OIFNAME: u32 = 7;
const META_L4PROTO: u32 = 16;
pub(crate) const LINK_HEADER: u32 = 0;
const TRANSPORT_HEADER: u32 = 2;

/// Verdict of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// The packet continues in the chains with later priorities.
    Accept,
    /// Returns to the calling chain.
    Return,
    /// The packet is dropped.
    Drop,
    /// Continues in a chain without returning.
    Goto(&'a str),
    /// Continues in a chain and returns at its end.
    Jump(&'a str),
}

impl Verdict<'_> {
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }
}

impl Batch {
    pub(crate) fn expression(&mut self, name: &str, data: impl FnOnce(&mut Self)) -> &mut Self {
        self.nest(1, |b| {
            b.text(1, name);
            b.nest(2, data);
        })
    }

    /// Loads a property of the packet, such as its protocol family, into the register `to`.
    pub(crate) fn meta(&mut self, key: u32, to: u32) -> &mut Self {
        self.expression("meta", |b| {
            b.number(1, to).number(2, key);
        })
    }

    /// Loads a property of the packet's connection, such as its status, into the register `to`.
    fn connection(&mut self, key: u32, to: u32) -> &mut Self {
        self.expression("ct", |b| {
            b.number(1, to).number(2, key);
        })
    }

    /// Loads `len` bytes of the packet into the register `to`.
    pub(crate) fn payload(&mut self, base: u32, offset: u32, len: u32, to: u32) -> &mut Self {
        self.expression("payload", |b| {
            b.number(1, to)
                .number(2, base)
                .number(3, offset)
                .number(4, len);
        })
    }

    /// Keeps only the bits in `mask` of the register.
    pub(crate) fn mask(&mut self, register: u32, mask: &[u8]) -> &mut Self {
        self.bitwise(register, mask, &vec![0; mask.len()])
    }

    /// Keeps only the bits in `mask` of the register, then flips the bits in `flip`.
    fn bitwise(&mut self, register: u32, mask: &[u8], flip: &[u8]) -> &mut Self {
        let len = u32::try_from(mask.len()).unwrap_or_default();
        self.expression("bitwise", |b| {
            b.number(1, register).number(2, register).number(3, len);
            for (kind, bits) in [(4, mask), (5, flip)] {
                b.nest(kind, |b| {
                    b.put(1, bits);
                });
            }
        })
    }

    /// Continues the rule only if the register has this value.
    pub(crate) fn equals(&mut self, register: u32, value: &[u8]) -> &mut Self {
        self.compare(register, CMP_EQ, value)
    }

    /// Continues the rule only if the key in the register is in the set or, if `inverted`, is not
    /// in the set.
    pub(crate) fn lookup(&mut self, set: &str, register: u32, inverted: bool) -> &mut Self {
        self.expression("lookup", |b| {
            b.text(1, set).number(2, register);
            if inverted {
                b.number(5, 1);
            }
        })
    }

    /// Applies the map's verdict for the key in the register.
    pub(crate) fn lookup_verdict(&mut self, map: &str, register: u32) -> &mut Self {
        self.expression("lookup", |b| {
            b.text(1, map).number(2, register).number(3, REG_VERDICT);
        })
    }

    /// Rewrites the source to the address of the egress link.
    pub(crate) fn masquerade(&mut self) -> &mut Self {
        self.expression("masq", |_| {})
    }

    /// Applies a verdict.
    pub(crate) fn decide(&mut self, verdict: Verdict<'_>) -> &mut Self {
        self.expression("immediate", |b| {
            b.number(1, REG_VERDICT);
            b.nest(2, |b| b.verdict(verdict));
        })
    }

    pub(crate) fn verdict(&mut self, verdict: Verdict<'_>) {
        self.nest(2, |b| {
            b.put(1, &verdict.code().to_be_bytes());
            if let Verdict::Goto(chain) | Verdict::Jump(chain) = verdict {
                b.text(2, chain);
            }
        });
    }

    /// Loads the transport protocol, padded to four bytes.
    pub(crate) fn l4proto(&mut self, to: u32) -> &mut Self {
        self.meta(META_L4PROTO, to)
    }

    /// Loads the destination port, padded to four bytes.
    pub(crate) fn destination_port(&mut self, to: u32) -> &mut Self {
        self.payload(TRANSPORT_HEADER, 2, 2, to)
    }

    /// Continues the rule only if the destination is an address of this host.
    pub(crate) fn for_this_host(&mut self, register: u32) -> &mut Self {
        const ADDRTYPE: u32 = 3;
        const DADDR: u32 = 1 << 1;
        const RTN_LOCAL: u32 = 2;
        self.expression("fib", |b| {
            b.number(1, register).number(2, ADDRTYPE).number(3, DADDR);
        });
        self.equals(register, &RTN_LOCAL.to_ne_bytes())
    }

    /// Continues the rule only if the connection's destination was rewritten.
    pub(crate) fn was_rewritten(&mut self, register: u32) -> &mut Self {
        self.has_status(register, DST_NAT)
    }

    /// Continues the rule only if the connection's source or destination was rewritten.
    pub(crate) fn is_translated(&mut self, register: u32) -> &mut Self {
        self.has_status(register, SRC_NAT | DST_NAT)
    }

    /// Continues the rule only if one of these status bits of the connection is set.
    fn has_status(&mut self, register: u32, bits: u32) -> &mut Self {
        const STATUS: u32 = 2;
        self.connection(STATUS, register)
            .mask(register, &bits.to_ne_bytes())
            .differs(register, &[0; 4])
    }

    /// Continues the rule only if the register does not have this value.
    pub(crate) fn differs(&mut self, register: u32, value: &[u8]) -> &mut Self {
        self.compare(register, CMP_NEQ, value)
    }

    /// Continues the rule only if the comparison of the register with `value` is true.
    pub(crate) fn compare(&mut self, register: u32, how: u32, value: &[u8]) -> &mut Self {
        self.expression("cmp", |b| {
            b.number(1, register).number(2, how);
            b.nest(3, |b| {
                b.put(1, value);
            });
        })
    }

    /// Continues the rule only if the packets exceed the limit. `rate` is in bytes per second,
    /// `burst` in bytes.
    pub(crate) fn limit(&mut self, rate: u64, burst: u32) -> &mut Self {
        const BYTES: u32 = 1;
        const OVER: u32 = 1;
        const SECOND: u64 = 1;
        self.expression("limit", |b| {
            b.put(1, &rate.to_be_bytes()).put(2, &SECOND.to_be_bytes());
            b.number(3, burst).number(4, BYTES).number(5, OVER);
        })
    }

    /// Loads the map's value for the key in `register` into the register `to`. Continues the rule
    /// only if the map has the key.
    pub(crate) fn lookup_value(&mut self, map: &str, register: u32, to: u32) -> &mut Self {
        self.expression("lookup", |b| {
            b.text(1, map).number(2, register).number(3, to);
        })
    }

    /// Rewrites the destination to the address and the port in the registers `addr` and `port`.
    pub(crate) fn destination_nat(&mut self, ip: Ip, addr: u32, port: u32) -> &mut Self {
        const DNAT: u32 = 1;
        self.expression("nat", |b| {
            b.number(1, DNAT)
                .number(2, ip as u32)
                .number(3, addr)
                .number(5, port);
        })
    }

    /// Continues the rule only if the packet belongs to an established connection, or is related
    /// to one.
    pub(crate) fn is_answer(&mut self, register: u32) -> &mut Self {
        const STATE: u32 = 0;
        const ESTABLISHED_OR_RELATED: u32 = 1 << 1 | 1 << 2;
        let bits = ESTABLISHED_OR_RELATED.to_ne_bytes();
        self.connection(STATE, register)
            .mask(register, &bits)
            .differs(register, &[0; 4])
    }

    /// Continues the rule only if the packet is in reply direction.
    pub(crate) fn goes_back(&mut self, register: u32) -> &mut Self {
        const DIRECTION: u32 = 1;
        const REPLY: u8 = 1;
        self.connection(DIRECTION, register)
            .equals(register, &[REPLY])
    }

    /// Continues the rule only if all these bits of the packet's mark are set.
    pub(crate) fn is_marked(&mut self, register: u32, bits: u32) -> &mut Self {
        self.meta(META_MARK, register)
            .mask(register, &bits.to_ne_bytes())
            .equals(register, &bits.to_ne_bytes())
    }

    /// Keeps the bits in `kept` of the packet's mark, and sets the bits in `set`.
    pub(crate) fn set_mark(&mut self, register: u32, kept: u32, set: u32) -> &mut Self {
        self.meta(META_MARK, register)
            .bitwise(register, &kept.to_ne_bytes(), &set.to_ne_bytes());
        self.expression("meta", |b| {
            b.number(2, META_MARK).number(3, register);
        })
    }

    /// Adds a comment in the form of iptables: `struct xt_comment_info`, which is a text of 256
    /// bytes (`include/uapi/linux/netfilter/xt_comment.h`).
    pub(crate) fn match_comment(&mut self, comment: &str) -> &mut Self {
        const LEN: usize = 256;
        let mut info = comment.as_bytes().to_vec();
        info.truncate(LEN - 1);
        info.resize(LEN, 0);
        self.expression("match", |b| {
            b.text(1, "comment").number(2, 0).put(3, &info);
        })
    }

    /// Counts packets and bytes, like iptables rules.
    pub(crate) fn count(&mut self) -> &mut Self {
        self.expression("counter", |_| {})
    }
}
