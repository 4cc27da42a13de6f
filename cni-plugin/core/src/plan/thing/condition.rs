//! Conditions that a packet must meet to be forwarded from a host port to a container.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A condition that a packet must meet. A packet must meet all conditions of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// True if all tests must fail; false if at least one test must succeed.
    pub is_not: bool,
    /// Tests of the same property of a packet; at least one.
    pub any: Vec<Test>,
}

/// A test of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// The source address is in this subnet.
    Source(IpNet),
    /// The destination address, which belongs to the host, is in this subnet.
    Destination(IpNet),
    /// The packet arrived through one of these links.
    In(Links),
    /// The packet leaves through one of these links.
    Out(Links),
}

/// A link by name, or all links with a common prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Name of the link, or prefix of the names.
    pub name: String,
    /// True if `name` is a prefix.
    pub is_prefix: bool,
}

/// Conditions by address family; an empty list means no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Conditions for IPv4.
    pub v4: Vec<Condition>,
    /// Conditions for IPv6.
    pub v6: Vec<Condition>,
}

impl Conditions {
    /// Returns the conditions of one family.
    pub fn of(&self, is_v4: bool) -> &[Condition] {
        if is_v4 { &self.v4 } else { &self.v6 }
    }

    /// True if neither family has conditions.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// Returns rules, each a list of tests. A packet that matches one of the rules meets all
/// conditions. The flag of a test is true if the test must fail.
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

/// Returns a hash (FNV-1a) of the conditions, which is part of a chain's name. Equal conditions
/// have equal hashes.
pub fn digest(conditions: &[Condition]) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!(
        "{:016x}",
        text(conditions).bytes().fold(0xcbf2_9ce4_8422_2325, step)
    )
}

/// Returns the conditions in `nft` syntax.
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
    fn each_rule_has_an_alternative_of_each_condition_and_all_negations() {
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
    fn equal_conditions_have_equal_digests() {
        let digest_of = |text: &str| {
            digest(&[Condition {
                is_not: false,
                any: vec![Test::Source(net(text))],
            }])
        };
        assert_eq!(digest_of("10.0.0.0/8"), digest_of("10.0.0.0/8"));
        assert_ne!(digest_of("10.0.0.0/8"), digest_of("10.0.0.0/9"));
        assert_eq!(digest_of("fd00::/8").len(), 16);
    }
}
