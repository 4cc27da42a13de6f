//! Statuses that are no longer true: of containers that are gone without a DEL, or of other networks
//! than the record has.
//!
//! ```text
//!  pods in the cache, records ─► suspects, the same ones twice ─┬─► container runs: published again
//!                                                               └─► container is gone: entries removed
//! ```
//!
//! A status is judged twice, because a call writes status and record at different moments, and the
//! watch of pods lags behind.

use super::answer::Server;
use crate::cluster::objects::Entry;
use crate::metrics::Metrics;
use crate::recorded::pod_of;
use braid_core::cni::{Error, Json};
use braid_core::k8s::{NETWORK_STATUS, ObjectName, object, status};
use braid_node::apply::host::This;
use braid_node::attach::{call_conf, pods};
use braid_node::ipam::liveness::{LIBCNI_CACHE_DIR, Netns, netns_at};
use braid_node::log::Log;
use braid_node::source::cluster::Kubernetes;
use braid_node::store::holder::is_alive;
use braid_node::store::record::{self, Record, is_known};
use braid_node::store::root::NODE;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two judgements. With the collection of a container that is gone, every 30 seconds, and
/// two judgements, a stale status lives for less than a minute.
const PERIOD: Duration = Duration::from_secs(12);

/// A status that may be stale.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Suspect {
    pod: ObjectName,
    uid: String,
    /// The annotation's value.
    status: Option<String>,
    /// Containers of the status that are gone; empty if the pod has a running one, with other networks.
    gone: Vec<String>,
}

/// Judges the statuses periodically.
pub(super) async fn watch(server: Arc<Server>, conflist: PathBuf, metrics: Metrics) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut failed) = (BTreeSet::new(), BTreeSet::new());
    loop {
        ticks.tick().await;
        let all = {
            let caches = server.store.caches();
            if !caches.pods.is_complete() {
                continue;
            }
            let all = caches.pods.all();
            all.map(|(name, entry)| (name.clone(), entry.clone()))
                .collect()
        };
        let suspects = spawn_blocking(move || find(all)).await.unwrap_or_default();
        for suspect in suspects.intersection(&before) {
            match correct(&server, suspect, &conflist).await {
                Ok(true) => {
                    let pod = &suspect.pod;
                    tracing::info!(%pod, "corrected a stale network-status");
                    metrics.collected("status", 1);
                }
                // It is tried again, and told once.
                Err(error) if !failed.contains(suspect) => {
                    let pod = &suspect.pod;
                    tracing::warn!(%pod, %error, "correct a stale network-status");
                    failed.insert(suspect.clone());
                }
                Ok(false) | Err(_) => {}
            }
        }
        failed.retain(|suspect| suspects.contains(suspect));
        before = suspects;
    }
}

/// Returns the statuses that the records contradict.
fn find(pods: Vec<(ObjectName, Entry)>) -> BTreeSet<Suspect> {
    // Without its folder nothing is known of any container.
    let records = match record::list() {
        Ok(records) if Path::new(record::ROOT).is_dir() => records,
        _ => return BTreeSet::new(),
    };
    let mut of_pods: BTreeMap<ObjectName, Vec<Record>> = BTreeMap::new();
    for record in records {
        if let Some(pod) = pod_of(&record) {
            of_pods.entry(pod).or_default().push(record);
        }
    }
    let mut suspects = BTreeSet::new();
    for (pod, entry) in pods {
        let records = of_pods.get(&pod).map_or(&[][..], Vec::as_slice);
        let status = entry.annotations().remove(NETWORK_STATUS);
        let is_gone =
            |id: &str| !is_known(&NODE, id) && !has_namespace(Path::new(LIBCNI_CACHE_DIR), id);
        let Some(gone) = judge(records, status.as_deref(), &is_gone) else {
            continue;
        };
        let is_over = object::pod(&pod, entry.text.as_bytes()).is_ok_and(|pod| pod.is_over);
        if !is_over {
            suspects.insert(Suspect {
                pod,
                uid: entry.uid,
                status,
                gone,
            });
        }
    }
    suspects
}

/// True if the runtime's cache of results in `folder` names a namespace of the container that may
/// exist. The record may have been deleted by hand.
fn has_namespace(folder: &Path, container_id: &str) -> bool {
    let part = format!("-{container_id}-");
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut of_container = files.filter(|file| file.file_name().to_string_lossy().contains(&part));
    of_container.any(|file| {
        let cached = fs::read(file.path()).ok();
        let cached = cached.and_then(|bytes| Json::parse(&bytes, "cached result").ok());
        let netns = cached
            .as_ref()
            .and_then(|cached| cached.get("netns")?.as_str());
        netns.is_some_and(|path| netns_at(Path::new(path)) != Netns::Gone)
    })
}

/// Returns the containers of a stale status that are gone, for a pod with these records: none if one
/// of its containers has a record. `None` if the status is not stale, or cannot be judged.
fn judge(
    records: &[Record],
    status: Option<&str>,
    is_gone: &dyn Fn(&str) -> bool,
) -> Option<Vec<String>> {
    match records {
        [] => {
            let mut gone = status::containers(status);
            gone.retain(|id| is_gone(id));
            gone.dedup();
            (!gone.is_empty()).then_some(gone)
        }
        [one] => {
            let is_stale = pods::is_stale(one, status, is_gone);
            (is_stale && one.owed.is_none() && !one.is_unpublished).then(Vec::new)
        }
        // An earlier sandbox without its DEL.
        _ => None,
    }
}

/// Corrects a status. Returns false if nothing was to be done.
async fn correct(server: &Server, suspect: &Suspect, conflist: &Path) -> Result<bool, String> {
    if !suspect.gone.is_empty() {
        if suspect.gone.iter().any(|id| is_known(&NODE, id)) {
            return Ok(false);
        }
        return server
            .sweep((&suspect.pod, &suspect.uid), &suspect.gone)
            .await;
    }
    let (pod, conflist) = (suspect.pod.clone(), conflist.to_owned());
    let work = move || republish(&pod, &conflist).map_err(|err| err.to_string());
    spawn_blocking(work).await.unwrap_or(Ok(false))
}

/// Publishes the networks of the pod's running container.
fn republish(pod: &ObjectName, conflist: &Path) -> Result<bool, Error> {
    let Some(conf) = call_conf::read(conflist)? else {
        return Ok(false);
    };
    let machine = This::new(Log::new(|text| tracing::warn!("{text}")));
    let mut records = record::list().map_err(Error::from)?;
    records.retain(|record| pod_of(record).as_ref() == Some(pod));
    match records.as_slice() {
        [one] if one.key.owner.network == conf.name && is_alive(one) => {
            pods::republish(one, &conf, &machine, &Kubernetes)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::{Attachment, Owner};
    use braid_core::name::IfName;
    use braid_node::store::record::{Attached, Key, Owed};

    /// Returns the record of a container of a pod with the default network and `ns/lan`.
    fn record(container_id: &str) -> Record {
        let attachment = Attachment {
            container_id: container_id.to_owned(),
            ifname: IfName::parse("eth0").expect("a name"),
            netns: None,
            args: String::new(),
        };
        let conf = || Json::object_of([]).into();
        let default = Attached::new("pods", "braid", &attachment, conf());
        let lan = Attached::new("ns/lan", "braid", &attachment, conf());
        let key = Key {
            owner: Owner::new("pods", container_id, "eth0"),
            plugin: "braid".to_owned(),
        };
        Record::new(key, None, vec![default, lan])
    }

    /// Returns a status with an entry of this container for each network.
    fn status(container_id: &str, networks: &[&str]) -> String {
        let mut entries = Vec::new();
        for name in networks {
            let fields = [
                ("name", (*name).into()),
                ("io.braid/container", container_id.into()),
            ];
            entries.push(Json::object_of(fields));
        }
        Json::Array(entries).pretty()
    }

    #[test]
    fn a_container_with_a_namespace_lives_without_its_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |id: &str, netns: &str| {
            let text = format!(r#"{{"kind":"cniCacheV1","netns":"{netns}"}}"#);
            let path = folder.path().join(format!("pods-{id}-eth0"));
            std::fs::write(path, text).expect("written");
        };
        write("alive", "/proc/self/ns/net");
        write("dead", &folder.path().join("gone").display().to_string());
        let found = ["alive", "dead", "other"].map(|id| has_namespace(folder.path(), id));
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn a_status_is_judged_by_the_only_record_of_its_pod() {
        let is_gone = |id: &str| id == "gone";
        let both = ["pods", "ns/lan"];
        let mut owing = record("c");
        owing.is_unpublished = true;
        let mut indebted = record("c");
        indebted.owed = Some(Owed {
            pod: ObjectName {
                namespace: "ns".to_owned(),
                name: "p".to_owned(),
            },
            uid: String::new(),
            status: String::new(),
            seen: None,
        });
        let gone = Some(vec!["gone".to_owned()]);
        for (records, status, expected) in [
            (vec![record("c")], status("c", &both), None),
            (vec![record("c")], status("c", &["pods"]), Some(Vec::new())),
            (vec![record("c")], status("gone", &both), Some(Vec::new())),
            // These are published by others.
            (vec![owing], status("c", &["pods"]), None),
            (vec![indebted], status("c", &["pods"]), None),
            (vec![record("c"), record("d")], status("c", &["pods"]), None),
            (vec![], status("gone", &both), gone),
            (vec![], status("unreadable", &both), None),
            (vec![], "[]".to_owned(), None),
        ] {
            assert_eq!(
                judge(&records, Some(&status), &is_gone),
                expected,
                "{status}"
            );
        }
        assert_eq!(judge(&[], None, &is_gone), None);
    }
}
