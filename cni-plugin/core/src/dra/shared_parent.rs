//! Attachments of several claims on one link: limits of the kernel, and the capacity of the link.

use super::attachments::Attachment;
use super::definition::kind;
use super::message::about;
use crate::cni::{Error, Json};
use crate::k8s::ObjectName;
use crate::k8s::nad::Definition;
use crate::name::IfName;
use serde::{Deserialize, Serialize};

/// Use of a link by an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentUse {
    /// The claim.
    pub claim: ObjectName,
    /// `metadata.uid` of the claim.
    pub claim_uid: String,
    /// Request of the claim.
    pub request: String,
    /// The link.
    pub parent: IfName,
    /// Type of the plugin that makes the interface.
    pub kind: String,
    /// VLAN of the interface; `None` for a type other than `vlan`.
    pub vlan_id: Option<u64>,
    /// Reserved rate in bits per second.
    pub rate: Option<u64>,
}

impl ParentUse {
    /// Returns the use of a link by an attachment with this definition.
    pub fn of(attachment: &Attachment, definition: &Definition) -> Self {
        let kind = kind(definition).to_owned();
        let first = definition.plugins().first().unwrap_or(&Json::Null);
        let vlan_id = (kind == "vlan").then(|| {
            let id = first.u64("vlanId").ok().flatten();
            id.unwrap_or_default()
        });
        Self {
            kind,
            vlan_id,
            ..Self::unknown(attachment)
        }
    }

    /// Returns the use of a link by an attachment without a known definition. It has no type.
    pub fn unknown(attachment: &Attachment) -> Self {
        Self {
            claim: attachment.claim.clone(),
            claim_uid: attachment.claim_uid.clone(),
            request: attachment.share.request.clone(),
            parent: attachment.parent.clone(),
            kind: String::new(),
            vlan_id: None,
            rate: attachment.share.bandwidth,
        }
    }

    fn about(&self, error: Error) -> Error {
        let request = &self.request;
        about(
            &self.claim,
            error.context(format_args!("request {request:?}")),
        )
    }

    /// Refuses two interfaces that the kernel does not create on one link.
    fn refuse_beside(&self, other: &Self) -> Result<(), Error> {
        let (kind, their_kind) = (self.kind.as_str(), other.kind.as_str());
        let at = format!("link {}, where claim {}", self.parent, other.claim);
        let fault = match (kind, their_kind) {
            ("macvlan", "ipvlan") | ("ipvlan", "macvlan") => {
                format!("{kind} on {at} has {their_kind}; a link can't have both types")
            }
            ("vlan", "vlan") if self.vlan_id == other.vlan_id => format!(
                "VLAN {} on {at} has it already; a link has each VLAN once",
                self.vlan_id.unwrap_or_default()
            ),
            _ => return Ok(()),
        };
        Err(self.about(Error::config(fault)))
    }
}

/// Refuses attachments that can't be beside each other, or beside `others`, the attachments of all
/// prepared claims. `capacity` returns the capacity of a link in bits per second, if known.
/// Attachments in `others` of the same claims do not count, because a claim can be prepared twice.
pub fn refuse(
    new: &[ParentUse],
    others: &[ParentUse],
    capacity: impl Fn(&IfName) -> Option<u64>,
) -> Result<(), Error> {
    let is_other = |other: &&ParentUse| new.iter().all(|one| one.claim_uid != other.claim_uid);
    let mut present: Vec<&ParentUse> = others.iter().filter(is_other).collect();
    for one in new {
        let mut reserved = one.rate.unwrap_or_default();
        for other in present.iter().filter(|other| other.parent == one.parent) {
            one.refuse_beside(other)?;
            reserved = reserved.saturating_add(other.rate.unwrap_or_default());
        }
        match capacity(&one.parent) {
            Some(capacity) if reserved > capacity && one.rate.is_some() => {
                let parent = &one.parent;
                return Err(one.about(Error::config(format!(
                    "link {parent} has {capacity} bit/s, but its claims reserve {reserved} bit/s"
                ))));
            }
            Some(_) | None => {}
        }
        present.push(one);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(claim: &str, kind: &str, rate: u64) -> ParentUse {
        ParentUse {
            claim: ObjectName {
                namespace: "web".to_owned(),
                name: claim.to_owned(),
            },
            claim_uid: claim.to_owned(),
            request: "nic".to_owned(),
            parent: IfName::parse("eth1").expect("a name"),
            kind: kind.to_owned(),
            vlan_id: (kind == "vlan").then_some(100),
            rate: (rate > 0).then_some(rate),
        }
    }

    fn refused(new: &[ParentUse], others: &[ParentUse]) -> Option<String> {
        let result = refuse(new, others, |_| Some(1000));
        result.err().map(|error| error.msg)
    }

    #[test]
    fn macvlan_and_ipvlan_are_not_on_one_link() {
        let (macvlan, ipvlan) = (used("a", "macvlan", 1), used("b", "ipvlan", 1));
        let elsewhere = ParentUse {
            parent: IfName::parse("eth2").expect("a name"),
            ..ipvlan.clone()
        };
        let start = r#"claim web/b: request "nic": ipvlan on link eth1, where claim web/a has macvlan; a link can't have both types"#;
        let one = std::slice::from_ref;
        assert_eq!(refused(one(&ipvlan), one(&macvlan)).as_deref(), Some(start));
        assert_eq!(
            refused(&[macvlan.clone(), ipvlan.clone()], &[]).as_deref(),
            Some(start)
        );
        assert_eq!(refused(one(&elsewhere), one(&macvlan)), None);
        assert_eq!(refused(one(&used("b", "vlan", 1)), one(&macvlan)), None);
        let again = ParentUse {
            claim_uid: "a".to_owned(),
            ..ipvlan
        };
        assert_eq!(refused(one(&again), one(&macvlan)), None, "prepared anew");
    }

    #[test]
    fn each_vlan_is_on_a_link_once() {
        let (vlan, mut other) = (used("a", "vlan", 1), used("b", "vlan", 1));
        let message = r#"claim web/b: request "nic": VLAN 100 on link eth1, where claim web/a has it already; a link has each VLAN once"#;
        let one = std::slice::from_ref;
        assert_eq!(refused(one(&other), one(&vlan)).as_deref(), Some(message));
        other.vlan_id = Some(101);
        assert_eq!(refused(one(&other), one(&vlan)), None);
    }

    #[test]
    fn claims_do_not_reserve_more_than_a_link_has() {
        let others = [used("a", "macvlan", 600), used("b", "macvlan", 0)];
        assert_eq!(refused(&[used("c", "macvlan", 400)], &others), None);
        let two = [used("c", "macvlan", 300), used("c", "macvlan", 101)];
        assert_eq!(
            refused(&two, &others).as_deref(),
            Some(
                r#"claim web/c: request "nic": link eth1 has 1000 bit/s, but its claims reserve 1001 bit/s"#
            )
        );
        assert_eq!(refuse(&two, &others, |_| None), Ok(()));
        assert_eq!(refused(&[used("c", "macvlan", 0)], &others), None);
    }
}
