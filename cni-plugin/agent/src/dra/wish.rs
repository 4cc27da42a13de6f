//! Orders of the agent's loop for the devices.

use crate::cluster::node::Node;
use braid_core::dra::settings::Settings;
use tokio::sync::watch;

/// State in which the devices of the node shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Settings of the configuration.
    pub(crate) settings: Settings,
    /// The own Node; `None` if there is none.
    pub(crate) node: Option<Node>,
    /// Reason why the node must not offer any devices.
    pub(crate) obstacle: Option<String>,
}

impl Wish {
    /// True if the node offers its devices.
    pub(super) fn is_offered(&self) -> bool {
        self.settings.is_enabled && self.obstacle.is_none() && self.node.is_some()
    }
}

/// Sends wishes to the task.
#[derive(Debug)]
pub(crate) struct Wishes(watch::Sender<Wish>);

impl Wishes {
    /// Returns the sender, and the receiver of the task.
    pub(super) fn channel() -> (Self, watch::Receiver<Wish>) {
        let (sender, receiver) = watch::channel(Wish::default());
        (Self(sender), receiver)
    }

    /// Sends a wish if it differs from the last one.
    pub(crate) fn send(&self, wish: Wish) {
        self.0.send_if_modified(|last| {
            let is_new = *last != wish;
            *last = wish;
            is_new
        });
    }
}
