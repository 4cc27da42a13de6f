//! Masquerading of pods by range: table `inet braid-cluster`, which only the agent of a node writes.
//!
//! ```text
//! table inet braid-cluster {
//!     set inside4 { type ipv4_addr; flags interval; elements = { 10.244.0.0/16, 224.0.0.0/4 } }
//!     set inside6 { type ipv6_addr; flags interval; elements = { ff00::/8 } }
//!     chain postrouting { type nat hook postrouting priority srcnat
//!         ip saddr 10.244.1.0/24 ip daddr != @inside4 masquerade }
//! }
//! ```

use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family, HOOK_POSTROUTING};
use crate::sys::nft::expression::REG_1;
use crate::sys::nft::gone_is_fine;
use crate::sys::nft::ip::Ip;
use crate::sys::nft::read::rule_count;
use crate::{Context, Error};
use ipnet::IpNet;

/// Name of the table.
pub const TABLE: &str = "braid-cluster";
const CHAIN: &str = "postrouting";
const SETS: [&str; 2] = ["inside4", "inside6"];
const PRIORITY_SRCNAT: i32 = 100;
const MULTICAST: [&str; 2] = ["224.0.0.0/4", "ff00::/8"];

/// Masquerades packets from `pods` to all destinations but `inside` and multicast groups. It
/// replaces an earlier table in one transaction, which known connections do not notice.
pub fn replace(pods: &[IpNet], inside: &[IpNet]) -> Result<(), Error> {
    let mut all = inside.to_vec();
    all.extend(
        MULTICAST
            .iter()
            .filter_map(|group| group.parse::<IpNet>().ok()),
    );
    // The kernel refuses intervals that overlap.
    let all = IpNet::aggregate(&all);
    let mut batch = Batch::new(Family::Inet, TABLE);
    batch.table().del_table().table();
    for ip in Ip::BOTH {
        batch.interval_set(ip.one(SETS), &[ip.addr()]);
    }
    for subnet in &all {
        batch.add_subnet(Ip::of(subnet.addr()).one(SETS), subnet);
    }
    batch.base_chain(CHAIN, "nat", HOOK_POSTROUTING, PRIORITY_SRCNAT);
    for range in pods {
        let ip = Ip::of(range.addr());
        batch.rule(CHAIN, |rule| {
            rule.only(ip).source(ip, REG_1).within(range);
            rule.destination(ip, REG_1)
                .lookup(ip.one(SETS), REG_1, true)
                .masquerade();
        });
    }
    send(batch).doing(format_args!("write table inet {TABLE}"))
}

/// True if the table exists with a rule for each of this number of pod ranges. It asks for one chain,
/// so it is cheap.
pub fn is_present(pods: usize) -> Result<bool, Error> {
    let count = Socket::netfilter()
        .and_then(|mut socket| rule_count(&mut socket, Family::Inet, [TABLE, CHAIN]))
        .doing(format_args!("read table inet {TABLE}"))?;
    Ok(count.is_some_and(|count| usize::try_from(count).is_ok_and(|count| count == pods)))
}

/// Deletes the table. A missing table is a success.
pub fn delete() -> Result<(), Error> {
    let mut batch = Batch::new(Family::Inet, TABLE);
    batch.del_table();
    gone_is_fine(send(batch)).doing(format_args!("delete table inet {TABLE}"))
}

fn send(batch: Batch) -> Result<(), KernelError> {
    batch.send(&mut Socket::netfilter()?)
}
