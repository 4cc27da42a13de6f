//! Conditions that a packet meets before a port of the host leads it to a container.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One condition of a list, all of which hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// None of the tests is true, instead of one of them.
    pub is_not: bool,
    /// At least one, all about the same property.
    pub any: Vec<Test>,
}

/// A question about a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// Its source is of this net.
    Source(IpNet),
    /// Its destination, an address of the host, is.
    Destination(IpNet),
    /// It came in by this link.
    In(Links),
    /// It leaves by this link.
    Out(Links),
}

/// A link by its name, or all whose names begin so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The name, or how it begins.
    pub name: String,
    /// It is how it begins.
    pub is_prefix: bool,
}

/// The conditions of each family of addresses; none where the list is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Of IPv4.
    pub v4: Vec<Condition>,
    /// Of IPv6.
    pub v6: Vec<Condition>,
}

impl Conditions {
    /// Those of one family.
    pub fn of(&self, is_v4: bool) -> &[Condition] {
        if is_v4 { &self.v4 } else { &self.v6 }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// The rules that let through who meets all conditions: in each a list of tests and whether each
/// must be false.
pub fn rules(conditions: &[Condition]) -> Vec<Vec<(bool, &Test)>> {
    let mut rules = vec![Vec::new()];
    for Condition { is_not, any } in conditions {
        if *is_not {
            for rule in &mut rules {
                rule.extend(any.iter().map(|test| (true, test)));
            }
        } else {
            let with = |rule: &Vec<(bool, _)>, test| [&rule[..], &[(false, test)]].concat();
            rules = rules
                .iter()
                .flat_map(|rule| any.iter().map(move |test| with(rule, test)))
                .collect();
        }
    }
    rules
}

/// Stands for the conditions in the name of a chain, the same for all who ask for the same
/// (FNV-1a).
pub fn digest(conditions: &[Condition]) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!(
        "{:016x}",
        text(conditions).bytes().fold(0xcbf2_9ce4_8422_2325, step)
    )
}

/// As `nft` writes them.
pub fn text(conditions: &[Condition]) -> String {
    conditions
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.any.first() else {
            return Ok(());
        };
        f.write_str(first.property())?;
        f.write_str(if self.is_not { " != " } else { " " })?;
        let values = self.any.iter().map(Test::value).collect::<Vec<_>>();
        if values.len() == 1 {
            f.write_str(&values[0])
        } else {
            write!(f, "{{ {} }}", values.join(", "))
        }
    }
}

impl Test {
    fn property(&self) -> &'static str {
        match self {
            Self::Source(IpNet::V4(_)) => "ip saddr",
            Self::Source(IpNet::V6(_)) => "ip6 saddr",
            Self::Destination(IpNet::V4(_)) => "ip daddr",
            Self::Destination(IpNet::V6(_)) => "ip6 daddr",
            Self::In(_) => "iifname",
            Self::Out(_) => "oifname",
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Source(net) | Self::Destination(net) => net.to_string(),
            Self::In(Links { name, is_prefix }) | Self::Out(Links { name, is_prefix }) => {
                format!(
                    "{:?}",
                    format!("{name}{}", if *is_prefix { "*" } else { "" })
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a net")
    }

    fn links(name: &str) -> Links {
        Links {
            name: name.to_owned(),
            is_prefix: false,
        }
    }

    #[test]
    fn each_rule_has_one_alternative_of_each_condition_and_nothing_that_must_not_be() {
        let [one, two, not] =
            ["10.0.0.0/8", "172.16.0.0/12", "10.9.0.0/16"].map(|text| Test::Source(net(text)));
        let [lo, lan] = ["lo", "lan"].map(|name| Test::In(links(name)));
        let conditions = [
            Condition {
                is_not: false,
                any: vec![one.clone(), two.clone()],
            },
            Condition {
                is_not: true,
                any: vec![not.clone()],
            },
            Condition {
                is_not: false,
                any: vec![lo.clone(), lan.clone()],
            },
        ];
        let rule = |net, link| vec![(false, net), (true, &not), (false, link)];
        assert_eq!(
            rules(&conditions),
            [
                rule(&one, &lo),
                rule(&one, &lan),
                rule(&two, &lo),
                rule(&two, &lan)
            ]
        );
        assert_eq!(rules(&[]), [vec![]]);
        let said = "ip saddr { 10.0.0.0/8, 172.16.0.0/12 } ip saddr != 10.9.0.0/16 iifname { \"lo\", \"lan\" }";
        assert_eq!(text(&conditions), said);
    }

    #[test]
    fn the_same_conditions_have_the_same_digest() {
        let of = |text: &str| {
            digest(&[Condition {
                is_not: false,
                any: vec![Test::Source(net(text))],
            }])
        };
        assert_eq!(of("10.0.0.0/8"), of("10.0.0.0/8"));
        assert_ne!(of("10.0.0.0/8"), of("10.0.0.0/9"));
        assert_eq!(of("fd00::/8").len(), 16);
    }
}
