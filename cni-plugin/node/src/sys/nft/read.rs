//! Reading sets and rules: requests are encoded here, replies are parsed attribute by attribute.

use super::batch::{Family, SUBSYS};
use super::expression::{CMP_EQ, Verdict};
use super::key::TABLE;
use crate::sys::netlink::{
    DUMP_TRIES, KernelError, Message, NESTED, Socket, attr, attributes_of, find, nest,
};
use nix::errno::Errno;
use std::collections::BTreeSet;

const GETCHAIN: u16 = 4;
const GETRULE: u16 = 7;
const GETSETELEM: u16 = 13;
/// Length of `struct nfgenmsg`: family, version, and two bytes with the generation of the rule set.
pub(crate) const GENMSG_LEN: usize = 4;

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// Bytes of the key.
    pub(crate) key: Vec<u8>,
    /// Value in a map from keys to values, otherwise empty.
    pub(crate) data: Vec<u8>,
    /// Comment of the element.
    pub(crate) comment: String,
}

/// A rule, with the parts by which rules of other programs are recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Handle, by which the rule can be deleted.
    pub(crate) handle: u64,
    /// Comment in the rule's user data, or in its match `comment`.
    pub(crate) comment: String,
    /// Target chain of the rule's jump or goto.
    pub(crate) jumps_to: Option<String>,
    /// Values with which the rule compares parts of a packet.
    pub(crate) compares: Vec<Vec<u8>>,
    /// Code of the rule's verdict.
    decides: Option<i32>,
    /// Rate and burst of the rule's limit, like in [`Batch::limit`](super::batch::Batch::limit).
    pub(crate) limit: Option<(u64, u32)>,
    /// Number of packets that the rule's counter has seen.
    pub(crate) counted: u64,
    /// True if the rule has no condition.
    pub(crate) is_for_all: bool,
    /// True if the rule has a condition that is not in `compares`.
    has_other_condition: bool,
}

/// Writes the body of a request about the named objects: a table, and then a set or chain in it.
pub(crate) fn about(out: &mut Vec<u8>, family: Family, names: &[&str]) {
    out.extend([family as u8, 0, 0, 0]);
    for (kind, name) in (1..).zip(names) {
        attr(kind, &[name.as_bytes(), b"\0"].concat(), out);
    }
}

/// Reads an element by its key; `None` if the element, the table or the set does not exist.
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
        Ok(messages) => Ok(parse_elements(&messages).into_iter().next()),
        Err(err) if err.errno == Errno::ENOENT => Ok(None),
        Err(err) => Err(err),
    }
}

/// Lists the elements of a set. Empty if the table or the set does not exist.
///
/// If a change happens between two datagrams, the kernel leaves elements out. The kernel flags that
/// in dumps of rules, but not in dumps of sets (v6.12 `net/netfilter/nf_tables_api.c`,
/// `nf_tables_dump_set()`). Therefore this function compares the generations of the datagrams.
pub(crate) fn elements(
    socket: &mut Socket,
    family: Family,
    set: &str,
) -> Result<Vec<Element>, KernelError> {
    for _ in 0..DUMP_TRIES {
        match socket.dump(SUBSYS | GETSETELEM, |out| about(out, family, &[TABLE, set])) {
            Ok(messages) if is_of_one_generation(&messages) => {
                return Ok(parse_elements(&messages));
            }
            Ok(_) => {}
            Err(err) if err.errno == Errno::ENOENT => return Ok(Vec::new()),
            Err(err) => return Err(err),
        }
    }
    Err(Errno::EINTR.into())
}

fn is_of_one_generation(messages: &[Message]) -> bool {
    messages
        .windows(2)
        .all(|pair| generation(&pair[0]) == generation(&pair[1]))
}

fn generation(message: &Message) -> Option<&[u8]> {
    message.body.get(2..GENMSG_LEN)
}

fn parse_elements(messages: &[Message]) -> Vec<Element> {
    let mut elements = Vec::new();
    for message in messages {
        let body = message.body.get(GENMSG_LEN..).unwrap_or_default();
        for (_, element) in attributes_of(find(3, body).unwrap_or_default()) {
            elements.extend(parse_element(element));
        }
    }
    elements
}

fn parse_element(element: &[u8]) -> Option<Element> {
    let key = nested(1, 1, element)?;
    let data = nested(2, 1, element).unwrap_or_default();
    Some(Element {
        key: key.to_vec(),
        data: data.to_vec(),
        comment: comment_in(find(6, element).unwrap_or_default()),
    })
}

/// Lists the rules of a chain. Empty if the table or the chain does not exist.
pub(crate) fn rules(
    socket: &mut Socket,
    family: Family,
    table: &str,
    chain: &str,
) -> Result<Vec<Rule>, KernelError> {
    let messages = match socket.dump(SUBSYS | GETRULE, |out| about(out, family, &[table, chain])) {
        Err(err) if err.errno == Errno::ENOENT => return Ok(Vec::new()),
        dumped => dumped?,
    };
    let mut rules = Vec::new();
    for message in &messages {
        rules.extend(parse_rule(message, chain));
    }
    Ok(rules)
}

fn parse_rule(message: &Message, chain: &str) -> Option<Rule> {
    let body = message.body.get(GENMSG_LEN..)?;
    // A kernel that does not filter the dump also returns rules of other chains.
    if text(find(2, body)?) != chain {
        return None;
    }
    let handle = u64::from_be_bytes(*find(3, body)?.first_chunk()?);
    let comment = comment_in(find(7, body).unwrap_or_default());
    let mut rule = Rule::new(handle, comment);
    for (_, expression) in attributes_of(find(4, body).unwrap_or_default()) {
        rule.note(
            &text(find(1, expression)?),
            find(2, expression).unwrap_or_default(),
        );
    }
    Some(rule)
}

impl Rule {
    /// Creates a rule without expressions.
    fn new(handle: u64, comment: String) -> Self {
        Self {
            handle,
            comment,
            jumps_to: None,
            compares: Vec::new(),
            decides: None,
            limit: None,
            counted: 0,
            is_for_all: true,
            has_other_condition: false,
        }
    }

    /// Creates a rule without conditions.
    #[cfg(test)]
    pub(crate) fn with_verdict(handle: u64, verdict: Verdict<'_>) -> Self {
        Self {
            decides: Some(verdict.code()),
            ..Self::new(handle, String::new())
        }
    }

    /// True if the rule's only condition is that a part of the packet equals `value`.
    pub(crate) fn only_compares(&self, value: &[u8]) -> bool {
        self.compares == [value] && !self.has_other_condition
    }
    /// Adds the expression `name` with its data to the rule.
    fn note(&mut self, name: &str, data: &[u8]) {
        match name {
            // A verdict: data, then verdict, which has the code and the chain.
            "immediate" => {
                let verdict = nested(2, 2, data).unwrap_or_default();
                self.jumps_to = find(2, verdict).map(text);
                self.decides = word(1, verdict).map(u32::cast_signed);
            }
            "reject" => self.decides = Some(Verdict::Drop.code()),
            // iptables has an expression of its own for `-j REJECT`.
            "target" if find(1, data).is_some_and(|name| text(name) == "REJECT") => {
                self.decides = Some(Verdict::Drop.code());
            }
            "counter" => self.counted = number(2, data).unwrap_or_default(),
            "log" => {}
            "limit" => {
                self.is_for_all = false;
                self.has_other_condition = true;
                self.limit = match (number(1, data), word(3, data)) {
                    (Some(rate), Some(burst)) => Some((rate, burst)),
                    _ => None,
                };
            }
            // Expressions that load a value for a later comparison.
            "meta" | "payload" | "ct" | "bitwise" => self.is_for_all = false,
            // The operator, then data, then the value.
            "cmp" => {
                self.is_for_all = false;
                self.has_other_condition |= word(2, data) != Some(CMP_EQ);
                if let Some(value) = nested(3, 1, data) {
                    self.compares.push(value.to_vec());
                }
            }
            // An older iptables uses its own match for marks: name, revision, and a struct that
            // starts with mark, mask, and the flag for inversion.
            "match" if find(1, data).is_some_and(|name| text(name) == "mark") => {
                self.is_for_all = false;
                if let Some(info) = find(3, data)
                    && let Some(mark) = info.get(..4)
                {
                    let is_bit = info.get(4..8) == Some(mark) && info.get(8) == Some(&0);
                    self.has_other_condition |= !is_bit;
                    self.compares.push(mark.to_vec());
                }
            }
            // A struct with only the text.
            "match" if find(1, data).is_some_and(|name| text(name) == "comment") => {
                let info = find(3, data).unwrap_or_default();
                let mut parts = info.split(|byte| *byte == 0);
                if self.comment.is_empty() {
                    self.comment = parts.next().map(text).unwrap_or_default();
                }
            }
            _ => {
                self.is_for_all = false;
                self.has_other_condition = true;
            }
        }
    }

    /// True if the rule has this verdict, under any conditions.
    pub(crate) fn is(&self, verdict: Verdict<'_>) -> bool {
        self.decides == Some(verdict.code())
    }
}

/// Lists the chains of braid's table with at least one rule. Empty if the table does not exist.
pub(crate) fn chains_with_rules(
    socket: &mut Socket,
    family: Family,
) -> Result<BTreeSet<String>, KernelError> {
    let messages = match socket.dump(SUBSYS | GETRULE, |out| about(out, family, &[TABLE])) {
        Err(err) if err.errno == Errno::ENOENT => return Ok(BTreeSet::new()),
        dumped => dumped?,
    };
    let mut chains = BTreeSet::new();
    for message in &messages {
        chains.extend(chain_of_rule(message));
    }
    Ok(chains)
}

/// Returns the number of rules in a chain, named by its table and its own name; `None` if one of them
/// does not exist.
pub(crate) fn rule_count(
    socket: &mut Socket,
    family: Family,
    chain: [&str; 2],
) -> Result<Option<u32>, KernelError> {
    /// `NFTA_CHAIN_NAME` of `enum nft_chain_attributes`.
    const NAME: u16 = 3;
    /// `NFTA_CHAIN_USE`: rules, and jumps to the chain.
    const USE: u16 = 6;
    let [table, name] = chain;
    let request = |out: &mut Vec<u8>| {
        about(out, family, &[table]);
        attr(NAME, &[name.as_bytes(), b"\0"].concat(), out);
    };
    match socket.call(SUBSYS | GETCHAIN, 0, request) {
        Ok(messages) => Ok(messages
            .first()
            .and_then(|message| word(USE, message.body.get(GENMSG_LEN..)?))),
        Err(err) if err.errno == Errno::ENOENT => Ok(None),
        Err(err) => Err(err),
    }
}

/// Parses a rule and returns the name of its chain; `None` if the rule is in another table.
fn chain_of_rule(message: &Message) -> Option<String> {
    let body = message.body.get(GENMSG_LEN..)?;
    if text(find(1, body)?) != TABLE {
        return None;
    }
    Some(text(find(2, body)?))
}

/// Returns the value of the attribute `inner` in the attribute `outer`.
fn nested(outer: u16, inner: u16, data: &[u8]) -> Option<&[u8]> {
    find(inner, find(outer, data)?)
}

/// Returns the 32-bit number in the attribute `kind`.
fn word(kind: u16, data: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*find(kind, data)?.first_chunk()?))
}

/// Returns the 64-bit number in the attribute `kind`.
fn number(kind: u16, data: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*find(kind, data)?.first_chunk()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

/// Parses the comment in user data: type 0, then its length with the NUL (libnftnl's udata).
fn comment_in(userdata: &[u8]) -> String {
    match userdata {
        [0, len, rest @ ..] => text(rest.get(..usize::from(*len)).unwrap_or_default()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = 0x1000;

    #[test]
    fn change_between_two_datagrams_is_detected_by_generation() {
        let message = |generation: u8| Message {
            body: vec![1, 0, 0, generation, 8, 0],
        };
        assert!(is_of_one_generation(&[]) && is_of_one_generation(&[message(7), message(7)]));
        assert!(!is_of_one_generation(&[message(7), message(7), message(8)]));
    }

    /// Returns the data of a comparison with braid's mark.
    fn compared(operator: u32) -> Vec<u8> {
        let mut data = Vec::new();
        attr(2, &operator.to_be_bytes(), &mut data);
        nest(3, &mut data, |out| attr(1, &MARK.to_ne_bytes(), out));
        data
    }

    /// Returns the data of an iptables match, with the struct of a mark match.
    fn matched(name: &str, mask: u32, is_inverted: bool) -> Vec<u8> {
        let words = [MARK, mask, u32::from(is_inverted).to_le()];
        let mut data = Vec::new();
        attr(1, name.as_bytes(), &mut data);
        attr(3, words.map(u32::to_ne_bytes).as_flattened(), &mut data);
        data
    }

    fn compares_only_the_mark(expressions: &[(&str, Vec<u8>)]) -> bool {
        let mut rule = Rule::new(1, String::new());
        for (name, data) in expressions {
            rule.note(name, data);
        }
        rule.only_compares(&MARK.to_ne_bytes())
    }

    #[test]
    fn rule_only_compares_if_it_has_no_other_condition() {
        let none = Vec::new;
        let own = [
            ("meta", none()),
            ("bitwise", none()),
            ("cmp", compared(0)),
            ("counter", none()),
        ];
        assert!(compares_only_the_mark(&own));
        let old = [
            ("match", matched("mark", MARK, false)),
            ("match", matched("comment", 0, false)),
        ];
        assert!(compares_only_the_mark(&old));
        for other in [
            ("lookup", none()),
            ("limit", none()),
            ("cmp", compared(0)),
            ("match", matched("conntrack", 0, false)),
        ] {
            let name = other.0;
            let narrower = [own.to_vec(), vec![other]].concat();
            assert!(!compares_only_the_mark(&narrower), "{name}");
        }
        assert!(
            !compares_only_the_mark(&[("cmp", compared(1))]),
            "not equal"
        );
        let exact = matched("mark", u32::MAX, false);
        assert!(
            !compares_only_the_mark(&[("match", exact)]),
            "no other bits"
        );
        let inverted = matched("mark", MARK, true);
        assert!(!compares_only_the_mark(&[("match", inverted)]), "inverted");
    }
}
