//! Tables of legacy iptables, which nf_tables does not show. They are read in the same way as by
//! the `iptables` program.
//!
//! A table is an array of entries, chain by chain. Each entry is followed by its matches and a
//! target. The last entry of a built-in chain is its policy
//! (`include/uapi/linux/netfilter/x_tables.h`, `netfilter_ipv4/ip_tables.h`, and
//! `netfilter_ipv6/ip6_tables.h`).

#![expect(unsafe_code, reason = "an option's value is handed over as a pointer")]

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::{AsRawFd, OwnedFd};

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`.
const GET_INFO: i32 = 64;
/// `IPT_SO_GET_ENTRIES` and `IP6T_SO_GET_ENTRIES`.
const GET_ENTRIES: i32 = 65;
/// Length of a table's name.
const NAME_LEN: usize = 32;
/// Length of `struct ipt_getinfo`: name, valid hooks, first entry and policy for each of five
/// hooks, number and size.
const INFO_LEN: usize = NAME_LEN + 4 + 4 * 5 + 4 * 5 + 4 + 4;
/// `NF_INET_FORWARD`.
const FORWARD: usize = 2;
/// Length of `struct ipt_get_entries` before the entries: name and size, aligned for the entries'
/// counters.
const ENTRIES_HEAD: usize = 40;
/// Maximum depth of followed jumps; the kernel allows more.
const MOST_JUMPS: u8 = 8;
/// Verdict of a standard target: `NF_DROP`, encoded as `-verdict - 1`.
const DROP: i32 = -1;
/// Verdict of a standard target: `NF_ACCEPT`, encoded as `-verdict - 1`.
const ACCEPT: i32 = -2;

/// Layout of a table's entries for IPv4 or IPv6.
struct Layout {
    family: AddressFamily,
    level: i32,
    /// Length in bytes of an entry's conditions on addresses and links. All these bytes are 0 if
    /// the entry matches every packet.
    ip_len: usize,
    /// Length of an entry without matches and target.
    entry_len: usize,
    /// Packet mark to look for in the rules.
    mark: u32,
}

const V4: Layout = Layout {
    family: AddressFamily::Inet,
    level: libc::IPPROTO_IP,
    ip_len: 84,
    entry_len: 112,
    mark: 0,
};
const V6: Layout = Layout {
    family: AddressFamily::Inet6,
    level: libc::IPPROTO_IPV6,
    ip_len: 136,
    entry_len: 168,
    mark: 0,
};

/// Effect of a FORWARD chain on packets that no other rule decides, and on marked packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forward {
    /// An accepting rule must be inserted before the rule with this number, counted from 1. It is
    /// the first rule that drops everything. If no rule does but the policy drops, it is the number
    /// of rules plus one. `None` if neither a rule nor the policy drops everything.
    pub dropper: Option<usize>,
    /// True if an earlier rule accepts marked packets.
    pub passes_mark: bool,
}

/// Reads the FORWARD chain of an existing table, for packets with `mark`. `None` if the table has
/// no such chain.
pub fn forward(is_ipv4: bool, table: &str, mark: u32) -> Result<Option<Forward>, Errno> {
    let layout = Layout {
        mark,
        ..if is_ipv4 { V4 } else { V6 }
    };
    let socket = socket(
        layout.family,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        nix::sys::socket::SockProtocol::Raw,
    )?;
    let mut info = named(table, INFO_LEN);
    get(&socket, &layout, GET_INFO, &mut info)?;
    let number = |at: usize| word(&info, at).map_or(0, |bytes| u32::from_ne_bytes(bytes) as usize);
    let (hooks, first, policy) = (
        number(32),
        number(36 + 4 * FORWARD),
        number(56 + 4 * FORWARD),
    );
    if hooks & (1 << FORWARD) == 0 {
        return Ok(None);
    }
    let mut entries = named(table, ENTRIES_HEAD + number(80));
    entries[NAME_LEN..NAME_LEN + 4].copy_from_slice(&info[80..84]);
    get(&socket, &layout, GET_ENTRIES, &mut entries)?;
    Ok(Some(walk(&entries[ENTRIES_HEAD..], first, policy, &layout)))
}

fn named(table: &str, len: usize) -> Vec<u8> {
    let mut value = table.as_bytes()[..table.len().min(NAME_LEN - 1)].to_vec();
    value.resize(len, 0);
    value
}

fn get(socket: &OwnedFd, layout: &Layout, option: i32, value: &mut [u8]) -> Result<(), Errno> {
    let mut len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the kernel reads and writes at most `len` bytes, which is the length of `value`, or
    // returns an error.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            layout.level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    Errno::result(done)?;
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

/// Walks the entries of a chain from offset `at` to its policy at offset `policy`.
fn walk(table: &[u8], mut at: usize, policy: usize, layout: &Layout) -> Forward {
    let mut forward = Forward::default();
    let mut number = 1;
    while let Some(entry) = Entry::read(table, at, layout) {
        let drops_all = drops_all(table, &entry, layout, MOST_JUMPS);
        if drops_all || at >= policy {
            forward.dropper = drops_all.then_some(number);
            break;
        }
        forward.passes_mark |= entry.verdict == Some(ACCEPT) && entry.asks_mark;
        number += 1;
        at += entry.len;
    }
    forward
}

/// True if the rule drops all packets, or sends all packets to a chain that drops them.
fn drops_all(table: &[u8], entry: &Entry, layout: &Layout, jumps: u8) -> bool {
    if !entry.is_for_all {
        return false;
    }
    if entry.rejects || entry.verdict == Some(DROP) {
        return true;
    }
    let Some(verdict) = entry.verdict else {
        return false;
    };
    let Ok(chain) = usize::try_from(verdict) else {
        return false;
    };
    jumps > 0 && chain_drops_all(table, chain, layout, jumps - 1)
}

/// True if a rule of the chain at offset `at` drops all packets. False if an earlier rule has
/// another verdict for all packets, for example accept or return.
fn chain_drops_all(table: &[u8], mut at: usize, layout: &Layout, jumps: u8) -> bool {
    while let Some(entry) = Entry::read(table, at, layout) {
        if drops_all(table, &entry, layout, jumps) {
            return true;
        }
        if entry.is_for_all && entry.verdict.is_some_and(|verdict| verdict < 0) {
            return false;
        }
        at += entry.len;
    }
    false
}

/// A rule of a table.
struct Entry {
    len: usize,
    is_for_all: bool,
    /// True if the mark is the rule's only condition.
    asks_mark: bool,
    rejects: bool,
    verdict: Option<i32>,
}

impl Entry {
    /// Reads the entry at offset `at`.
    fn read(table: &[u8], at: usize, layout: &Layout) -> Option<Self> {
        let entry = table.get(at..)?;
        // `target_offset` and `next_offset` follow a field for the kernel.
        let (target, len) = (
            short(entry, layout.ip_len + 4)?,
            short(entry, layout.ip_len + 6)?,
        );
        let matches = entry.get(layout.entry_len..target)?;
        let is_standard = name(entry, target) == b"";
        // A target starts with its size, a name of 29 bytes and a revision.
        let verdict = if is_standard {
            word(entry, target + 32).map(i32::from_ne_bytes)
        } else {
            None
        };
        let is_anywhere = entry.get(..layout.ip_len)?.iter().all(|byte| *byte == 0);
        if len == 0 {
            return None;
        }
        Some(Self {
            len,
            is_for_all: is_anywhere && matches.is_empty(),
            asks_mark: is_anywhere && asks_mark(matches, layout.mark),
            rejects: name(entry, target) == b"REJECT",
            verdict,
        })
    }
}

fn name(bytes: &[u8], at: usize) -> &[u8] {
    let name = bytes.get(at + 2..at + 31).unwrap_or_default();
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// True if the matches, apart from comments, only compare the packet's mark with `mark`.
fn asks_mark(mut matches: &[u8], mark: u32) -> bool {
    let mut asks = false;
    while let Some(len) = short(matches, 0)
        && len > 0
    {
        match name(matches, 0) {
            // `struct xt_mark_mtinfo1`: mark, mask, and the flag for inversion.
            b"mark" => {
                let is_bit = |at| word(matches, at) == Some(mark.to_ne_bytes());
                asks = is_bit(32) && is_bit(36) && matches.get(40) == Some(&0);
            }
            b"comment" => {}
            _ => return false,
        }
        matches = matches.get(len..).unwrap_or_default();
    }
    asks
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = 0x1000;

    fn layout() -> Layout {
        Layout { mark: MARK, ..V4 }
    }

    /// Returns the match `-m mark --mark MARK/MARK`.
    fn marked() -> Vec<u8> {
        let mut matches = vec![0; 48];
        matches[0] = 48;
        matches[2..6].copy_from_slice(b"mark");
        matches[32..36].copy_from_slice(&MARK.to_ne_bytes());
        matches[36..40].copy_from_slice(&MARK.to_ne_bytes());
        matches
    }

    /// Returns a rule with a verdict for the source address `10.0.0.<host>`, or any address if
    /// `host` is 0.
    fn rule(host: u8, matches: &[u8], verdict: i32) -> Vec<u8> {
        let Layout {
            ip_len, entry_len, ..
        } = V4;
        let target = entry_len + matches.len();
        let len = target + 40;
        let mut entry = vec![0; len];
        if host != 0 {
            entry[..4].copy_from_slice(&[10, 0, 0, host]);
            entry[8..12].copy_from_slice(&[255; 4]);
        }
        let mut put = |at: usize, number: usize| {
            let number = u16::try_from(number).expect("short");
            entry[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        };
        put(ip_len + 4, target);
        put(ip_len + 6, len);
        put(target, 40);
        entry[entry_len..target].copy_from_slice(matches);
        entry[target + 32..target + 36].copy_from_slice(&verdict.to_ne_bytes());
        entry
    }

    fn walked(rules: &[Vec<u8>]) -> Forward {
        let policy = rules[..rules.len() - 1].concat().len();
        walk(&rules.concat(), 0, policy, &layout())
    }

    #[test]
    fn rule_passes_the_mark_only_if_it_has_no_other_condition() {
        let dropping = rule(0, &[], DROP);
        let passes = |first: Vec<u8>| {
            let forward = walked(&[first, dropping.clone()]);
            assert_eq!(forward.dropper, Some(2));
            forward.passes_mark
        };
        assert!(passes(rule(0, &marked(), ACCEPT)));
        assert!(!passes(rule(0, &marked(), DROP)));
        assert!(!passes(rule(5, &marked(), ACCEPT)), "of one source");
        assert!(!passes(rule(0, &[], -5)), "no mark");
    }
}
