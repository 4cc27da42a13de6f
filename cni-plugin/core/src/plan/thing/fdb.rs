//! Static entries of a link's forwarding database.

use super::state::{State, Verb, refuse_if};
use crate::name::Ns;
pub use crate::plan::fact::fdb::Fdb;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use std::fmt;

impl Fdb {
    /// True if this hardware address may have several remote ends, which all get a copy of a frame.
    pub fn is_flooded(&self) -> bool {
        self.mac.0 == [0; 6] || self.mac.0[0] & 1 == 1
    }

    /// True if `found` is this entry as the kernel reports it. The kernel omits a port or VNI that
    /// equals the link's, and a VLAN that the link ignores.
    fn is_shown_as(&self, found: &Self) -> bool {
        let is_same = (&self.at, self.mac, self.dst) == (&found.at, found.mac, found.dst);
        is_same
            && (found.port.is_none() || found.port == self.port)
            && (found.vni.is_none() || found.vni == self.vni)
            && (found.vlan.is_none() || found.vlan == self.vlan)
    }
}

impl State for Fdb {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A second remote end of the same address is appended.
        let add = if self.is_flooded() { "append" } else { "add" };
        let (mac, name, dst) = (self.mac, &self.at.name, self.dst);
        let word = verb.word(add, "del");
        write!(f, "bridge fdb {word} {mac} dev {name} dst {dst}")?;
        if let Some(port) = self.port {
            write!(f, " port {port}")?;
        }
        if let Some(vni) = self.vni {
            write!(f, " vni {vni}")?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {vlan}")?;
        }
        f.write_str(verb.word(" self permanent", " self"))
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Fdb(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let mut found = facts.fdb.get(&self.at).into_iter().flatten();
        refuse_if(!found.any(|found| self.is_shown_as(found)), || {
            let (mac, dst, at) = (self.mac, self.dst, &self.at);
            format!("{mac} has no permanent entry with dst {dst} at {at}")
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{IfName, Mac};
    use crate::plan::step::Step;
    use crate::plan::thing::{Link, LinkKind};
    use crate::plan::undo::undo;

    fn entry(last: u8) -> Fdb {
        Fdb {
            at: LinkRef::pod(IfName::parse("eth0").expect("a name")),
            mac: Mac([2, 0, 0, 0, 0, last]),
            dst: "192.0.2.7".parse().expect("an address"),
            port: None,
            vni: None,
            vlan: None,
        }
    }

    /// Facts with this entry alone.
    fn shown(entry: Fdb) -> Facts {
        let mut facts = Facts::default();
        facts.fdb.insert(entry.at.clone(), vec![entry]);
        facts
    }

    #[test]
    fn an_entry_prints_as_the_command_of_bridge() {
        let full = Fdb {
            port: Some(8472),
            vni: Some(7),
            vlan: Some(5),
            ..entry(1)
        };
        let add = Step::add(full.clone());
        let options = "02:00:00:00:00:01 dev eth0 dst 192.0.2.7 port 8472 vni 7 vlan 5 self";
        assert_eq!(
            add.to_string(),
            format!("pod  bridge fdb add {options} permanent")
        );
        let del: Vec<String> = undo(&[add]).iter().map(ToString::to_string).collect();
        assert_eq!(del, [format!("pod  bridge fdb del {options}")]);
        for mac in [[0; 6], [0xff; 6]] {
            let all = Step::add(Fdb {
                mac: Mac(mac),
                ..entry(1)
            });
            let word = "pod  bridge fdb append ";
            assert!(all.to_string().starts_with(word), "{all}");
        }
    }

    #[test]
    fn an_entry_is_deleted_with_its_link() {
        let link = Step::add(Link {
            kind: LinkKind::Dummy,
            ..Link::any(entry(1).at)
        });
        let undone = undo(&[link, Step::add(entry(1))]);
        let commands: Vec<String> = undone.iter().map(ToString::to_string).collect();
        assert_eq!(commands, ["pod  ip link del eth0"]);
    }

    #[test]
    fn an_entry_holds_if_the_kernel_shows_it_or_omits_the_links_values() {
        let wanted = Fdb {
            port: Some(4789),
            ..entry(1)
        };
        let other_port = Fdb {
            port: Some(8472),
            ..entry(1)
        };
        let other_dst = Fdb {
            dst: "192.0.2.8".parse().expect("an address"),
            ..entry(1)
        };
        for found in [entry(1), wanted.clone()] {
            assert_eq!(wanted.holds(&shown(found.clone())), Ok(()));
            wanted.is_gone(&shown(found)).expect_err("it is there");
        }
        for found in [entry(2), other_port.clone(), other_dst] {
            let facts = shown(found);
            let error = wanted.holds(&facts).expect_err("another entry");
            let expected =
                "02:00:00:00:00:01 has no permanent entry with dst 192.0.2.7 at eth0 in pod";
            assert_eq!(error, expected);
            assert_eq!(wanted.is_gone(&facts), Ok(()));
        }
        let error = entry(1).holds(&shown(other_port));
        error.expect_err("the port is not the link's");
    }

    #[test]
    fn an_entry_survives_its_record() {
        let step = Step::add(entry(1));
        let text = serde_json::to_string(&step).expect("json");
        assert_eq!(serde_json::from_str::<Step>(&text).expect("a step"), step);
        assert!(!text.contains("vni"), "{text}");
    }
}
