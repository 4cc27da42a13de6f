//! Checks of a running cluster, one command each. `cargo xtask cluster <command>` starts this
//! program.

#![expect(clippy::print_stdout, reason = "a tool that people read")]

mod addresses;
mod agent;
mod agent_check;
mod blows;
mod burst;
mod chaos_check;
mod chart_check;
mod churn;
mod churn_check;
mod claims_check;
mod deploy_check;
mod flannel_check;
mod flows;
mod hostport_check;
mod hotplug_check;
mod ipam_check;
mod leftovers;
mod limit_check;
mod migration_check;
mod multus_check;
mod networks_check;
mod pods;
mod repair_check;
mod rounds;
mod runbook;
mod running;
mod settings_check;
mod smoke;
mod snapshot;
mod status_check;
mod upgrade_check;
mod view_check;

use braid_testbed::Cluster;
use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask cluster",
    about = "Checks of a running cluster; `cargo xtask cluster --help` has the rest"
)]
enum Verb {
    /// Create many pods at the same time and measure the time until all are Ready, and the
    /// runtime's metrics of the network plugin
    Burst(burst::Options),
    /// Check the basics of a CNI plugin: pods Ready, reachable from both nodes, exec, logs, and no
    /// leftovers
    Smoke(smoke::Options),
    /// Make a node's lease store read-only, wait until the node is not Ready with the plugin's
    /// reason, repair the store, wait until the node is Ready
    StatusCheck(status_check::Options),
    /// Fail unless bandwidth annotations limit a pod
    LimitCheck,
    /// Fail unless host ports and Services work as Kubernetes' conformance tests require; needs `up
    /// --kube-proxy`
    HostportCheck,
    /// Fail unless Multus' end-to-end scripts pass with braid in place of Multus. Only the plugin
    /// type in Multus' configuration is changed; needs `deploy`
    MultusCheck,
    /// Fail unless `kubectl apply` of deploy/braid.yaml installs braid on nodes without it, and
    /// deploy/remove.yaml restores the nodes
    DeployCheck,
    /// Fail unless `helm install` of the chart makes a cluster of machines without any network for
    /// pods, and its notes remove all of it but the kinds; needs `up --kube-proxy` without plugins
    ChartCheck,
    /// Fail unless nodes move from flanneld to mode `flannel` and back by docs/flannel.md, without an
    /// interrupted connection; needs `up --kube-proxy --cni-dir` of the reference plugins
    FlannelCheck(flannel_check::Options),
    /// Fail unless nodes move to braid and back by docs/migration.md, without an interrupted
    /// connection
    MigrationCheck(migration_check::Options),
    /// Fail unless deploy/braid.yaml makes a cluster of machines without any network for pods, on
    /// which nodes join, restart and leave; needs `up --kube-proxy` without plugins
    AgentCheck,
    /// Fail unless traffic and new pods survive disturbances of the agent, the API server, the
    /// runtime and a node; needs `deploy`
    ChaosCheck(chaos_check::Options),
    /// Fail unless the networks of running pods follow their annotations, also if the agent is killed
    /// in between; needs `deploy`
    HotplugCheck(hotplug_check::Options),
    /// Fail unless the agents restore objects that other programs delete, and collect the garbage of
    /// containers that are gone; needs `deploy`
    RepairCheck(repair_check::Options),
    /// Fail unless pods that come and go leave nothing, and cost the agents no memory; needs `deploy`
    ChurnCheck(churn_check::Options),
    /// Fail unless type, MTU and mode of the agent's configuration apply to a running cluster; needs
    /// `deploy`
    SettingsCheck,
    /// Fail unless deploy/braid.yaml replaces an installation without an agent and no packet is lost
    UpgradeCheck,
    /// Fail unless pods are attached to the networks of their annotations; needs `up --kube-proxy`
    /// and `deploy`
    NetworksCheck(networks_check::Options),
    /// Fail unless pods of both nodes share the range of a network with the IPAM `whereabouts`; needs
    /// `deploy`
    IpamCheck(ipam_check::Options),
    /// Fail unless pods with resource claims are placed where a link has the claimed bandwidth left,
    /// and have that rate; needs `deploy`
    ClaimsCheck(claims_check::Options),
    /// Fail unless `kubectl braid` shows attachments, rates and faults of the nodes as they are;
    /// needs `deploy`
    ViewCheck,
}

fn main() -> ExitCode {
    let verb = Verb::parse();
    let done = Cluster::running().and_then(|cluster| match &verb {
        Verb::Burst(options) => burst::run(&cluster, options),
        Verb::Smoke(options) => smoke::run(&cluster, options),
        Verb::StatusCheck(options) => status_check::run(&cluster, options),
        Verb::LimitCheck => limit_check::run(&cluster),
        Verb::HostportCheck => hostport_check::run(&cluster),
        Verb::MultusCheck => multus_check::run(&cluster),
        Verb::FlannelCheck(options) => flannel_check::run(&cluster, options),
        Verb::MigrationCheck(options) => migration_check::run(&cluster, options),
        Verb::AgentCheck => agent_check::run(&cluster),
        Verb::ChaosCheck(options) => chaos_check::run(&cluster, options),
        Verb::HotplugCheck(options) => hotplug_check::run(&cluster, options),
        Verb::RepairCheck(options) => repair_check::run(&cluster, options),
        Verb::ChurnCheck(options) => churn_check::run(&cluster, options),
        Verb::SettingsCheck => settings_check::run(&cluster),
        Verb::UpgradeCheck => upgrade_check::run(&cluster),
        Verb::ChartCheck => chart_check::run(&cluster),
        Verb::DeployCheck => deploy_check::run(&cluster),
        Verb::NetworksCheck(options) => networks_check::run(&cluster, options),
        Verb::ClaimsCheck(options) => claims_check::run(&cluster, options),
        Verb::IpamCheck(options) => ipam_check::run(&cluster, options),
        Verb::ViewCheck => view_check::run(&cluster),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
