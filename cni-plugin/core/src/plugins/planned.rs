//! The plan of a plugin, and the plan of its link alone.

use super::Call;
use super::interface::{self, Dad};
use crate::cni::{AddResult, Error};
use crate::ipam::Lease;
use crate::name::Mac;
use crate::plan::thing::{Attr, LinkAttr, Thing};
use crate::plan::{Facts, Step};

/// The part of an ADD that a plugin plans: steps and result.
#[derive(Debug, Default)]
pub struct Planned {
    /// Steps that change the host and the container, in order.
    pub steps: Vec<Step>,
    /// The CNI result after this plugin.
    pub result: AddResult,
    /// Warnings for the operator. They do not fail the call.
    pub warnings: Vec<String>,
}

/// A change of the state that a plugin has created for a running container.
#[derive(Debug, Default)]
pub struct Adjustment {
    /// Steps of the change, in order.
    pub steps: Vec<Step>,
    /// The plugin's steps afterwards, as if ADD had planned them.
    pub after: Vec<Step>,
    /// The CNI result after this plugin.
    pub result: AddResult,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// The link of an attachment, planned without addresses.
#[derive(Debug, Clone, Default)]
pub struct Linked {
    /// Steps that create the link, which is still down after them.
    pub made: Vec<Step>,
    /// Step that sets the container's interface up, after the steps that add its addresses. `None`
    /// if the interface stays down.
    pub up: Option<Step>,
    /// Steps that let packets pass, for example by setting a bridge port up. They follow the steps
    /// for addresses, routes and filters.
    pub opened: Vec<Step>,
    /// The CNI result without addresses.
    pub result: AddResult,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl Linked {
    /// Creates the plan of the container's interface. The steps in `made` create the interface.
    /// `mac` is the interface's hardware address in the CNI result.
    pub fn new(call: &Call<'_>, mac: String, made: Vec<Step>) -> Self {
        Self {
            made,
            up: Some(interface::up(&call.pod())),
            result: AddResult {
                interfaces: vec![call.interface(mac)],
                ..AddResult::default()
            },
            ..Self::default()
        }
    }

    /// Completes the plan of the container's interface, with the addresses of `lease` if given.
    pub fn attached(
        self,
        call: &Call<'_>,
        lease: Option<Lease>,
        dad: Dad,
    ) -> Result<Planned, Error> {
        let Self {
            made: mut steps,
            up,
            opened,
            mut result,
            warnings,
        } = self;
        match lease {
            None => steps.extend(up),
            Some(Lease {
                mut ips, routes, ..
            }) => {
                interface::refuse_no_addresses(&ips)?;
                for ip in &mut ips {
                    ip.interface = Some(0);
                }
                let configured = interface::configure_with(&call.pod(), up, &ips, &routes, dad);
                steps.extend(configured);
                (result.ips, result.routes) = (ips, routes);
            }
        }
        steps.extend(opened);
        Ok(Planned {
            steps,
            result,
            warnings,
        })
    }

    /// Returns the plan of a link after its steps were applied: only the result remains.
    #[must_use]
    pub fn applied(self) -> Self {
        Self {
            result: self.result,
            ..Self::default()
        }
    }

    /// Returns the hardware address of the container's interface in the result.
    pub fn mac(&self, call: &Call<'_>) -> Option<Mac> {
        let mut own = self
            .result
            .interfaces
            .iter()
            .filter(|interface| !interface.sandbox.is_empty());
        own.find(|own| own.name == call.ifname.as_str())
            .and_then(|own| Mac::parse(&own.mac))
    }

    /// True if every new link takes its own hardware address, so that the interface can announce
    /// its addresses.
    pub fn can_announce(&self) -> bool {
        self.made
            .iter()
            .all(|step| !matches!(step, Step::Add(Thing::Link(link)) if !link.kind.takes_mac()))
    }

    /// Adds the step that changes the hardware address of the container's interface before the
    /// interface comes up. `facts` were read before the link was created.
    pub fn set_mac(&mut self, mac: Mac, call: &Call<'_>, facts: &Facts) {
        let at = call.pod();
        let ahead = facts.clone().after(&self.made);
        let before = ahead.link(&at).and_then(|link| link.mac);
        for step in &mut self.made {
            if let Step::Add(Thing::MacCheck(check)) = step {
                check.mac = mac;
            }
        }
        for interface in &mut self.result.interfaces {
            if !interface.sandbox.is_empty() && interface.name == at.name.as_str() {
                interface.mac = mac.to_string();
            }
        }
        let to = LinkAttr::Mac(mac);
        self.made.push(match before.map(LinkAttr::Mac) {
            Some(from) => Step::Set { at, to, from },
            None => Step::add(Attr { at, to }),
        });
    }
}
