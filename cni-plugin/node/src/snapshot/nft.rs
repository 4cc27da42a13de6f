//! nf_tables: braid's own tables whole, of other tables the names of tables and chains.

use super::attributes::{Attribute, Fields, Form, add};
use super::listing::{Listing, MOST};
use crate::sys::netlink::{KernelError, Message, Socket, attr, attributes_of, find};
use crate::sys::nft::batch::SUBSYS;
use crate::sys::rtnl::text_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GETTABLE: u16 = 1;
const GETCHAIN: u16 = 4;
const GETRULE: u16 = 7;
const GETSET: u16 = 10;
const GETSETELEM: u16 = 13;
/// Length of `struct nfgenmsg`.
const GENMSG_LEN: usize = 4;
/// Attribute with the table's name in messages about tables, chains, rules and sets.
const TABLE_NAME: u16 = 1;
/// Part of the name of each of braid's tables.
const OWN: &str = "braid";

/// Attributes of `include/uapi/linux/netfilter/nf_tables.h`.
const CHAIN: &[Attribute] = &[
    (1, "table", Form::Skipped),
    (2, "handle", Form::NetworkNumber),
    (3, "name", Form::Text),
    (
        4,
        "hook",
        Form::Nested(&[
            (1, "number", Form::NetworkNumber),
            (2, "priority", Form::NetworkNumber),
            (3, "device", Form::Text),
        ]),
    ),
    (5, "policy", Form::Verdict),
    (6, "use", Form::NetworkNumber),
    (7, "type", Form::Text),
    (8, "counters", Form::Skipped),
    (10, "flags", Form::NetworkNumber),
];
const SET: &[Attribute] = &[
    (1, "table", Form::Skipped),
    (2, "name", Form::Text),
    (3, "flags", Form::NetworkNumber),
    (4, "key_type", Form::NetworkNumber),
    (5, "key_len", Form::NetworkNumber),
    (6, "data_type", Form::NetworkNumber),
    (7, "data_len", Form::NetworkNumber),
    (9, "description", Form::Skipped),
    (13, "userdata", Form::Skipped),
    (16, "handle", Form::NetworkNumber),
];
const VERDICT: &[Attribute] = &[(1, "code", Form::Verdict), (2, "chain", Form::Text)];
/// Data of an expression or element.
const DATA: &[Attribute] = &[
    (1, "value", Form::Hex),
    (2, "verdict", Form::Nested(VERDICT)),
];
const ELEMENT: &[Attribute] = &[
    (1, "key", Form::Nested(DATA)),
    (2, "data", Form::Nested(DATA)),
    (3, "flags", Form::NetworkNumber),
    (6, "userdata", Form::Skipped),
    (10, "key_end", Form::Nested(DATA)),
];
const RULE: &[Attribute] = &[
    (1, "table", Form::Skipped),
    (2, "chain", Form::Skipped),
    (3, "handle", Form::NetworkNumber),
    (4, "expressions", Form::Skipped),
    (6, "position", Form::Skipped),
    (7, "userdata", Form::Skipped),
];

/// Returns the attributes of an expression.
fn expression(name: &str) -> &'static [Attribute] {
    match name {
        "immediate" => &[
            (1, "dreg", Form::NetworkNumber),
            (2, "data", Form::Nested(DATA)),
        ],
        "payload" => &[
            (1, "dreg", Form::NetworkNumber),
            (2, "base", Form::NetworkNumber),
            (3, "offset", Form::NetworkNumber),
            (4, "len", Form::NetworkNumber),
            (5, "sreg", Form::NetworkNumber),
        ],
        "cmp" => &[
            (1, "sreg", Form::NetworkNumber),
            (2, "op", Form::NetworkNumber),
            (3, "data", Form::Nested(DATA)),
        ],
        "meta" => &[
            (1, "dreg", Form::NetworkNumber),
            (2, "key", Form::NetworkNumber),
            (3, "sreg", Form::NetworkNumber),
        ],
        "lookup" => &[
            (1, "set", Form::Text),
            (2, "sreg", Form::NetworkNumber),
            (3, "dreg", Form::NetworkNumber),
            (5, "flags", Form::NetworkNumber),
        ],
        "bitwise" => &[
            (1, "sreg", Form::NetworkNumber),
            (2, "dreg", Form::NetworkNumber),
            (3, "len", Form::NetworkNumber),
            (4, "mask", Form::Nested(DATA)),
            (5, "xor", Form::Nested(DATA)),
            (6, "op", Form::NetworkNumber),
        ],
        "ct" => &[
            (1, "dreg", Form::NetworkNumber),
            (2, "key", Form::NetworkNumber),
            (3, "direction", Form::NetworkNumber),
            (4, "sreg", Form::NetworkNumber),
        ],
        "fib" => &[
            (1, "dreg", Form::NetworkNumber),
            (2, "result", Form::NetworkNumber),
            (3, "flags", Form::NetworkNumber),
        ],
        "nat" => &[
            (1, "type", Form::NetworkNumber),
            (2, "family", Form::NetworkNumber),
            (3, "addr_reg", Form::NetworkNumber),
            (5, "port_reg", Form::NetworkNumber),
            (7, "flags", Form::NetworkNumber),
        ],
        "counter" => &[
            (1, "bytes", Form::NetworkNumber),
            (2, "packets", Form::NetworkNumber),
        ],
        "limit" => &[
            (1, "rate", Form::NetworkNumber),
            (2, "unit", Form::NetworkNumber),
            (3, "burst", Form::NetworkNumber),
            (4, "type", Form::NetworkNumber),
            (5, "flags", Form::NetworkNumber),
        ],
        _ => &[],
    }
}

/// Lists the tables in the namespace of `socket`, each with its chains. A table of braid also has
/// its rules, sets and elements.
pub fn tables(socket: &mut Socket) -> Result<Listing, KernelError> {
    let mut listing = Listing::default();
    let chains = by_table(socket.dump(SUBSYS | GETCHAIN, |out| about(out, 0, &[]))?);
    for message in socket.dump(SUBSYS | GETTABLE, |out| about(out, 0, &[]))? {
        let Some(table) = Table::of(&message) else {
            continue;
        };
        let chains = chains.get(&table).map(Vec::as_slice).unwrap_or_default();
        let room = MOST.saturating_sub(listing.objects.len());
        listing.left_out += chains.len().saturating_sub(room);
        let chains = &chains[..chains.len().min(room)];
        let object = if table.name.contains(OWN) {
            whole(socket, &table, chains)?
        } else {
            table.with([("chains", chains.iter().map(|chain| named(chain)).collect())])
        };
        listing.objects.push(object);
    }
    Ok(listing)
}

/// Family and name of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Table {
    family: u8,
    name: String,
}

impl Table {
    fn of(message: &Message) -> Option<Self> {
        let family = *message.body.first()?;
        let name = text_of(find(TABLE_NAME, attributes_in(message))?);
        Some(Self { family, name })
    }

    /// Returns an object with lists of the table's contents.
    fn with<const N: usize>(&self, lists: [(&str, Vec<Value>); N]) -> Value {
        // `NFPROTO_*` of include/uapi/linux/netfilter.h.
        let family = match self.family {
            1 => "inet",
            2 => "ip",
            3 => "arp",
            5 => "netdev",
            7 => "bridge",
            10 => "ip6",
            _ => "other",
        };
        let mut fields = Fields::new();
        fields.insert("family".to_owned(), family.into());
        fields.insert("name".to_owned(), self.name.as_str().into());
        for (name, list) in lists {
            fields.insert(name.to_owned(), list.into());
        }
        Value::Object(fields)
    }
}

/// Reads a table with its contents. `chains` has the attributes of its chains.
fn whole(socket: &mut Socket, table: &Table, chains: &[Vec<u8>]) -> Result<Value, KernelError> {
    let about_it = |out: &mut Vec<u8>| about(out, table.family, &[&table.name]);
    let mut rules: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in socket.dump(SUBSYS | GETRULE, about_it)? {
        let body = attributes_in(&message);
        if Table::of(&message).as_ref() == Some(table)
            && let Some(chain) = find(2, body).map(text_of)
        {
            rules.entry(chain).or_default().push(rule(body));
        }
    }
    let mut shown = Vec::new();
    for chain in chains {
        let mut chain = fields_of(chain, CHAIN);
        let name = chain.get("name").and_then(Value::as_str);
        let rules = name.and_then(|name| rules.remove(name)).unwrap_or_default();
        chain.insert("rules".to_owned(), rules.into());
        shown.push(Value::Object(chain));
    }
    let mut sets = Vec::new();
    for message in socket.dump(SUBSYS | GETSET, about_it)? {
        let body = attributes_in(&message);
        let mut set = fields_of(body, SET);
        let name = find(2, body).map(text_of).unwrap_or_default();
        let elements = elements(socket, table, &name)?;
        set.insert("elements".to_owned(), elements.into());
        sets.push(Value::Object(set));
    }
    Ok(table.with([("chains", shown), ("sets", sets)]))
}

/// Returns the name of a chain alone.
fn named(chain: &[u8]) -> Value {
    json!({"name": find(3, chain).map(text_of)})
}

fn rule(body: &[u8]) -> Value {
    let mut fields = fields_of(body, RULE);
    add_comment(find(7, body), &mut fields);
    let mut expressions = Vec::new();
    for (_, one) in attributes_of(find(4, body).unwrap_or_default()) {
        let name = find(1, one).map(text_of).unwrap_or_default();
        let table = expression(&name);
        let mut shown = fields_of(find(2, one).unwrap_or_default(), table);
        shown.insert("name".to_owned(), name.into());
        expressions.push(Value::Object(shown));
    }
    fields.insert("expressions".to_owned(), expressions.into());
    Value::Object(fields)
}

fn elements(socket: &mut Socket, table: &Table, set: &str) -> Result<Vec<Value>, KernelError> {
    let about_it = |out: &mut Vec<u8>| about(out, table.family, &[&table.name, set]);
    let mut elements = Vec::new();
    for message in socket.dump(SUBSYS | GETSETELEM, about_it)? {
        for (_, element) in attributes_of(find(3, attributes_in(&message)).unwrap_or_default()) {
            let mut fields = fields_of(element, ELEMENT);
            add_comment(find(6, element), &mut fields);
            elements.push(Value::Object(fields));
        }
    }
    Ok(elements)
}

/// Adds the comment in the user data of a rule or element: type, length and text.
fn add_comment(user_data: Option<&[u8]>, fields: &mut Fields) {
    let Some([0, len, text @ ..]) = user_data else {
        return;
    };
    let text = text.get(..usize::from(*len)).unwrap_or(text);
    fields.insert("comment".to_owned(), text_of(text).into());
}

/// Sorts messages about chains by their tables. Returns the attributes of each chain.
fn by_table(messages: Vec<Message>) -> BTreeMap<Table, Vec<Vec<u8>>> {
    let mut chains: BTreeMap<Table, Vec<Vec<u8>>> = BTreeMap::new();
    for message in messages {
        if let Some(table) = Table::of(&message) {
            let attributes = attributes_in(&message).to_vec();
            chains.entry(table).or_default().push(attributes);
        }
    }
    chains
}

fn attributes_in(message: &Message) -> &[u8] {
    message.body.get(GENMSG_LEN..).unwrap_or_default()
}

fn fields_of(bytes: &[u8], table: &[Attribute]) -> Fields {
    let mut fields = Fields::new();
    add(bytes, table, &mut fields);
    fields
}

/// Writes the body of a request about the named objects: a table, and then a set in it.
fn about(out: &mut Vec<u8>, family: u8, names: &[&str]) {
    out.extend([family, 0, 0, 0]);
    for (kind, name) in (TABLE_NAME..).zip(names) {
        attr(kind, &[name.as_bytes(), b"\0"].concat(), out);
    }
}
