//! The agent's loop: objects and time in, changes of the node out.

use crate::cluster::index::Index;
use crate::cluster::ranges::{self, Ignored, Reserved};
use crate::credentials::Credentials;
use crate::health::{self, Reason};
use crate::network::conflist::{self, Values};
use crate::network::forwarding;
use crate::network::kernel::Kernel;
use crate::network::masquerade::Masquerade;
use crate::network::routes::{self, Unrouted};
use crate::watch::{self, Nodes};
use crate::{Error, Options};
use braid_node::sys::replace::replace;
use ipnet::IpNet;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Mode of the conflist.
const CONFLIST_MODE: u32 = 0o644;
/// Pause after a change of an object, in which other changes arrive.
const SETTLE: Duration = Duration::from_millis(50);
/// Time after which the kernel's state is compared again without a change of an object.
const RESYNC: Duration = Duration::from_mins(1);
/// Pause after a failed change, and while the node is not ready.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT. The end changes nothing on the node.
pub(crate) async fn run(options: &Options) -> Result<(), Error> {
    let [mut term, mut int] = [SignalKind::terminate(), SignalKind::interrupt()].map(handler);
    let (readiness, seen) = tokio::sync::watch::channel(Some("not started yet".to_owned()));
    health::serve(options.health_address, seen).await?;
    let config = api_config(options).await?;
    let credentials = Credentials::new(
        options.credentials.clone(),
        options.account.clone(),
        &config,
    )?;
    let client =
        Client::try_from(config).map_err(|err| Error::new("prepare the client of the API", err))?;
    let mut agent = Agent {
        options,
        credentials,
        client: client.clone(),
        kernel: Kernel::open()?,
        index: Index::default(),
        reported: Reported::default(),
        readiness,
    };
    // A signal ends the agent also during a comparison.
    tokio::select! {
        ended = agent.work(Nodes::new(client)) => ended,
        () = stopped(&mut term) => Ok(()),
        () = stopped(&mut int) => Ok(()),
    }
}

/// Reads address and credentials of the API server.
async fn api_config(options: &Options) -> Result<Config, Error> {
    let Some(path) = &options.kubeconfig else {
        return Config::incluster().map_err(|err| Error::new("read the pod's credentials", err));
    };
    let doing = format!("read kubeconfig {}", path.display());
    let file = Kubeconfig::read_from(path).map_err(|err| Error::new(&doing, err))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
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
    kernel: Kernel,
    index: Index,
    reported: Reported,
    readiness: tokio::sync::watch::Sender<Reason>,
}

/// Reports that are logged once, not at each comparison.
#[derive(Debug, Default)]
struct Reported {
    ignored: BTreeSet<Ignored>,
    unrouted: BTreeSet<Unrouted>,
    reason: Reason,
}

impl Agent<'_> {
    /// Follows the nodes until the watch ends.
    async fn work(&mut self, mut nodes: Nodes) -> Result<(), Error> {
        let mut due = Instant::now() + RESYNC;
        loop {
            tokio::select! {
                event = nodes.next() => match event {
                    Some(Ok(event)) => {
                        if watch::update(&mut self.index, &event) {
                            due = due.min(Instant::now() + SETTLE);
                        }
                    }
                    Some(Err(err)) => self.lost(&err),
                    None => return Err(Error::new("watch nodes", "the stream ended")),
                },
                () = tokio::time::sleep_until(due) => {
                    due = Instant::now() + self.reconcile().await;
                }
            }
        }
    }

    /// Reports an error of the watch. Known nodes keep their routes.
    fn lost(&mut self, err: &kube::runtime::watcher::Error) {
        tracing::warn!(error = %err, "watch nodes");
        if !self.index.is_complete() {
            self.not_ready(format!("nodes are not known yet: {err}"));
        }
    }

    fn not_ready(&mut self, reason: String) {
        if self.reported.reason.as_ref() != Some(&reason) {
            tracing::warn!(reason, "not ready");
            self.reported.reason = Some(reason.clone());
        }
        self.readiness.send_replace(Some(reason));
    }

    /// Compares the node with the cluster and changes the node. Returns the time until the next
    /// comparison.
    async fn reconcile(&mut self) -> Duration {
        if !self.index.is_complete() {
            return RESYNC;
        }
        let next = match self.set_up().await {
            Ok(None) => {
                if self.reported.reason.take().is_some() || self.readiness.borrow().is_some() {
                    tracing::info!("ready");
                }
                self.readiness.send_replace(None);
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
        match self.credentials.due() {
            // A renewal that failed is overdue, and must not be tried without a pause.
            Some(due) => next.min(due.saturating_duration_since(Instant::now()).max(RETRY)),
            None => next,
        }
    }

    /// Sets routes and masquerading, renews the credentials of calls, then writes the conflist.
    /// Returns the reason if pods cannot be served yet.
    async fn set_up(&mut self) -> Result<Reason, Error> {
        let name = &self.options.node_name;
        let Some(own) = self.index.node(name).cloned() else {
            return Ok(Some(format!("there is no Node {name:?}")));
        };
        let conflist = &self.options.conflist;
        let reading = format!("read {}", conflist.display());
        // The owner of another network makes its routes as well.
        if let Some(refusal) =
            conflist::refusal(conflist).map_err(|err| Error::new(reading, err))?
        {
            return Ok(Some(refusal));
        }
        let Some(uplink) = self.kernel.uplink(&own.addresses).await? else {
            return Ok(Some(format!(
                "no link has an InternalIP of Node {name:?}: {:?}",
                own.addresses
            )));
        };
        let ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
        let (routed, failed) = self.set_routes(&ranges, uplink.networks.clone()).await?;
        // A Node that was just registered again gets its ranges later. Running pods stay
        // masqueraded until then.
        if ranges.is_empty() {
            return Ok(Some(format!(
                "Node {:?} has no pod range yet",
                self.options.node_name
            )));
        }
        forwarding::enable(&uplink.name)?;
        Masquerade::of(&ranges, routed, self.index.nodes()).write()?;
        self.credentials.renew(&self.client, &own).await?;
        self.write_conflist(ranges, uplink.mtu)?;
        failed.map_or(Ok(None), Err)
    }

    /// Sets the routes to other nodes. Returns the accepted ranges, and the error of a change that
    /// failed.
    async fn set_routes(
        &mut self,
        own: &[IpNet],
        links: Vec<IpNet>,
    ) -> Result<(Vec<IpNet>, Option<Error>), Error> {
        let reserved = Reserved {
            own: own.to_vec(),
            links,
            services: Vec::new(),
        };
        let name = &self.options.node_name;
        let (accepted, ignored) = ranges::judge(self.index.nodes(), name, &reserved);
        let lookups = self.kernel.lookups(&routes::gateways(&accepted)).await?;
        let (desired, mut unrouted) = routes::direct(&accepted, &lookups);
        let present = self.kernel.routes().await?;
        let mut failed = None;
        for change in routes::changes(&present, &desired) {
            match self.kernel.change(&change).await {
                Ok(true) => tracing::info!(%change, "changed a route"),
                Ok(false) => unrouted.extend(routes::taken(&change, &accepted)),
                // One bad route blocks nothing.
                Err(err) => failed = Some(err),
            }
        }
        let routed = accepted.iter().map(|accepted| accepted.range).collect();
        self.report(ignored, unrouted);
        Ok((routed, failed))
    }

    fn write_conflist(&self, ranges: Vec<IpNet>, mtu: u32) -> Result<(), Error> {
        let kubeconfig = &self.options.credentials.kubeconfig;
        let text = conflist::text(&Values {
            ranges,
            mtu,
            kubeconfig: kubeconfig.display().to_string(),
        });
        let path = &self.options.conflist;
        let is_new = replace(path, &text, CONFLIST_MODE)
            .map_err(|err| Error::new(format_args!("write {}", path.display()), err))?;
        if is_new {
            tracing::info!(path = %path.display(), "wrote the conflist");
        }
        Ok(())
    }

    fn report(&mut self, ignored: Vec<Ignored>, unrouted: Vec<Unrouted>) {
        let (ignored, unrouted) = (BTreeSet::from_iter(ignored), BTreeSet::from_iter(unrouted));
        for it in ignored.difference(&self.reported.ignored) {
            tracing::warn!(node = it.node, reason = %it, "ignored a pod range");
        }
        for it in unrouted.difference(&self.reported.unrouted) {
            tracing::warn!(node = it.node, range = %it.range, reason = it.reason, "set no route");
        }
        self.reported.ignored = ignored;
        self.reported.unrouted = unrouted;
    }
}
