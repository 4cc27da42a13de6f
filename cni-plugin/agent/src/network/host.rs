//! The node's kernel: traffic between nodes, forwarding, and masquerading. It is compared with the
//! cluster after changes of either.

use super::fabric::{Fabric, Outcome, Wanted};
use super::flannel::{Flannel, Network};
use super::kernel::Uplink;
use super::masquerade::{Comparison, Masquerade, Table};
use super::routes::PROTOCOL;
use super::{firewall, forwarding};
use crate::cluster::node::Node;
use crate::error::Error;
use crate::repair::message::Interest;
use crate::repair::watch::{Notification, Watch};
use crate::repair::{Kind, Repairs, Report};
use braid_node::effect::{cluster_forward, cluster_masquerade};
use ipnet::IpNet;
use std::time::{Duration, Instant};

/// State of the comparisons.
#[derive(Debug)]
pub struct Host {
    fabric: Fabric,
    masquerade: Table,
    /// Ranges that other programs' chains accept.
    accepted: Option<Vec<IpNet>>,
    /// True after forwarding was enabled.
    is_forwarding: bool,
    watch: Watch,
    interest: Interest,
    /// True if the uplink has changed since the last comparison.
    is_flapping: bool,
    repairs: Repairs,
}

impl Host {
    /// Opens the sockets.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            fabric: Fabric::open()?,
            masquerade: Table::default(),
            accepted: None,
            is_forwarding: false,
            watch: Watch::open()?,
            interest: Interest {
                protocol: PROTOCOL,
                links: Vec::new(),
                uplink: None,
                table: cluster_masquerade::TABLE,
                comment: cluster_forward::COMMENT,
            },
            is_flapping: false,
            repairs: Repairs::default(),
        })
    }

    /// Waits until a comparison is due: another program has changed the kernel, or a probe was
    /// answered. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        let Self {
            fabric,
            watch,
            interest,
            is_flapping,
            ..
        } = self;
        tokio::select! {
            () = fabric.changed() => {}
            is_uplink = notified(watch, interest) => *is_flapping |= is_uplink,
        }
    }

    /// Returns the link of the node's own address; `None` if no link has one of its addresses.
    pub async fn uplink(&mut self, own: &Node) -> Result<Option<Uplink>, Error> {
        let uplink = self.fabric.uplink(own).await?;
        self.interest.uplink = uplink.as_ref().map(|uplink| uplink.index);
        Ok(uplink)
    }

    /// True if the kernel did not answer a request. The next comparison opens another socket.
    pub fn is_dead(&self) -> bool {
        self.fabric.is_dead()
    }

    /// Compares routes and all that they need with the cluster, and changes the kernel.
    pub async fn compare(&mut self, wanted: Wanted<'_>) -> Result<Outcome, Error> {
        let is_flapping = std::mem::take(&mut self.is_flapping);
        let compared = self
            .fabric
            .compare(wanted, is_flapping, &mut self.repairs)
            .await;
        self.interest.links = self.fabric.links();
        compared
    }

    /// Compares flannel's network with the cluster, and changes the kernel.
    pub async fn compare_flannel(
        &mut self,
        flannel: &mut Flannel,
        wanted: Wanted<'_>,
    ) -> Result<Network, Error> {
        let is_flapping = std::mem::take(&mut self.is_flapping);
        let compared = flannel
            .compare(&mut self.fabric, wanted, (is_flapping, &mut self.repairs))
            .await;
        self.interest.links = self.fabric.links();
        compared
    }

    /// Enables forwarding.
    pub fn forward(&mut self, uplink: &Uplink) -> Result<(), Error> {
        let disabled = forwarding::disabled()?;
        let is_lost = self.is_forwarding && !disabled.is_empty();
        if is_lost && !self.may_restore("forwarding") {
            return Ok(());
        }
        forwarding::enable(&uplink.name)?;
        self.is_forwarding = true;
        if is_lost {
            for key in disabled {
                tracing::info!(key, "enabled forwarding again");
                self.repairs.made(Kind::Sysctl, || format!("{key} = 1"));
            }
        }
        Ok(())
    }

    /// Accepts packets of pods in chains of other programs that drop all others.
    pub fn accept(&mut self, ranges: &[IpNet]) -> Result<(), Error> {
        let is_same = self.accepted.as_deref() == Some(ranges);
        let (repairs, now) = (&mut self.repairs, Instant::now());
        let mut may_change = |chain: &str| {
            !is_same || repairs.may_restore(&format!("rules for pods in chain {chain}"), now)
        };
        let changed = firewall::accept(ranges, &mut may_change)?;
        if is_same {
            for chain in changed {
                let name = || format!("rules for pods in chain {chain}");
                self.repairs.made(Kind::Table, name);
            }
        }
        self.accepted = Some(ranges.to_vec());
        Ok(())
    }

    /// Masquerades pods.
    pub fn masquerade(&mut self, desired: Masquerade) -> Result<(), Error> {
        let comparison = self.masquerade.compare(&desired)?;
        let name = format!("table inet {}", cluster_masquerade::TABLE);
        match comparison {
            Comparison::Same => return Ok(()),
            Comparison::Lost if !self.may_restore(&name) => return Ok(()),
            Comparison::Lost | Comparison::Other => self.masquerade.write(desired)?,
        }
        if comparison == Comparison::Lost {
            tracing::info!("masquerade pods again");
            self.repairs.made(Kind::Table, || name);
        }
        Ok(())
    }

    /// Deletes the agent's own routes, links, table and rules.
    pub async fn clear(&mut self) -> Result<(), Error> {
        self.fabric.clear().await?;
        self.masquerade.delete()?;
        self.accepted = None;
        firewall::accept(&[], &mut |_| true).map(drop)
    }

    /// Returns the repairs since the last report.
    pub fn report(&mut self) -> Report {
        self.repairs.report()
    }

    /// Returns the time until a comparison is due without a change, if that time is limited.
    pub fn due(&self) -> Option<Duration> {
        let due = [self.fabric.due(), self.repairs.due(Instant::now())];
        due.into_iter().flatten().min()
    }

    fn may_restore(&mut self, thing: &str) -> bool {
        self.repairs.may_restore(thing, Instant::now())
    }
}

/// Waits for a notification that may be about the agent's objects. Returns true if it is about the
/// uplink.
async fn notified(watch: &mut Watch, interest: &Interest) -> bool {
    loop {
        match watch.next().await {
            Notification::Lost => return false,
            Notification::Messages(messages) => {
                let found = interest.judge(messages);
                if found.is_any {
                    return found.is_uplink;
                }
            }
        }
    }
}
