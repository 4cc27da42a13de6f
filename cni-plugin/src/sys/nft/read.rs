//! Reading sets and rules back: requests by hand, answers attribute by attribute.

use super::batch::{Family, SUBSYS};
use crate::sys::netlink::{DUMP_TRIES, KernelError, Message, NESTED, Socket, attr, attributes_of, find, nest};
use nix::errno::Errno;

const GETRULE: u16 = 7;
const GETSETELEM: u16 = 13;
/// `struct nfgenmsg`: family, version, and in two bytes the generation of the rule set.
const GENMSG_LEN: usize = 4;

/// One element of a set or map as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// What a map from keys to values says; empty otherwise.
    pub data: Vec<u8>,
    /// The comment.
    pub comment: String,
}

/// A rule as the kernel shows it, as far as others' rules have to be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// What it is deleted by.
    pub(super) handle: u64,
    /// The comment in nf_tables' own form.
    pub(super) comment: String,
    /// The chain that it jumps or goes to.
    pub(super) jumps_to: Option<String>,
    /// What it compares with.
    pub(super) compares: Vec<Vec<u8>>,
}

fn set_request(out: &mut Vec<u8>, family: Family, table: &str, set: &str) {
    out.extend([family as u8, 0, 0, 0]);
    for (kind, name) in [(1, table), (2, set)] {
        attr(kind, &[name.as_bytes(), b"\0"].concat(), out);
    }
}

/// One element of a set by its key; `None` where it, the table or the set does not exist.
pub(super) fn element(
    socket: &mut Socket,
    family: Family,
    table: &str,
    set: &str,
    key: &[u8],
) -> Result<Option<Element>, KernelError> {
    let request = |out: &mut Vec<u8>| {
        set_request(out, family, table, set);
        nest(NESTED | 3, out, |out| {
            nest(NESTED | 1, out, |out| nest(NESTED | 1, out, |out| attr(1, key, out)));
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
/// A change between two datagrams makes the kernel leave elements out. It flags that in dumps of rules, never in those
/// of sets (v6.12 `net/netfilter/nf_tables_api.c`, `nf_tables_dump_set()`); the generations tell.
pub(super) fn elements(
    socket: &mut Socket,
    family: Family,
    table: &str,
    set: &str,
) -> Result<Vec<Element>, KernelError> {
    for _ in 0..DUMP_TRIES {
        match socket.dump(SUBSYS | GETSETELEM, |out| set_request(out, family, table, set)) {
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
    messages.windows(2).all(|pair| generation(&pair[0]) == generation(&pair[1]))
}

fn parse_elements(message: &Message) -> Vec<Element> {
    let body = message.body.get(GENMSG_LEN..).unwrap_or_default();
    let element = |(_, element)| {
        let key = find(1, find(1, element)?)?.to_vec();
        let data = find(2, element).and_then(|data| find(1, data)).unwrap_or_default().to_vec();
        Some(Element { key, data, comment: comment_in(find(6, element).unwrap_or_default()) })
    };
    attributes_of(find(3, body).unwrap_or_default()).filter_map(element).collect()
}

/// The rules of a chain; none where the table or the chain does not exist.
pub(super) fn rules(socket: &mut Socket, family: Family, table: &str, chain: &str) -> Result<Vec<Rule>, KernelError> {
    match socket.dump(SUBSYS | GETRULE, |out| set_request(out, family, table, chain)) {
        Ok(messages) => Ok(messages.iter().filter_map(|message| parse_rule(message, chain)).collect()),
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
    let expressions = find(4, body).unwrap_or_default();
    let jumps_to = attributes_of(expressions).find_map(|(_, expression)| {
        // An immediate verdict: data, verdict, chain.
        let verdict = find(2, find(2, find(2, expression)?)?)?;
        Some(text(find(2, verdict)?)).filter(|_| find(1, expression).is_some_and(|name| text(name) == "immediate"))
    });
    // A comparison: its data, then their value.
    let compared = |(_, expression)| {
        let is_compare = find(1, expression).is_some_and(|name| text(name) == "cmp");
        let value = find(1, find(3, find(2, expression)?)?)?;
        is_compare.then(|| value.to_vec())
    };
    let compares = attributes_of(expressions).filter_map(compared).collect();
    Some(Rule { handle, comment: comment_in(find(7, body).unwrap_or_default()), jumps_to, compares })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
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
        let of = |generation: u8| Message { kind: 0, body: vec![1, 0, 0, generation, 8, 0] };
        assert!(is_of_one_generation(&[]) && is_of_one_generation(&[of(7), of(7)]));
        assert!(!is_of_one_generation(&[of(7), of(7), of(8)]));
    }
}
