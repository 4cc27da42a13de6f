//! Requests as text, such as `newaddr create excl ack: dev 7 10.1.0.2/24`.

use crate::kernel::link::ifla;
use crate::kernel::scripted::NFT;
use crate::sys::netlink::attributes_of;
use crate::sys::netlink::fake::SentRequest;
use crate::sys::rtnl::{ip_of, text_of, u32_of};
use braid_core::name::Mac;

const ROUTE: [(u16, &str); 12] = [
    (16, "newlink"),
    (17, "dellink"),
    (18, "getlink"),
    (19, "setlink"),
    (20, "newaddr"),
    (21, "deladdr"),
    (22, "getaddr"),
    (24, "newroute"),
    (25, "delroute"),
    (28, "newneigh"),
    (29, "delneigh"),
    (90, "getnsid"),
];
const NF_TABLES: [(u16, &str); 5] = [
    (0x10, "batch begin"),
    (0x11, "batch end"),
    (0x0a0c, "newsetelem"),
    (0x0a0d, "getsetelem"),
    (0x0a0e, "delsetelem"),
];
/// `NFNL_SUBSYS_NFTABLES` in the upper byte of a type.
const SUBSYS: u16 = 0x0a00;
const FLAGS: [(u16, &str); 6] = [
    (0x400, "create"),
    (0x800, "append"),
    (0x200, "excl"),
    (0x100, "replace"),
    (0x8, "echo"),
    (0x4, "ack"),
];
const DUMP: u16 = 0x300;
const IFLA_GROUP: u16 = 27;

/// Describes a request by its type, its flags, and the attributes that these tests compare.
pub(super) fn describe(socket: &str, request: &SentRequest) -> String {
    let is_nft = socket == NFT;
    let kinds = if is_nft { &NF_TABLES[..] } else { &ROUTE };
    let name = kinds
        .iter()
        .find(|(kind, _)| *kind == request.kind)
        .map_or("unknown", |(_, name)| name);
    let body = match request.kind {
        kind if is_nft && kind > SUBSYS => element(&request.body),
        _ if is_nft => Vec::new(),
        16..=19 => link(&request.body),
        20..=22 => addr(&request.body),
        24 | 25 => route(&request.body),
        28 | 29 => neigh(&request.body),
        _ => Vec::new(),
    };
    let head = head(name, request.flags);
    if body.is_empty() {
        head
    } else {
        format!("{head}: {}", body.join(" "))
    }
}

/// Returns the name of the type, and the flags without `NLM_F_REQUEST`.
fn head(name: &str, flags: u16) -> String {
    let mut words = vec![name];
    let mut rest = flags;
    if name.starts_with("get") && flags & DUMP == DUMP {
        words.push("dump");
        rest &= !DUMP;
    }
    for (flag, word) in FLAGS {
        if rest & flag != 0 {
            words.push(word);
        }
    }
    words.join(" ")
}

fn link(body: &[u8]) -> Vec<String> {
    let mut words = dev(body);
    let [flags, change] = [8, 12].map(|at| u32_of(&body[at..]).expect("ifinfomsg"));
    for (flag, name) in [(0x1, "up"), (0x100, "promisc")] {
        if change & flag != 0 {
            let off = if flags & flag == 0 { "not " } else { "" };
            words.push(format!("{off}{name}"));
        }
    }
    for (kind, value) in attributes_of(&body[16..]) {
        let number = || u32_of(value).expect("a number");
        words.extend(match kind {
            ifla::IFNAME => Some(format!("name {}", text_of(value))),
            ifla::ADDRESS => value.try_into().ok().map(|mac| format!("mac {}", Mac(mac))),
            ifla::MTU => Some(format!("mtu {}", number())),
            ifla::LINK => Some(format!("parent {}", number())),
            ifla::MASTER => Some(format!("master {}", number())),
            ifla::TXQLEN => Some(format!("txqueuelen {}", number())),
            ifla::IFALIAS => Some(format!("alias {}", text_of(value))),
            ifla::LINKINFO => kind_of(value),
            IFLA_GROUP => Some("group".to_owned()),
            _ => None,
        });
    }
    words
}

fn kind_of(info: &[u8]) -> Option<String> {
    let (_, kind) = attributes_of(info).find(|(kind, _)| *kind == ifla::INFO_KIND)?;
    Some(format!("kind {}", text_of(kind)))
}

fn addr(body: &[u8]) -> Vec<String> {
    const LOCAL: u16 = 2;
    let mut words = dev(body);
    words.extend(ip(LOCAL, &body[8..]).map(|ip| format!("{ip}/{}", body[1])));
    words
}

fn route(body: &[u8]) -> Vec<String> {
    const DST: u16 = 1;
    const OIF: u16 = 4;
    let mut words = Vec::new();
    words.extend(ip(DST, &body[12..]).map(|ip| format!("{ip}/{}", body[1])));
    for (kind, index) in attributes_of(&body[12..]) {
        if kind == OIF {
            words.push(format!("dev {}", u32_of(index).expect("an index")));
        }
    }
    words
}

fn neigh(body: &[u8]) -> Vec<String> {
    const DST: u16 = 1;
    let mut words = dev(body);
    words.extend(ip(DST, &body[12..]));
    words
}

/// Returns the name of the set, and each element's key if it is an address.
fn element(body: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    for (kind, value) in attributes_of(&body[4..]) {
        match kind {
            2 => words.push(text_of(value)),
            3 => {
                for (_, element) in attributes_of(value) {
                    let key = attributes_of(element).find(|(kind, _)| *kind == 1);
                    words.extend(key.and_then(|(_, key)| ip(1, key)));
                }
            }
            _ => {}
        }
    }
    words
}

/// Returns the link's index, which is at the same offset in `ifinfomsg`, `ifaddrmsg` and `ndmsg`.
fn dev(body: &[u8]) -> Vec<String> {
    match u32_of(&body[4..]) {
        None | Some(0) => Vec::new(),
        Some(index) => vec![format!("dev {index}")],
    }
}

fn ip(wanted: u16, attributes: &[u8]) -> Option<String> {
    let (_, ip) = attributes_of(attributes).find(|(kind, _)| *kind == wanted)?;
    Some(ip_of(ip)?.to_string())
}
