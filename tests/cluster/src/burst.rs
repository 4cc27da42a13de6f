//! Many pods created at the same time: the time until all are Ready, and the network plugin's share
//! of this time according to containerd's metrics.

use crate::pods;
use anyhow::{Context, Result};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use braid_testbed::{METRICS, wait};
use serde_json::{Value, json};
use std::fs;
use std::io::{Write, stdout};
use std::ops::{Add, Sub};
use std::thread::sleep;
use std::time::{Duration, Instant};

const APP: &str = pods::BURST;
/// Time for which the machine must be mostly idle before the pods are created. The cluster alone
/// uses a tenth of two processors, which [`IDLE_SHARE`] allows.
pub(crate) const REST: Duration = Duration::from_secs(2);
const IDLE_SHARE: f64 = 0.8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of pods, created at the same time
    #[arg(long, default_value_t = 60)]
    pods: usize,
    /// Use the node's network: no plugin runs, so this is the lower bound
    #[arg(long)]
    host_network: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// A timer of containerd: the number of calls, and their total duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Timer {
    count: f64,
    seconds: f64,
}

impl Timer {
    fn mean_ms(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.seconds / self.count * 1000.0)
    }
}

impl Sub for Timer {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
        }
    }
}

impl Add for Timer {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// Timers of a node, in the order of [`TIMERS`].
type Timers = [Timer; TIMERS.len()];

/// containerd's timers: metric name and labels. The first two count the network plugin's calls for
/// set-up and tear-down. The others count all of containerd's work for the network of a sandbox,
/// which is mostly to create and to unmount the network namespace.
const TIMERS: [(&str, &str); 4] = [
    (
        "containerd_cri_network_plugin_operations_duration_seconds_seconds",
        r#"{operation_type="set_up_pod"}"#,
    ),
    (
        "containerd_cri_network_plugin_operations_duration_seconds_seconds",
        r#"{operation_type="tear_down_pod"}"#,
    ),
    ("containerd_cri_sandbox_create_network_seconds", ""),
    ("containerd_cri_sandbox_delete_network_seconds", ""),
];
/// Names of [`TIMERS`] in the printed table. The JSON output has `_` instead of each blank.
const NAMES: [&str; TIMERS.len()] = ["set up", "tear down", "create network", "delete network"];

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let nodes = cluster.nodes()?;
    sh::read(&mut cluster.kubectl(["delete", "pod", "-l", "app=burst", "--ignore-not-found"]))?;
    await_collection(cluster, &nodes)?;
    wait::until("the machine is at rest", Duration::from_mins(3), || {
        is_at_rest(REST)
    })?;
    let before = nodes
        .iter()
        .map(|node| timers(cluster, *node))
        .collect::<Result<Vec<_>>>()?;
    let mut watch = pods::Watch::start(cluster, APP)?;
    let start = Instant::now();
    cluster.create(&manifests(options))?;
    watch.until("became Ready", options.pods, pods::is_ready)?;
    let ready_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    sh::read(&mut cluster.kubectl(["delete", "pod", "-l", "app=burst", "--wait=false"]))?;
    watch.until("were gone", options.pods, pods::is_gone)?;
    let gone_s = start.elapsed().as_secs_f64();
    let after = nodes
        .iter()
        .map(|node| timers(cluster, *node))
        .collect::<Result<Vec<_>>>()?;

    let spent = |(after, before): (&Timers, &Timers)| each(after, before, Timer::sub);
    let mut rows: Vec<(String, Timers)> = nodes
        .iter()
        .map(Node::to_string)
        .zip(after.iter().zip(&before).map(spent))
        .collect();
    let all = rows.iter().fold(Timers::default(), |sum, (_, node)| {
        each(&sum, node, Timer::add)
    });
    rows.push(("all".into(), all));
    print(options, ready_s, gone_s, &rows).context("print the result")
}

fn each(one: &Timers, other: &Timers, what: fn(Timer, Timer) -> Timer) -> Timers {
    std::array::from_fn(|at| what(one[at], other[at]))
}

/// Waits until the runtimes have deleted the ended sandboxes of all checks. The kubelet deletes
/// ended sandboxes each minute, and each deletion is another tear-down, which would falsify the
/// mean.
fn await_collection(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    wait::until(
        "earlier sandboxes are collected",
        Duration::from_mins(3),
        || {
            for (node, app) in nodes
                .iter()
                .flat_map(|node| pods::APPS.map(|app| (*node, app)))
            {
                if !pods::sandboxes(cluster, node, app)?.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        },
    )
}

/// Returns true if the machine is mostly idle for `time`. Remaining work for earlier pods would
/// falsify the mean.
pub(crate) fn is_at_rest(time: Duration) -> Result<bool> {
    let before = CpuTime::now()?;
    sleep(time);
    Ok((CpuTime::now()? - before).idle_share() >= IDLE_SHARE)
}

/// Time of all processors since boot, in ticks, from /proc/stat.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTime {
    idle: f64,
    all: f64,
}

impl CpuTime {
    fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Self::parse(&stat).context("/proc/stat does not begin with the sum of all processors")
    }

    /// Parses the first line of /proc/stat: `cpu`, then the ticks of user, nice, system, idle and
    /// more.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace();
        let ticks = fields
            .map(|field| field.parse().ok())
            .collect::<Option<Vec<f64>>>()?;
        Some(Self {
            idle: *ticks.get(3)?,
            all: ticks.iter().sum(),
        })
    }

    fn idle_share(self) -> f64 {
        self.idle / self.all
    }
}

impl Sub for CpuTime {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            idle: self.idle - before.idle,
            all: self.all - before.all,
        }
    }
}

fn manifests(options: &Options) -> Vec<Value> {
    let mut spec = pods::spec("exec sleep 1000000");
    spec["hostNetwork"] = options.host_network.into();
    (1..=options.pods)
        .map(|index| pods::pod(&format!("{APP}-{index}"), APP, &spec))
        .collect()
}

fn timers(cluster: &Cluster, node: Node) -> Result<Timers> {
    let url = format!("http://{METRICS}/v1/metrics");
    let metrics = sh::read(&mut cluster.on(node, ["busybox", "wget", "-qO-", &url])?)?;
    Ok(TIMERS.map(|(name, labels)| timer(&metrics, name, labels)))
}

/// Reads the timer `name` with these labels from metrics in Prometheus' text format. Returns zero
/// if the metrics lack the timer, because they omit a timer without calls.
fn timer(metrics: &str, name: &str, labels: &str) -> Timer {
    let value = |ending: &str| {
        let value = |line: &'_ str| -> Option<String> {
            let rest = line
                .strip_prefix(name)?
                .strip_prefix(ending)?
                .strip_prefix(labels)?;
            rest.strip_prefix(' ').map(str::to_owned)
        };
        let lines = metrics.lines().filter_map(value);
        lines.filter_map(|value| value.parse::<f64>().ok()).sum()
    };
    Timer {
        count: value("_count"),
        seconds: value("_sum"),
    }
}

fn print(options: &Options, ready_s: f64, gone_s: f64, rows: &[(String, Timers)]) -> Result<()> {
    let mut out = stdout().lock();
    if options.json {
        let side = |timer: Timer| json!({"count": timer.count, "mean_ms": timer.mean_ms()});
        let nodes: serde_json::Map<String, Value> = rows
            .iter()
            .map(|(name, timers)| {
                let named = NAMES.iter().map(|name| name.replace(' ', "_"));
                (name.clone(), named.zip(timers.map(side)).collect())
            })
            .collect();
        let result = json!({
            "pods": options.pods, "host_network": options.host_network,
            "all_ready_s": ready_s, "all_gone_s": gone_s, "network": nodes,
        });
        return Ok(writeln!(out, "{result}")?);
    }
    writeln!(
        out,
        "{} pods: all Ready after {ready_s:.1} s, all gone {gone_s:.1} s after their deletion",
        options.pods
    )?;
    writeln!(
        out,
        "{:5} {}   (mean ms, calls)",
        "node",
        NAMES.map(|name| format!("{name:>18}")).concat()
    )?;
    for (name, timers) in rows {
        let ms = |timer: &Timer| {
            timer
                .mean_ms()
                .map_or_else(|| "-".into(), |ms| format!("{ms:.0} {:>4}", timer.count))
        };
        writeln!(
            out,
            "{name:5} {}",
            timers
                .each_ref()
                .map(|timer| format!("{:>18}", ms(timer)))
                .concat()
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_the_fourth_field() {
        let time = CpuTime::parse("cpu  10 0 20 70 0 0 0 0 0 0\ncpu0 5 0 10 35 0 0 0 0 0 0\n")
            .expect("a sum");
        assert_eq!(
            time,
            CpuTime {
                idle: 70.0,
                all: 100.0
            }
        );
        assert_eq!(CpuTime::parse("cpu0 1 2 3 4\n"), None);
    }

    #[test]
    fn a_timer_is_read_from_prometheus_text() {
        let metrics = "# TYPE net_seconds histogram\nnet_seconds_bucket{le=\"1\"} 2\nnet_seconds_sum 1.5\nnet_seconds_count 3\n";
        assert_eq!(
            timer(metrics, "net_seconds", ""),
            Timer {
                count: 3.0,
                seconds: 1.5
            }
        );
        assert_eq!(timer(metrics, "other", "").mean_ms(), None);
        let labelled = "ops_sum{kind=\"a\"} 2\nops_count{kind=\"a\"} 4\nops_sum{kind=\"b\"} 9\nops_count{kind=\"b\"} 9\n";
        assert_eq!(
            timer(labelled, "ops", "{kind=\"a\"}"),
            Timer {
                count: 4.0,
                seconds: 2.0
            }
        );
    }
}
