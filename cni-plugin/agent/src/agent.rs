//! The agent's loop: objects and time in, changes of the node out.

use crate::addresses::{self, Addresses};
use crate::cluster::config::{Config, Mode};
use crate::cluster::index::Index;
use crate::cluster::node::Node;
use crate::cluster::services::Services;
use crate::configuration::Configuration;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::events::Book;
use crate::events::networks::{NetworkBook, is_reporter};
use crate::events::publisher::Publisher;
use crate::events::repairs::RepairBook;
use crate::feeds::{self, Change, Feeds};
use crate::health::{self, Readiness, Reason};
use crate::log::Log;
use crate::metrics::{self, Metrics};
use crate::network::conflist::{self, DefaultNetwork, Present, Values};
use crate::network::fabric::Wanted;
use crate::network::flannel::Flannel;
use crate::network::host::Host;
use crate::network::masquerade::Masquerade;
use crate::network::vxlan::Underlay;
use crate::network::{mark, mtu, types};
use crate::options::Options;
use crate::repair::pods;
use crate::reported::Reported;
use crate::serve::reports::Reports;
use crate::serve::store::Store;
use crate::{api, condition, dra, garbage, reconcile, serve, sight};
use braid_node::store::root::NODE;
use braid_node::sys::replace::replace;
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

/// Mode of the file that says that routes are set.
const ROUTES_MODE: u32 = 0o600;
/// Mode of the conflist. The network of another program may have a secret.
const CONFLIST_MODE: u32 = 0o600;
/// Pause after a change of an object, in which other changes arrive.
const SETTLE: Duration = Duration::from_millis(50);
/// Time after which the kernel's state is compared again without a change of an object.
const RESYNC: Duration = Duration::from_mins(1);
/// Pause after a failed change, and while the node is not ready.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT. The end changes nothing on the node, and gives back the addresses that
/// are held for its next pods.
pub(crate) async fn run(options: &Options, log: Log) -> Result<(), Error> {
    let [mut term, mut int] = [SignalKind::terminate(), SignalKind::interrupt()].map(handler);
    let (readiness, seen) = tokio::sync::watch::channel(Readiness {
        reason: Some("not started yet".to_owned()),
        remarks: Vec::new(),
    });
    health::serve(options.health_address, seen).await?;
    let metrics = Metrics::default();
    metrics::serve(
        options.metrics_address,
        metrics.clone(),
        options.conflist.clone(),
    );
    metrics::receive(metrics.clone())?;
    let config = api_config(options).await?;
    let credentials = Credentials::new(
        options.credentials.clone(),
        options.account.clone(),
        &config,
    )?;
    let server = config.cluster_url.host().and_then(address);
    let client = api::client(config, &metrics)?;
    let mut addresses = None;
    let mut attached = tokio::sync::watch::channel(()).1;
    let (looks, received) = sees_pods(options)?.then(unbounded_channel).unzip();
    let claims = dra::Claims::of(&NODE);
    let store = serve::start(&client, options, looks, &metrics, &claims)?;
    if let Some(received) = received {
        attached = reconcile::start(Arc::clone(&store), received, options, metrics.clone());
        garbage::start(&client, metrics.clone());
        let reports = addresses::Reports::start(&client, &metrics, &store);
        addresses = Some(Addresses::start(&options.node_name, reports));
        pods::start(
            Reports::start(client.clone(), &options.node_name),
            metrics.clone(),
        )?;
    }
    let mut agent = Agent {
        options,
        credentials,
        client: client.clone(),
        host: Host::open()?,
        flannel: Flannel::new(client.clone()),
        log,
        devices: dra::start(&client, options, &store, metrics.clone(), claims, attached),
        metrics,
        configuration: Configuration::new(
            options.config.to_string(),
            options.overrides.clone(),
            types::refusal,
        ),
        index: Index::default(),
        services: Services::default(),
        server,
        events: Book::default(),
        repairs: RepairBook::default(),
        publisher: Publisher::start(client.clone()),
        store,
        networks: NetworkBook::default(),
        reported: Reported::default(),
        readiness,
    };
    // A signal ends the agent also during a comparison.
    let ended = tokio::select! {
        ended = agent.work(Feeds::new(&client, &options.config)) => ended,
        () = stopped(&mut term) => Ok(()),
        () = stopped(&mut int) => Ok(()),
    };
    if let Some(addresses) = addresses {
        addresses.stop().await;
    }
    ended
}

/// True if the agent sees the node's pods, as it does outside a container.
fn sees_pods(options: &Options) -> Result<bool, Error> {
    if options.kubeconfig.is_some() {
        return Ok(true);
    }
    let missing = sight::missing()?;
    if !missing.is_empty() {
        let mounts = missing.join(", ");
        tracing::warn!(
            mounts,
            "networks of running pods do not change without mounts"
        );
    }
    Ok(missing.is_empty())
}

/// Parses the host of a URL, which may be an IPv6 address in brackets; `None` for a name.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// Reads address and credentials of the API server.
async fn api_config(options: &Options) -> Result<kube::Config, Error> {
    let Some(path) = &options.kubeconfig else {
        return kube::Config::incluster()
            .map_err(|err| Error::new("read the pod's credentials", err));
    };
    let doing = format!("read kubeconfig {}", path.display());
    let file = Kubeconfig::read_from(path).map_err(|err| Error::new(&doing, err))?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|err| Error::new(&doing, err))
}

fn handler(kind: SignalKind) -> Option<Signal> {
    signal(kind).ok()
}

async fn stopped(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

struct Agent<'a> {
    options: &'a Options,
    credentials: Credentials,
    client: Client,
    host: Host,
    flannel: Flannel,
    log: Log,
    metrics: Metrics,
    configuration: Configuration,
    index: Index,
    services: Services,
    /// Address of the API server, if its URL has one.
    server: Option<IpAddr>,
    events: Book,
    repairs: RepairBook,
    publisher: Publisher,
    store: Arc<Store>,
    networks: NetworkBook,
    devices: dra::Wishes,
    reported: Reported,
    readiness: tokio::sync::watch::Sender<Readiness>,
}

impl Agent<'_> {
    /// Follows the objects until a watch ends.
    async fn work(&mut self, mut feeds: Feeds) -> Result<(), Error> {
        let mut due = Instant::now() + RESYNC;
        let mut networks = self.store.networks_changed();
        loop {
            let is_reporter = is_reporter(&self.index, &self.options.node_name);
            tokio::select! {
                change = feeds.next() => match change {
                    Some(change) => {
                        if self.update(change) {
                            due = due.min(Instant::now() + SETTLE);
                        }
                    }
                    None => return Err(Error::new("watch objects", "the stream ended")),
                },
                () = self.host.changed() => due = due.min(Instant::now() + SETTLE),
                Ok(()) = networks.changed(), if is_reporter => due = due.min(Instant::now() + SETTLE),
                () = tokio::time::sleep_until(due) => {
                    due = Instant::now() + self.reconcile().await;
                }
            }
        }
    }

    /// Takes a change in. Returns true if the node must be compared again. An error of a watch
    /// changes nothing that is known.
    fn update(&mut self, change: Change) -> bool {
        match change {
            Change::Node(Ok(event)) => self.index.update(&event),
            Change::Services(Ok(event)) => self.services.update(&event),
            Change::Config(Ok(event)) => {
                let is_changed = self.configuration.update(&event);
                is_changed && self.configure()
            }
            Change::ConfigFile(text) => {
                let is_changed = match text {
                    Ok(text) => self.configuration.read(Some(&text)),
                    Err(err) => self.configuration.refuse(err),
                };
                is_changed && self.configure()
            }
            Change::Services(Err(err)) => {
                let is_first = self.services.give_up();
                if is_first || !feeds::is_absent(&err) {
                    tracing::warn!(error = %err, "watch ServiceCIDRs");
                }
                is_first
            }
            Change::Node(Err(err)) => {
                tracing::warn!(error = %err, "watch nodes");
                if !self.index.is_complete() {
                    self.not_ready(format!("nodes are not known yet: {err}"));
                }
                false
            }
            Change::Config(Err(err)) => {
                tracing::warn!(error = %err, "watch the configuration");
                self.configuration.valid().is_none() && self.configuration.refuse(err)
            }
        }
    }

    /// Applies a changed configuration to the log, and reports a wrong one.
    fn configure(&mut self) -> bool {
        if let Some(config) = self.configuration.valid() {
            self.log.set(config.log);
        }
        if let Some(fault) = self.configuration.fault() {
            tracing::warn!(reason = fault, "the configuration is wrong");
        } else {
            tracing::info!(from = %self.options.config, "read the configuration");
        }
        true
    }

    fn not_ready(&mut self, reason: String) {
        if self.reported.reason.as_ref() != Some(&reason) {
            tracing::warn!(reason, "not ready");
            self.reported.reason = Some(reason.clone());
        }
        self.show(Some(reason));
    }

    /// Shows the state in `/readyz`.
    fn show(&self, reason: Reason) {
        let remarks = self.reported.remarks(self.configuration.fault());
        self.readiness.send_replace(Readiness { reason, remarks });
    }

    /// Publishes events about conditions that need an administrator.
    fn publish(&mut self) {
        let report = self.host.report();
        for (kind, count) in report.counts {
            self.metrics.repaired(kind.word(), count);
        }
        let Some(own) = self.index.node(&self.options.node_name) else {
            return;
        };
        let warnings = self.reported.warnings(self.configuration.fault());
        let now = Timestamp::now();
        let mut posts = self.events.posts(&warnings, own, now);
        posts.extend(self.repairs.posts(&report.news, own, now));
        let networks = &self.store.caches().networks;
        let own = (&*own.name, now);
        posts.extend(self.networks.posts(networks, &self.index, own));
        self.publisher.publish(posts);
    }

    /// Compares the node with the cluster and changes the node. Returns the time until the next
    /// comparison.
    async fn reconcile(&mut self) -> Duration {
        if !self.index.is_complete() || !self.services.is_known() {
            return RESYNC;
        }
        self.reported.without_range = None;
        let set_up = match self.set_up().await {
            Ok(None) => self.clear_condition().await.map(|()| None),
            not_ready => not_ready,
        };
        self.offer();
        let next = match set_up {
            Ok(None) => {
                let was_ready = self.readiness.borrow().reason.is_none();
                if self.reported.reason.take().is_some() || !was_ready {
                    tracing::info!("ready");
                }
                self.show(None);
                RESYNC
            }
            Ok(Some(reason)) => {
                self.not_ready(reason);
                RETRY
            }
            Err(err) => {
                self.not_ready(err.to_string());
                RETRY
            }
        };
        self.publish();
        let due = [self.host.due(), self.repairs.due()];
        let next = due.into_iter().flatten().fold(next, Duration::min);
        match self.credentials.due() {
            // A renewal that failed is overdue, and must not be tried without a pause.
            Some(due) => next.min(due.saturating_duration_since(Instant::now()).max(RETRY)),
            None => next,
        }
    }

    /// Offers the node's links as devices, or not if runtimes do not call braid for pods.
    fn offer(&mut self) {
        let Some(config) = self.configuration.valid() else {
            return;
        };
        let settings = config.dra.clone();
        let conflist = &self.options.conflist;
        let is_enabled = settings.is_enabled;
        let obstacle = is_enabled.then(|| conflist::obstacle(conflist, SystemTime::now()));
        self.reported.obstacle = obstacle.flatten();
        self.devices.send(dra::Wish {
            settings,
            node: self.index.node(&self.options.node_name).cloned(),
            obstacle: self.reported.obstacle.clone(),
        });
    }

    /// Sets routes and masquerading, renews the credentials of calls, then writes the conflist. On a
    /// node with the network of another program, its owner makes the routes in mode `auto`. Returns
    /// the reason if pods cannot be served yet.
    async fn set_up(&mut self) -> Result<Reason, Error> {
        let Some(config) = self.configuration.valid().cloned() else {
            let origin = &self.options.config;
            let fault = self.configuration.fault().map(str::to_owned);
            return Ok(fault.or_else(|| Some(format!("{origin} is not known yet"))));
        };
        let name = &self.options.node_name;
        let Some(own) = self.index.node(name).cloned() else {
            return Ok(Some(format!("there is no Node {name:?}")));
        };
        let network = match self.default_network()? {
            Ok(network) => network,
            Err(why) => return Ok(Some(why)),
        };
        if network.source.is_some() && config.mode == Mode::Auto {
            self.host.clear().await?;
            self.reported.report(Vec::new(), Vec::new());
            self.credentials.renew(&self.client, &own).await?;
            return self.write_conflist(&network, None);
        }
        self.serve(&config, own, network).await
    }

    /// Does the work of [`Agent::set_up`] on a node that the agent routes.
    async fn serve(
        &mut self,
        config: &Config,
        own: Node,
        network: DefaultNetwork,
    ) -> Result<Reason, Error> {
        let name = &self.options.node_name;
        let Some(uplink) = self.host.uplink(&own).await? else {
            return Ok(Some(format!(
                "no link has an InternalIP of Node {name:?}: {:?}",
                own.addresses
            )));
        };
        let ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
        let services = self.services.ranges();
        let wanted = Wanted {
            index: &self.index,
            own: &own,
            config,
            uplink: &uplink,
            services: &services,
            server: self.server,
        };
        let (outcome, flannels) = if config.mode == Mode::Flannel {
            let network = self.host.compare_flannel(&mut self.flannel, wanted).await?;
            (network.outcome, Some((network.pods, network.mtu)))
        } else {
            mark::delete()?;
            (self.host.compare(wanted).await?, None)
        };
        let (inside, mtu) = flannels.unwrap_or_else(|| {
            let underlay = Underlay::of(&own.addresses);
            (Vec::new(), mtu::of_pods(config, underlay, uplink.mtu))
        });
        self.reported.report(outcome.ignored, outcome.unrouted);
        let failed = outcome.failed;
        // After a request without an answer, the other changes were not tried.
        if self.host.is_dead()
            && let Some(err) = failed
        {
            return Err(err);
        }
        // A Node that was just registered again gets its ranges later. Running pods stay
        // masqueraded until then.
        if ranges.is_empty() && network.source.is_none() {
            let reason = format!("Node {name:?} has no pod range yet");
            self.reported.without_range = Some(reason.clone());
            return Ok(Some(reason));
        }
        self.host.forward(&uplink)?;
        // A chain of another program blocks nothing else.
        let pods = [ranges.as_slice(), &outcome.accepted].concat();
        let accepted = self.host.accept(&pods);
        let outside = outcome
            .accepted
            .into_iter()
            .chain(config.no_masquerade.clone())
            .chain(inside);
        let masquerade = Masquerade::of(&ranges, outside, self.index.nodes());
        self.host.masquerade(masquerade)?;
        self.credentials.renew(&self.client, &own).await?;
        let own = Values {
            ranges,
            mtu,
            kind: config.kind,
        };
        let reason = self.write_conflist(&network, Some(own))?;
        failed.map_or(Ok(()), Err).and(accepted)?;
        Ok(reason)
    }

    /// Ends the condition `NetworkUnavailable` of a node that is set up, if the configuration says so.
    async fn clear_condition(&self) -> Result<(), Error> {
        let config = self.configuration.valid();
        let own = self.index.node(&self.options.node_name);
        match own.filter(|own| own.is_network_unavailable) {
            Some(own) if config.is_some_and(|config| config.clear_network_unavailable) => {
                condition::clear(&self.client, own).await
            }
            _ => Ok(()),
        }
    }

    /// Chooses the default network. The inner error is the reason why there is none yet.
    fn default_network(&mut self) -> Result<Result<DefaultNetwork, String>, Error> {
        let conflist = &self.options.conflist;
        let observed = DefaultNetwork::observe(conflist, SystemTime::now())
            .map_err(|err| Error::new(format_args!("read {}", conflist.display()), err))?;
        if let Ok(network) = &observed {
            let remarks = BTreeSet::from_iter(network.remarks(conflist));
            for remark in remarks.difference(&self.reported.networks) {
                tracing::warn!("{remark}");
            }
            self.reported.networks = remarks;
        }
        Ok(observed)
    }

    /// Writes the conflist. `own` is braid's own network. Returns the reason if the network of
    /// another program is not ready.
    fn write_conflist(
        &self,
        network: &DefaultNetwork,
        own: Option<Values>,
    ) -> Result<Reason, Error> {
        let path = &self.options.conflist;
        let failed = |err: &dyn Display| Error::new(format_args!("write {}", path.display()), err);
        let paths = conflist::Paths {
            conflist: path,
            kubeconfig: &self.options.credentials.kubeconfig,
            kubelet_root_dir: self.options.kubelet_root_dir.as_deref(),
        };
        let list = match (&network.source, own) {
            (Some(source), own) => {
                match conflist::taken(source, paths, &network.others, own.is_some()) {
                    Ok(list) => list,
                    Err(why) => return Ok(Some(why)),
                }
            }
            (None, Some(own)) => {
                let present = Present::read(path).map_err(|err| failed(&err))?;
                conflist::own(&own, paths, present.list()).map_err(|err| failed(&err))?
            }
            (None, None) => return Ok(None),
        };
        // From here on STATUS may succeed.
        let routes = conflist::ROUTES_FILE;
        replace(routes.as_ref(), "", ROUTES_MODE)
            .map_err(|err| Error::new(format_args!("write {routes}"), err))?;
        let is_new =
            replace(path, &(list.pretty() + "\n"), CONFLIST_MODE).map_err(|err| failed(&err))?;
        if is_new {
            tracing::info!(path = %path.display(), "wrote the conflist");
        }
        Ok(None)
    }
}
