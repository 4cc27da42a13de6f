//! Parser of `conditionsV4` and `conditionsV6`, which are lists of words in iptables or nft syntax.

use crate::name::IfName;
use crate::plan::thing::condition::{Condition, Links, Test};
use ipnet::{IpNet, Ipv4Net};
use std::iter::Peekable;
use std::net::{IpAddr, Ipv4Addr};
use std::slice::Iter;

/// Maximum number of rules that a list of conditions may expand to.
const MAX_RULES: usize = 1024;
/// Longest link name in bytes.
const NAME_LEN: usize = 15;

/// Parses the conditions of one address family. As in the reference plugin, the first word decides
/// if all words are in iptables syntax or in nft syntax.
pub(super) fn parse(words: &[String], is_v4: bool) -> Result<Vec<Condition>, String> {
    let words = split(words);
    let is_iptables = words
        .first()
        .is_some_and(|word| word.starts_with(['-', '!']));
    let mut reader = Reader {
        words: words.iter().peekable(),
        is_v4,
    };
    let mut conditions = Vec::new();
    while reader.words.peek().is_some() {
        conditions.push(if is_iptables {
            reader.of_iptables()
        } else {
            reader.of_nft()
        }?);
    }
    let mut rules: usize = 1;
    for condition in &conditions {
        if !condition.is_not {
            rules = rules.saturating_mul(condition.any.len());
        }
    }
    if rules > MAX_RULES {
        return Err(format!("would be more than {MAX_RULES} rules"));
    }
    Ok(conditions)
}

/// Splits the list's elements into words; braces and commas are separate words.
fn split(words: &[String]) -> Vec<String> {
    let mut spaced = String::new();
    for c in words.join(" ").chars() {
        if "{},".contains(c) {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Property of a packet that a condition tests.
#[derive(Clone, Copy)]
enum Property {
    Source,
    Destination,
    In,
    Out,
}

struct Reader<'a> {
    words: Peekable<Iter<'a, String>>,
    is_v4: bool,
}

impl Reader<'_> {
    /// Reads `[!] -s net[,net]` and similar.
    fn of_iptables(&mut self) -> Result<Condition, String> {
        let is_not = self.takes("!");
        let property = match self.word()? {
            "-s" | "--source" | "--src" => Property::Source,
            "-d" | "--destination" | "--dst" => Property::Destination,
            "-i" | "--in-interface" => Property::In,
            "-o" | "--out-interface" => Property::Out,
            other => {
                return Err(format!(
                    "unknown iptables option {other:?}: only -s, -d, -i and -o are supported"
                ));
            }
        };
        let mut any = vec![self.test(property, '+')?];
        while self.takes(",") {
            any.push(self.test(property, '+')?);
        }
        Ok(Condition { is_not, any })
    }

    /// Reads `ip saddr [!=] net` and similar, or a set of values in braces.
    fn of_nft(&mut self) -> Result<Condition, String> {
        let property = self.property_of_nft()?;
        let is_not = self.takes("!=");
        if !is_not {
            self.takes("==");
        }
        if !self.takes("{") {
            return Ok(Condition {
                is_not,
                any: vec![self.test(property, '*')?],
            });
        }
        let mut any = vec![self.test(property, '*')?];
        while !self.takes("}") {
            // A comma may follow the last value.
            if !self.takes(",") {
                return Err(format!(
                    "expected \",\" or \"}}\", found {:?}",
                    self.word()?
                ));
            }
            if self.words.peek().is_none_or(|word| *word != "}") {
                any.push(self.test(property, '*')?);
            }
        }
        Ok(Condition { is_not, any })
    }

    fn property_of_nft(&mut self) -> Result<Property, String> {
        self.takes("meta");
        let family = if self.is_v4 { "ip" } else { "ip6" };
        match self.word()? {
            "iifname" | "iif" => Ok(Property::In),
            "oifname" | "oif" => Ok(Property::Out),
            word if word == family => match self.word()? {
                "saddr" => Ok(Property::Source),
                "daddr" => Ok(Property::Destination),
                other => Err(format!(
                    "\"{family} {other}\" is neither \"{family} saddr\" nor \"{family} daddr\""
                )),
            },
            other => Err(format!(
                "unknown nft match {other:?}: only \"{family} saddr\", \"{family} daddr\", iifname and oifname are supported"
            )),
        }
    }

    fn word(&mut self) -> Result<&str, String> {
        match self.words.next() {
            Some(word) => Ok(word),
            None => Err("incomplete: a word is missing at the end".to_owned()),
        }
    }

    fn takes(&mut self, wanted: &str) -> bool {
        self.words.next_if(|word| *word == wanted).is_some()
    }

    /// Reads a value of `property`. A link name that ends with the character `rest` matches every
    /// name with the same beginning.
    fn test(&mut self, property: Property, rest: char) -> Result<Test, String> {
        let is_v4 = self.is_v4;
        let word = self.word()?;
        Ok(match property {
            Property::Source => Test::Source(net(word, is_v4)?),
            Property::Destination => Test::Destination(net(word, is_v4)?),
            Property::In => Test::In(links(word, rest)?),
            Property::Out => Test::Out(links(word, rest)?),
        })
    }
}

fn net(word: &str, is_v4: bool) -> Result<IpNet, String> {
    let net = match word.split_once('/') {
        None => word.parse::<IpAddr>().ok().map(IpNet::from),
        Some((addr, mask)) if mask.contains('.') => masked(addr, mask),
        Some(_) => word.parse().ok(),
    };
    match net {
        Some(net) if net.addr().is_ipv4() == is_v4 => Ok(net.trunc()),
        _ => Err(format!(
            "{word:?} is not an {} address or subnet",
            if is_v4 { "IPv4" } else { "IPv6" }
        )),
    }
}

fn masked(addr: &str, mask: &str) -> Option<IpNet> {
    let mask: Ipv4Addr = mask.parse().ok()?;
    let net = Ipv4Net::with_netmask(addr.parse().ok()?, mask).ok()?;
    Some(IpNet::V4(net))
}

fn links(word: &str, rest: char) -> Result<Links, String> {
    let name = word.trim_matches('"');
    let beginning = name.strip_suffix(rest);
    let is_name = match beginning {
        Some(beginning) => (1..=NAME_LEN).contains(&beginning.len()) && !beginning.contains('/'),
        None => IfName::parse(name).is_ok(),
    };
    if !is_name {
        return Err(format!("{word:?} is not an interface name"));
    }
    Ok(Links {
        name: beginning.unwrap_or(name).to_owned(),
        is_prefix: beginning.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::thing::condition::text;

    fn read(words: &[&str], is_v4: bool) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&words, is_v4).map(|conditions| text(&conditions))
    }

    #[test]
    fn iptables_words_are_parsed() {
        for (words, expected) in [
            (&["-s", "1.2.3.4"][..], "ip saddr 1.2.3.4/32"),
            (&["!", "-d", "192.0.2.0/24"], "ip daddr != 192.0.2.0/24"),
            (
                &["! -d 192.0.2.7/255.255.255.0"],
                "ip daddr != 192.0.2.0/24",
            ),
            (
                &["--src", "10.0.0.0/8,172.16.0.0/12", "-i", "eth+"],
                "ip saddr { 10.0.0.0/8, 172.16.0.0/12 } iifname \"eth*\"",
            ),
            (
                &["!", "-i", "lo", "!", "--out-interface", "br-1.5"],
                "iifname != \"lo\" oifname != \"br-1.5\"",
            ),
            (&[], ""),
        ] {
            assert_eq!(read(words, true).as_deref(), Ok(expected), "{words:?}");
        }
        assert_eq!(
            read(&["!", "-s", "12::34"], false).as_deref(),
            Ok("ip6 saddr != 12::34/128")
        );
    }

    #[test]
    fn nft_words_are_parsed() {
        for (words, expected) in [
            (&["ip", "saddr", "1.2.3.4"][..], "ip saddr 1.2.3.4/32"),
            (
                &["ip daddr != { 192.0.2.1, 192.0.2.4/30, }"],
                "ip daddr != { 192.0.2.1/32, 192.0.2.4/30 }",
            ),
            (
                &["ip", "saddr", "==", "{10.0.0.0/8,172.16.0.0/12}"],
                "ip saddr { 10.0.0.0/8, 172.16.0.0/12 }",
            ),
            (
                &["meta", "iifname", "\"eth*\"", "oif", "!=", "lo"],
                "iifname \"eth*\" oifname != \"lo\"",
            ),
        ] {
            assert_eq!(read(words, true).as_deref(), Ok(expected), "{words:?}");
        }
        assert_eq!(
            read(&["ip6 saddr fd00::/8"], false).as_deref(),
            Ok("ip6 saddr fd00::/8")
        );
    }

    #[test]
    fn a_refusal_names_the_unknown_word() {
        for (words, is_v4, said) in [
            (&["-m", "geoip"][..], true, "\"-m\""),
            (&["-s", "10.0.0.0/8", "-p", "tcp"], true, "\"-p\""),
            (&["-s"], true, "a word is missing"),
            (&["-s", "example.com"], true, "\"example.com\""),
            (
                &["-s", "10.0.0.0/8"],
                false,
                "not an IPv6 address or subnet",
            ),
            (
                &["-s", "10.0.0.0/255.0.255.0"],
                true,
                "\"10.0.0.0/255.0.255.0\"",
            ),
            (
                &["-i", "an-interface-too-long"],
                true,
                "\"an-interface-too-long\"",
            ),
            (&["ip", "ttl", "1"], true, "\"ip ttl\""),
            (&["ip6", "saddr", "::1"], true, "\"ip6\""),
            (
                &["ip", "saddr", "10.0.0.1-10.0.0.9"],
                true,
                "\"10.0.0.1-10.0.0.9\"",
            ),
            (&["ip", "saddr", "@mine"], true, "\"@mine\""),
            (&["ip", "saddr", "{", "10.0.0.1"], true, "a word is missing"),
            (
                &["ip", "saddr", "{", "10.0.0.1", "10.0.0.2", "}"],
                true,
                "\"10.0.0.2\"",
            ),
            (&["ct", "state", "new"], true, "\"ct\""),
        ] {
            let refusal = read(words, is_v4).expect_err("refused");
            assert!(refusal.contains(said), "{words:?}: {refusal}");
        }
        let many = vec!["10.0.0.1"; 33].join(",");
        assert!(
            read(&["-s", &many, "-d", &many], true)
                .expect_err("refused")
                .contains("1024")
        );
        assert!(read(&["-s", &many], true).is_ok());
    }
}
