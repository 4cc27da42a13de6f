//! DEL of a pod without a record. The pod's networks are read from the API. If that fails, DEL
//! deletes the default network and the container's objects on the node.
//!
//! Runtimes repeat DEL. So the node is checked first, and the API is queried only if anything of
//! the container is left.

use super::find::Finder;
use crate::apply::host::{Host, Machine};
use crate::attach::del::Unrecorded;
use crate::attach::invocation::DelRequest;
use crate::attach::invocation::{Invocation, Wanted};
use crate::attach::recorded;
use crate::attach::unrecorded::{Extent, Unowned};
use crate::source::cluster::Cluster;
use crate::store::record::Folder;
use braid_core::cni::{Error, NetConf};
use braid_core::k8s::settings::Settings;
use std::time::Duration;

/// Maximum time for all requests to the API together.
const LIMIT: Duration = Duration::from_secs(2);

/// DEL of a pod without a record.
pub(super) struct Lost<'a> {
    /// The call, with the default network's configuration if it is known.
    pub(super) call: &'a DelRequest,
    /// The configuration that the runtime passed.
    pub(super) conf: &'a NetConf,
    /// True if the default network's configuration is known.
    pub(super) is_known: bool,
    pub(super) settings: &'a Settings,
    pub(super) machine: &'a dyn Machine,
    pub(super) cluster: &'a dyn Cluster,
}

impl Lost<'_> {
    /// Finds the attachments to delete. An unreachable API is only logged.
    pub(super) fn find(&self, folder: &Folder, host: &mut dyn Host) -> Result<Unrecorded, Error> {
        let is_more = self.is_any_left(folder, host)?;
        let found = if is_more { self.ask() } else { Vec::new() };
        if found.is_empty() {
            let wanted = if self.is_known {
                recorded::wanted(None, self.call)?
            } else {
                Vec::new()
            };
            return Ok(Unrecorded {
                wanted,
                record: None,
                more: is_more.then_some(Extent::Container),
            });
        }
        let DelRequest {
            key,
            path,
            netns_override,
            ..
        } = self.call;
        let call = Invocation {
            key: key.clone(),
            netns_override: *netns_override,
            path: path.clone(),
            wanted: found,
        };
        let record = call
            .record(host.pod_cookie())
            .into_second()
            .map_err(Error::from)?;
        Ok(Unrecorded {
            wanted: call.wanted,
            record: Some(record),
            more: is_more.then_some(Extent::Container),
        })
    }

    /// True if anything of the container is left: a damaged record, a link, a rule or a lease.
    fn is_any_left(&self, folder: &Folder, host: &mut dyn Host) -> Result<bool, Error> {
        let key = &self.call.key;
        if folder.has_file(key) || host.has_pod_links() {
            return Ok(true);
        }
        let records = folder.records().map_err(Error::from)?;
        let unowned = Unowned::of(&key.owner.container_id, Extent::Container, &records);
        unowned.is_any(host, self.machine)
    }

    /// Returns the pod's attachments, read from the API. Empty if the API does not answer or the
    /// call is not for a pod.
    fn ask(&self) -> Vec<Wanted> {
        let finder = Finder::within(self.settings, self.machine, self.cluster, LIMIT);
        let asked = finder.and_then(|mut finder| finder.left(self.call, self.conf));
        asked.unwrap_or_else(|err| {
            let id = &self.call.key.owner.container_id;
            self.machine.log().line(format_args!(
                "container {id}: its record is lost, and its networks are not known: {err}"
            ));
            Vec::new()
        })
    }
}
