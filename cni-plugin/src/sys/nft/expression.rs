//! Expressions that port mapping uses beyond those of [`super::batch`].

use super::batch::Batch;

const CMP_NEQ: u32 = 1;
const META_L4PROTO: u32 = 16;
const TRANSPORT_HEADER: u32 = 2;

/// Which family an address is of, as nf_tables numbers it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nfproto {
    /// IPv4.
    V4 = 2,
    /// IPv6.
    V6 = 10,
}

impl Batch {
    /// Loads the protocol above IP, padded to four bytes.
    pub(super) fn l4proto(&mut self, to: u32) -> &mut Self {
        self.meta(META_L4PROTO, to)
    }

    /// Loads the destination port, padded to four bytes.
    pub(super) fn destination_port(&mut self, to: u32) -> &mut Self {
        self.payload(TRANSPORT_HEADER, 2, 2, to)
    }

    /// Goes on only if the destination is an address of this host.
    pub(super) fn for_this_host(&mut self, register: u32) -> &mut Self {
        const ADDRTYPE: u32 = 3;
        const DADDR: u32 = 1 << 1;
        const RTN_LOCAL: u32 = 2;
        self.expression("fib", |b| {
            b.number(1, register).number(2, ADDRTYPE).number(3, DADDR);
        });
        self.equals(register, &RTN_LOCAL.to_ne_bytes())
    }

    /// Goes on only if the connection's destination was rewritten.
    pub(super) fn was_rewritten(&mut self, register: u32) -> &mut Self {
        const STATUS: u32 = 2;
        const DST_NAT: u32 = 1 << 5;
        self.expression("ct", |b| {
            b.number(1, register).number(2, STATUS);
        });
        self.mask(register, &DST_NAT.to_ne_bytes()).differs(register, &[0; 4])
    }

    /// Goes on only if the register has another value.
    pub(super) fn differs(&mut self, register: u32, value: &[u8]) -> &mut Self {
        self.expression("cmp", |b| {
            b.number(1, register).number(2, CMP_NEQ);
            b.nest(3, |b| {
                b.put(1, value);
            });
        })
    }

    /// Loads what the map says for the key; goes on only if it says something.
    pub(super) fn lookup_value(&mut self, map: &str, register: u32, to: u32) -> &mut Self {
        self.expression("lookup", |b| {
            b.text(1, map).number(2, register).number(3, to);
        })
    }

    /// Rewrites the destination to the address and the port in two registers.
    pub(super) fn destination_nat(&mut self, family: Nfproto, addr: u32, port: u32) -> &mut Self {
        const DNAT: u32 = 1;
        self.expression("nat", |b| {
            b.number(1, DNAT).number(2, family as u32).number(3, addr).number(5, port);
        })
    }
}
