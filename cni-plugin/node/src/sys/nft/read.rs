//! Reading sets and rules back: requests by hand, answers attribute by attribute.

use super::batch::{Family, SUBSYS};
use super::expression::Verdict;
use super::key::TABLE;
use crate::sys::netlink::{
    DUMP_TRIES, KernelError, Message, NESTED, Socket, attr, attributes_of, find, nest,
};
use nix::errno::Errno;
use std::collections::BTreeSet;

const GETRULE: u16 = 7;
const GETSETELEM: u16 = 13;
/// `struct nfgenmsg`: family, version, and in two bytes the generation of the rule set.
const GENMSG_LEN: usize = 4;

/// One element of a set or map as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// The key's bytes.
    pub(crate) key: Vec<u8>,
    /// Value that a map from keys to values has; empty otherwise.
    pub(crate) data: Vec<u8>,
    /// The comment.
    pub(crate) comment: String,
}

/// A rule as the kernel shows it, as far as others' rules have to be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Handle by which it is deleted.
    pub(crate) handle: u64,
    /// The comment in nf_tables' own form.
    pub(crate) comment: String,
    /// The chain that it jumps or goes to.
    pub(crate) jumps_to: Option<String>,
    /// Values that it compares with.
    pub(crate) compares: Vec<Vec<u8>>,
    /// The code of its verdict.
    decides: Option<i32>,
    /// Limit that it puts on packets, as [`Batch::limit`](super::batch::Batch::limit) has it.
    pub(crate) limit: Option<(u64, u32)>,
    /// Number of packets that its counter has seen.
    pub(crate) counted: u64,
    /// It has no condition.
    pub(crate) is_for_all: bool,
}

/// A request about a table, and a set or a chain of it.
pub(crate) fn about(out: &mut Vec<u8>, family: Family, names: &[&str]) {
    out.extend([family as u8, 0, 0, 0]);
    for (kind, name) in (1..).zip(names) {
        attr(kind, &[name.as_bytes(), b"\0"].concat(), out);
    }
}

/// One element of a set by its key; `None` where it, the table or the set does not exist.
pub(crate) fn element(
    socket: &mut Socket,
    family: Family,
    set: &str,
    key: &[u8],
) -> Result<Option<Element>, KernelError> {
    let request = |out: &mut Vec<u8>| {
        about(out, family, &[TABLE, set]);
        nest(NESTED | 3, out, |out| {
            nest(NESTED | 1, out, |out| {
                nest(NESTED | 1, out, |out| attr(1, key, out));
            });
        });
    };
    match socket.call(SUBSYS | GETSETELEM, 0, request) {
        Ok(messages) => Ok(messages.iter().flat_map(parse_elements).next()),
        Err(err) if err.errno == Errno::ENOENT => Ok(None),
        Err(err) => Err(err),
    }
}

/// The elements of a set; none where the table or the set does not exist.
///
/// A change between two datagrams makes the kernel leave elements out. It flags that in dumps of
/// rules, never in those of sets (v6.12 `net/netfilter/nf_tables_api.c`, `nf_tables_dump_set()`);
/// the generations tell.
pub(crate) fn elements(
    socket: &mut Socket,
    family: Family,
    set: &str,
) -> Result<Vec<Element>, KernelError> {
    for _ in 0..DUMP_TRIES {
        match socket.dump(SUBSYS | GETSETELEM, |out| about(out, family, &[TABLE, set])) {
            Ok(messages) if is_of_one_generation(&messages) => {
                return Ok(messages.iter().flat_map(parse_elements).collect());
            }
            Ok(_) => {}
            Err(err) if err.errno == Errno::ENOENT => return Ok(Vec::new()),
            Err(err) => return Err(err),
        }
    }
    Err(Errno::EINTR.into())
}

fn is_of_one_generation(messages: &[Message]) -> bool {
    let generation = |message: &Message| message.body.get(2..GENMSG_LEN).map(<[u8]>::to_vec);
    messages
        .windows(2)
        .all(|pair| generation(&pair[0]) == generation(&pair[1]))
}

fn parse_elements(message: &Message) -> Vec<Element> {
    let body = message.body.get(GENMSG_LEN..).unwrap_or_default();
    let element = |(_, element)| {
        let key = find(1, find(1, element)?)?.to_vec();
        let data = find(2, element)
            .and_then(|data| find(1, data))
            .unwrap_or_default()
            .to_vec();
        Some(Element {
            key,
            data,
            comment: comment_in(find(6, element).unwrap_or_default()),
        })
    };
    attributes_of(find(3, body).unwrap_or_default())
        .filter_map(element)
        .collect()
}

/// The rules of a chain; none where the table or the chain does not exist.
pub(crate) fn rules(
    socket: &mut Socket,
    family: Family,
    table: &str,
    chain: &str,
) -> Result<Vec<Rule>, KernelError> {
    match socket.dump(SUBSYS | GETRULE, |out| about(out, family, &[table, chain])) {
        Ok(messages) => Ok(messages
            .iter()
            .filter_map(|message| parse_rule(message, chain))
            .collect()),
        Err(err) if err.errno == Errno::ENOENT => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}

fn parse_rule(message: &Message, chain: &str) -> Option<Rule> {
    let body = message.body.get(GENMSG_LEN..)?;
    // A kernel that does not filter the dump shows the rules of other chains too.
    if text(find(2, body)?) != chain {
        return None;
    }
    let handle = u64::from_be_bytes(*find(3, body)?.first_chunk()?);
    let comment = comment_in(find(7, body).unwrap_or_default());
    let mut rule = Rule {
        handle,
        comment,
        jumps_to: None,
        compares: Vec::new(),
        decides: None,
        limit: None,
        counted: 0,
        is_for_all: true,
    };
    for (_, expression) in attributes_of(find(4, body).unwrap_or_default()) {
        rule.note(
            &text(find(1, expression)?),
            find(2, expression).unwrap_or_default(),
        );
    }
    Some(rule)
}

impl Rule {
    /// Takes in one expression: its name and its data.
    fn note(&mut self, name: &str, data: &[u8]) {
        match name {
            // A verdict: data, verdict, and of that the code and the chain.
            "immediate" => {
                let verdict = find(2, data)
                    .and_then(|data| find(2, data))
                    .unwrap_or_default();
                self.jumps_to = find(2, verdict).map(text);
                self.decides = find(1, verdict)
                    .and_then(|code| Some(i32::from_be_bytes(*code.first_chunk()?)));
            }
            "reject" => self.decides = Some(Verdict::Drop.code()),
            "counter" => self.counted = number(2, data).unwrap_or_default(),
            "log" => {}
            "limit" => {
                self.is_for_all = false;
                let burst =
                    find(3, data).and_then(|burst| Some(u32::from_be_bytes(*burst.first_chunk()?)));
                self.limit = number(1, data).zip(burst);
            }
            // Its data, then their value.
            "cmp" => {
                self.is_for_all = false;
                self.compares.extend(
                    find(3, data)
                        .and_then(|data| find(1, data))
                        .map(<[u8]>::to_vec),
                );
            }
            // An older iptables compares a mark by itself: name, revision, and in its own struct
            // first the mark.
            "match" if find(1, data).is_some_and(|name| text(name) == "mark") => {
                self.is_for_all = false;
                self.compares.extend(
                    find(3, data)
                        .and_then(|info| info.get(..4))
                        .map(<[u8]>::to_vec),
                );
            }
            "match" if find(1, data).is_some_and(|name| text(name) == "comment") => {}
            _ => self.is_for_all = false,
        }
    }

    /// True if its verdict is this one, whatever its conditions.
    pub(crate) fn is(&self, verdict: Verdict<'_>) -> bool {
        self.decides == Some(verdict.code())
    }
}

/// The chains of braid's table that have a rule; none where it does not exist.
pub(crate) fn chains_with_rules(
    socket: &mut Socket,
    family: Family,
) -> Result<BTreeSet<String>, KernelError> {
    let chain = |message: &Message| {
        let body = message.body.get(GENMSG_LEN..)?;
        (text(find(1, body)?) == TABLE).then(|| find(2, body).map(text))?
    };
    match socket.dump(SUBSYS | GETRULE, |out| about(out, family, &[TABLE])) {
        Ok(messages) => Ok(messages.iter().filter_map(chain).collect()),
        Err(err) if err.errno == Errno::ENOENT => Ok(BTreeSet::new()),
        Err(err) => Err(err),
    }
}

/// A number of 64 bits.
fn number(kind: u16, data: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*find(kind, data)?.first_chunk()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

/// The comment in user data: type 0, then its length with the NUL (libnftnl's udata).
fn comment_in(userdata: &[u8]) -> String {
    match userdata {
        [0, len, rest @ ..] => text(rest.get(..usize::from(*len)).unwrap_or_default()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_between_two_datagrams_shows_in_their_generations() {
        let of = |generation: u8| Message {
            body: vec![1, 0, 0, generation, 8, 0],
        };
        assert!(is_of_one_generation(&[]) && is_of_one_generation(&[of(7), of(7)]));
        assert!(!is_of_one_generation(&[of(7), of(7), of(8)]));
    }
}
