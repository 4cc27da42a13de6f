//! Host links moved into the container.

use super::state::{State, Verb, found, refuse_if};
use crate::name::{IfName, Mac, Ns};
pub use crate::plan::fact::device::{Device, DeviceFact};
use crate::plan::fact::link::Hardware;
use crate::plan::fact::link::LinkFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Not;

/// A link moved from the host into the container. It returns to the host with its old name and
/// state. Addresses, routes and qdiscs that were added in the container are then deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The link in the container.
    pub to: LinkRef,
    /// Name on the host. `None` if neither a record nor the configuration has the name. The link's
    /// alias in the container then has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IfName>,
    /// State on the host before the move; `None` if there is no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Was>,
}

/// State of a link on the host before it was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was {
    /// Kind of the link as in `ip link`; empty for hardware.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Alias on the host. In the container, the alias is the link's host name instead.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Alternative names on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alt_names: Vec<String>,
    /// Administratively up.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub up: bool,
    /// Identity of the hardware; empty for a virtual link.
    #[serde(default, skip_serializing_if = "Hardware::is_unknown")]
    pub hardware: Hardware,
    /// Interface index in the container, read after the move. `None` as long as the move is only
    /// planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

impl Moved {
    /// Plans the move of the host link `from`, with the state in `fact`, to `to`.
    pub fn new(to: LinkRef, from: IfName, fact: &LinkFact) -> Self {
        let was = Was {
            kind: fact.kind.clone(),
            mac: fact.mac,
            alias: fact.alias.clone(),
            alt_names: fact.alt_names.clone(),
            up: fact.up,
            hardware: fact.hardware.clone(),
            index: None,
        };
        Self {
            to,
            from: Some(from),
            was: Some(was),
        }
    }

    /// Returns a moved link without a record, for its return to the host. The link gets the host
    /// name in its alias. If the alias has none, the link gets the configured name `from`.
    pub fn any(to: LinkRef, from: Option<IfName>) -> Self {
        Self {
            to,
            from,
            was: None,
        }
    }

    /// Stores the link's index in the container.
    pub fn learn(&mut self, index: u32) {
        if let Some(was) = &mut self.was {
            was.index = Some(index);
        }
    }

    /// True if the link's name in the container is one of its alternative names on the host. A link
    /// can't have the same name twice, so the alternative name is removed before the move.
    pub fn is_by_alt_name(&self) -> bool {
        self.was
            .iter()
            .flat_map(|was| &was.alt_names)
            .any(|alt| alt == self.to.name.as_str())
    }

    /// Returns the link on the host; `None` if its name is unknown.
    pub fn origin(&self) -> Option<LinkRef> {
        self.from.clone().map(LinkRef::host)
    }
}

impl Was {
    /// True if `fact` is the moved link. The hardware decides, because a container can't change it.
    /// If the hardware is unknown, the alias `from` or the old hardware address decides.
    pub fn is_it(&self, from: &IfName, fact: &LinkFact) -> bool {
        let is_told = fact.alias == from.as_str() || self.mac.is_some() && fact.mac == self.mac;
        self.may_be(fact) && (!self.hardware.is_unknown() || is_told)
    }

    /// True if `fact` may be the moved link: it has the same kind and hardware.
    pub fn may_be(&self, fact: &LinkFact) -> bool {
        fact.kind == self.kind && fact.hardware == self.hardware
    }

    /// True if `fact` is the moved link with its hardware address and alias restored. `fact` is a
    /// host link with the moved link's old name.
    pub fn is_given_back(&self, fact: &LinkFact) -> bool {
        self.may_be(fact) && fact.mac == self.mac && fact.alias == self.alias
    }

    /// True if `fact` is the moved link, back on the host under another name. It must have the
    /// alias `from`, or be hardware that is down and has no master. The kernel returns hardware in
    /// this state, under any name, when the container's namespace ends. Another link may merely
    /// have the same hardware address.
    pub fn is_back(&self, from: &IfName, fact: &LinkFact) -> bool {
        let is_idle = self.kind.is_empty() && !fact.up && fact.master.is_none();
        self.is_it(from, fact) && (fact.alias == from.as_str() || is_idle)
    }
}

impl State for Moved {
    fn ns(&self) -> Ns {
        self.to.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = &self.to.name;
        match (verb, &self.from) {
            (Verb::Add, Some(from)) => {
                if self.is_by_alt_name() {
                    write!(
                        f,
                        "ip link property del dev {from} altname {to} # of host\n  "
                    )?;
                }
                write!(
                    f,
                    "ip link set {from} # of host\n      netns {} name {to} alias {:?}",
                    self.to.ns,
                    from.as_str()
                )
            }
            (Verb::Del, Some(from)) => {
                write!(f, "ip link set {to} netns host name {from}")?;
                let was = self.was.iter();
                was.clone()
                    .try_for_each(|was| write!(f, " alias {:?}", was.alias))?;
                f.write_str(if was.clone().any(|was| was.up) {
                    " up"
                } else {
                    ""
                })?;
                if self.is_by_alt_name() {
                    write!(
                        f,
                        "\n  ip link property add dev {from} altname {to} # of host"
                    )?;
                }
                Ok(())
            }
            (Verb::Add | Verb::Del, None) => {
                write!(f, "# move {to} back to the host with the name in its alias")
            }
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Link(self.to.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let fact = found(&self.to, facts)?;
        let kind = self
            .was
            .as_ref()
            .map_or(fact.kind.as_str(), |was| &was.kind);
        refuse_if(fact.kind != kind, || {
            format!("link {} is of kind {:?}, not {kind:?}", self.to, fact.kind)
        })?;
        let index = self.was.as_ref().and_then(|was| was.index);
        refuse_if(index.is_some_and(|index| index != fact.index), || {
            format!("{} is a different link now", self.to)
        })
    }

    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(facts.link(&self.to).is_some(), || {
            format!("link {} still exists", self.to)
        })
    }

    fn predict(&self, facts: &mut Facts) {
        let Some(origin) = self.origin() else { return };
        let Some(fact) = facts.links.remove(&origin) else {
            return;
        };
        let alias = origin.name.to_string();
        let mut there = LinkFact {
            up: false,
            oper_up: false,
            running: false,
            master: None,
            alias,
            ..fact
        };
        there.alt_names.retain(|alt| alt != self.to.name.as_str());
        facts.links.insert(self.to.clone(), there);
    }

    fn releases(&self) -> Option<&LinkRef> {
        Some(&self.to)
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.to, &self.from) == (&other.to, &other.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a good name")
    }

    fn link(kind: &str, mac: u8, alias: &str) -> LinkFact {
        LinkFact {
            alias: alias.to_owned(),
            ..LinkFact::planned(kind, Some(Mac([mac; 6])), 1500, false)
        }
    }

    #[test]
    fn a_link_is_recognized_by_its_alias_or_hardware_address() {
        let from = name("ens5");
        let hardware = Moved::new(LinkRef::pod(name("net1")), from.clone(), &link("", 2, ""))
            .was
            .expect("its state");
        let veth = Moved::new(
            LinkRef::pod(name("net1")),
            from.clone(),
            &link("veth", 2, ""),
        )
        .was
        .expect("its state");
        for (fact, is_it, is_back) in [
            (link("", 2, "ens5"), true, true),
            (link("", 4, "ens5"), true, true),
            (link("", 2, ""), true, true),
            (link("", 4, ""), false, false),
            (link("veth", 2, "ens5"), false, false),
        ] {
            assert_eq!(
                (hardware.is_it(&from, &fact), hardware.is_back(&from, &fact)),
                (is_it, is_back),
                "{fact:?}"
            );
        }
        // Two links of a bond have the same address.
        let of_a_bond = LinkFact {
            up: true,
            master: Some(3),
            ..link("", 2, "")
        };
        assert!(!hardware.is_back(&from, &of_a_bond));
        // A veth is deleted with its namespace, so a host link with its address is a different one.
        let other = link("veth", 2, "");
        assert_eq!(
            (veth.is_it(&from, &other), veth.is_back(&from, &other)),
            (true, false)
        );
    }

    #[test]
    fn a_later_step_finds_the_moved_link_in_the_container() {
        let (from, to) = (LinkRef::host(name("ens5")), LinkRef::pod(name("net1")));
        let mut facts = Facts::default();
        facts.links.insert(from.clone(), link("", 2, ""));
        Moved::new(to.clone(), from.name.clone(), &facts.links[&from]).predict(&mut facts);
        let there = facts.link(&to).expect("it is there");
        assert_eq!(
            (there.mac, there.up, there.alias.as_str()),
            (Some(Mac([2; 6])), false, "ens5")
        );
        assert_eq!(facts.link(&from), None);
    }
}
