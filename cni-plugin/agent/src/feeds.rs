//! Changes of everything that the agent watches.

use crate::cluster::node::{self, NodeObject};
use crate::options::Source;
use crate::watch;
use crate::watch::Watch;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two looks at a file with the configuration.
const LOOK: Duration = Duration::from_secs(5);

/// A change, or the error of a watch, which goes on.
pub(crate) enum Change {
    Node(watcher::Result<Event<NodeObject>>),
    Services(watcher::Result<Event<ServiceCIDR>>),
    Config(watcher::Result<Event<ConfigMap>>),
    /// The text of the configuration file, or the reason why it could not be read.
    ConfigFile(std::io::Result<String>),
}

/// All watches.
pub(crate) struct Feeds {
    nodes: Watch<NodeObject>,
    services: Watch<ServiceCIDR>,
    config: Config,
}

enum Config {
    Object(Box<Watch<ConfigMap>>),
    File(PathBuf, tokio::time::Interval),
}

impl Feeds {
    pub(crate) fn new(client: &Client, config: &Source) -> Self {
        let nodes = Api::all_with(client.clone(), &node::resource());
        Self {
            nodes: Watch::new(nodes, ""),
            services: Watch::new(Api::all(client.clone()), ""),
            config: match config {
                Source::ConfigMap(map) => {
                    let maps = Api::namespaced(client.clone(), &map.namespace);
                    let fields = format!("metadata.name={}", map.name);
                    Config::Object(Box::new(Watch::new(maps, &fields)))
                }
                Source::File(path) => Config::File(path.clone(), tokio::time::interval(LOOK)),
            },
        }
    }

    /// Waits for the next change; `None` never comes.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        tokio::select! {
            event = self.nodes.next() => event.map(Change::Node),
            event = self.services.next() => event.map(Change::Services),
            change = self.config.next() => change,
        }
    }
}

impl Config {
    async fn next(&mut self) -> Option<Change> {
        match self {
            Self::Object(watch) => watch.next().await.map(Change::Config),
            Self::File(path, interval) => {
                interval.tick().await;
                Some(Change::ConfigFile(read(path)))
            }
        }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let bytes = braid_node::source::files::bytes(path)?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

/// True if the server does not have the kind, or the agent may not watch it.
pub(crate) fn is_absent(err: &watcher::Error) -> bool {
    watch::status(err).is_some_and(|code| [403, 404].contains(&code))
}
