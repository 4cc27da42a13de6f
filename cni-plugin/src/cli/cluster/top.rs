//! `kubectl braid top`: rates of the interfaces of all pods, repeated at an interval.
//!
//! ```text
//!  node ─► kubectl exec -i … braid top -o json ─► stream ─► View: the last document of each node ─► table
//! ```

use super::agents::{self, Node};
use super::collect::Progress;
use super::kubectl::Kubectl;
use super::stream::{Event, Streams};
use super::text::{self, wrap};
use crate::cli::outcome::{FAILURE, Outcome, SUCCESS};
use crate::cli::output::{self, Format};
use crate::cli::shaped::short;
use crate::cli::top::report::{InterfaceTraffic, NodeTraffic};
use crate::cli::top::{CLEAR, interval};
use crate::entry::signal;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Rows of a table on a terminal.
const ROWS: usize = 20;
/// Time in which a node may be late after its first answer.
const LATE: Duration = Duration::from_secs(5);

/// Show the rates of all pods' interfaces, until interrupted
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    kubectl: Kubectl,
    /// Seconds between two tables
    #[arg(short, long, default_value_t = 2.0, value_parser = interval)]
    delay: f64,
    /// Number of tables [default: 1 if standard output is not a terminal, otherwise no limit]
    #[arg(long)]
    count: Option<u64>,
    /// Column by which rows are sorted, the largest number first
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    sort: Sort,
    /// Most rows of a table [default: 20 on a terminal, otherwise no limit]
    #[arg(long)]
    rows: Option<usize>,
    /// Output format; JSON is one document a line
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Column by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Sum of both directions.
    Rate,
    Rx,
    Tx,
    Drops,
    Pod,
    Node,
}

/// The last traffic of all nodes.
#[derive(Debug, Serialize)]
struct View {
    nodes: Vec<NodeView>,
}

#[derive(Debug, Serialize)]
struct NodeView {
    node: String,
    /// Reason why there is no traffic.
    error: Option<String>,
    #[serde(flatten)]
    traffic: Option<NodeTraffic>,
    #[serde(skip)]
    has_agent: bool,
    /// True if the traffic is new since the last table.
    #[serde(skip)]
    is_fresh: bool,
    /// True if no more answers come.
    #[serde(skip)]
    has_ended: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    signal::note_instead()?;
    let nodes = agents::list(&arguments.kubectl)?;
    let delay = arguments.delay.to_string();
    let words = ["top", "-o", "json", "-d", &delay, "--until-eof"];
    let mut view = View::of(&nodes);
    let mut streams = Streams::start(&arguments.kubectl, &nodes, &words);
    let is_terminal = stdout().is_terminal();
    let most = arguments.count.or((!is_terminal).then_some(1));
    let delay = Duration::from_secs_f64(arguments.delay);
    let mut late = arguments.kubectl.limit();
    let mut count = 0;
    while most.is_none_or(|most| count < most) {
        let is_first = count == 0;
        if !view.round(&mut streams, delay + late, is_first) {
            return Ok(128 + signal::noted().unwrap_or_default());
        }
        late = LATE;
        if let ControlFlow::Break(code) = output::print_more(&view.text(arguments, is_terminal)?) {
            return Ok(code);
        }
        count += 1;
        if view.nodes.iter().all(|node| node.has_ended) {
            break;
        }
    }
    let mut nodes = view.nodes.iter();
    let has_failed = nodes.any(|node| node.has_agent && node.error.is_some());
    Ok(if has_failed { FAILURE } else { SUCCESS })
}

impl View {
    fn of(nodes: &[Node]) -> Self {
        let of_node = |node: &Node| {
            let error = node.running().err();
            NodeView {
                node: node.name.clone(),
                has_agent: node.agent.is_some(),
                has_ended: error.is_some(),
                error,
                traffic: None,
                is_fresh: false,
            }
        };
        Self {
            nodes: nodes.iter().map(of_node).collect(),
        }
    }

    /// Waits until each node has new traffic, at most for `limit`. Returns false after a signal.
    fn round(&mut self, streams: &mut Streams, limit: Duration, is_first: bool) -> bool {
        let end = Instant::now() + limit;
        let is_waiting = |node: &NodeView| !node.is_fresh && !node.has_ended;
        let mut progress = is_first.then(|| Progress::new(self.nodes.len()));
        loop {
            let waiting = self.nodes.iter().filter(|node| is_waiting(node)).count();
            if let Some(progress) = &mut progress {
                progress.set(self.nodes.len() - waiting);
            }
            if waiting == 0 || Instant::now() > end {
                break;
            }
            if let Some((at, event)) = streams.next() {
                self.nodes[at].take(event);
            }
            if signal::noted().is_some() {
                break;
            }
        }
        if let Some(progress) = &progress {
            progress.end();
        }
        for node in &mut self.nodes {
            if is_waiting(node) {
                node.fail(format!("no answer within {} s", limit.as_secs()));
            }
            node.is_fresh = false;
        }
        signal::noted().is_none()
    }

    fn text(&self, arguments: &Arguments, is_terminal: bool) -> serde_json::Result<String> {
        if arguments.output == Format::Json {
            return serde_json::to_string(self).map(|line| line + "\n");
        }
        let clear = if is_terminal { CLEAR } else { "" };
        let most = arguments.rows.or(is_terminal.then_some(ROWS));
        let mut text = clear.to_owned() + &self.table(arguments.sort, most);
        for node in &self.nodes {
            if let Some(words) = &node.error {
                text += &wrap(&format!("{}: ", node.node), words, 2);
            }
        }
        Ok(text)
    }

    /// Formats the interfaces of all nodes, at most `most`.
    fn table(&self, sort: Sort, most: Option<usize>) -> String {
        let mut all = Vec::new();
        for node in &self.nodes {
            for interface in node.traffic.iter().flat_map(|traffic| &traffic.interfaces) {
                all.push((node.node.as_str(), interface));
            }
        }
        sort.apply(&mut all);
        let count = all.len();
        all.truncate(most.unwrap_or(count));
        let left_out = count - all.len();
        let rows = all.into_iter().map(|(node, one)| row(node, one)).collect();
        let header = [
            "NAMESPACE/POD",
            "IF",
            "RX/s",
            "TX/s",
            "LIMIT",
            "DROPS/s",
            "NODE",
        ];
        let table = text::table(&header, rows, &[0, 1, 6]);
        if left_out > 0 {
            return format!("{table}and {left_out} more\n");
        }
        table
    }
}

impl NodeView {
    fn take(&mut self, event: Event) {
        match event {
            Event::Line(line) => match serde_json::from_str(&line) {
                Ok(traffic) => {
                    self.traffic = Some(traffic);
                    self.error = None;
                    self.is_fresh = true;
                }
                Err(err) => self.fail(format!("not the traffic of this version: {err}")),
            },
            Event::End(words) => {
                self.fail(words);
                self.has_ended = true;
            }
        }
    }

    fn fail(&mut self, words: String) {
        self.traffic = None;
        self.error = Some(words);
    }
}

impl Sort {
    fn apply(self, all: &mut [(&str, &InterfaceTraffic)]) {
        let number = |one: &InterfaceTraffic| match self {
            Self::Rate => one.bits(),
            Self::Rx => one.rx_bits_per_second,
            Self::Tx => one.tx_bits_per_second,
            Self::Drops => drops(one),
            Self::Pod | Self::Node => 0,
        };
        all.sort_by_cached_key(|(node, one)| {
            let first = if self == Self::Node { *node } else { "" };
            let names = (first.to_owned(), one.pod.clone(), one.ifname.clone());
            (Reverse(number(one)), names)
        });
    }
}

/// Returns the dropped packets of an interface per second: by itself and by its limits.
fn drops(one: &InterfaceTraffic) -> u64 {
    let mut sum = one
        .rx_dropped_per_second
        .saturating_add(one.tx_dropped_per_second);
    for limit in &one.bandwidth {
        sum = sum.saturating_add(limit.dropped_per_second);
        sum = sum.saturating_add(limit.guarded_per_second);
    }
    sum
}

fn row(node: &str, one: &InterfaceTraffic) -> Vec<String> {
    vec![
        one.pod.clone().unwrap_or_else(|| one.container_id.clone()),
        one.ifname.clone(),
        short(one.rx_bits_per_second),
        short(one.tx_bits_per_second),
        limits(one),
        short(drops(one)),
        node.to_owned(),
    ]
}

/// Formats the limits of both directions, received and sent: `20M/10M`, `-/10M`.
fn limits(one: &InterfaceTraffic) -> String {
    if one.bandwidth.is_empty() {
        return String::new();
    }
    let of = |direction: &str| {
        let limit = one
            .bandwidth
            .iter()
            .find(|limit| limit.direction == direction);
        limit.map_or_else(|| "-".to_owned(), |limit| short(limit.rate))
    };
    format!("{}/{}", of("ingress"), of("egress"))
}

#[cfg(test)]
mod tests {
    use super::super::text::WIDTH;
    use super::*;
    use crate::cli::top::report::LimitTraffic;

    fn interface(pod: &str, rx: u64, tx: u64, dropped: u64) -> InterfaceTraffic {
        let limit = LimitTraffic {
            direction: "egress".to_owned(),
            rate: 10_000_000,
            bits_per_second: tx,
            packets_per_second: 0,
            delayed_per_second: 0,
            dropped_per_second: dropped,
            marked_per_second: 0,
            bypassed_per_second: 0,
            guarded_per_second: 1,
        };
        InterfaceTraffic {
            pod: Some(pod.to_owned()),
            network: "pods".to_owned(),
            container_id: "4f1c".to_owned(),
            ifname: "eth0".to_owned(),
            rx_bits_per_second: rx,
            tx_bits_per_second: tx,
            rx_packets_per_second: 0,
            tx_packets_per_second: 0,
            rx_dropped_per_second: 1,
            tx_dropped_per_second: 1,
            bandwidth: vec![limit],
        }
    }

    fn node(name: &str, interfaces: Vec<InterfaceTraffic>) -> NodeView {
        NodeView {
            node: name.to_owned(),
            error: None,
            traffic: Some(NodeTraffic {
                seconds: 1.0,
                interfaces,
            }),
            has_agent: true,
            is_fresh: false,
            has_ended: false,
        }
    }

    fn view() -> View {
        let far = vec![interface("b/far", 900, 5_000, 0)];
        let near = vec![interface("a/x", 1_000, 10, 7), interface("c/y", 10, 20, 0)];
        View {
            nodes: vec![node("n2", near), node("n1", far)],
        }
    }

    fn pods(text: &str) -> Vec<&str> {
        let first = |line: &'_ str| line.split_whitespace().next().map(str::len);
        text.lines()
            .skip(1)
            .filter_map(|line| first(line).map(|len| &line[..len]))
            .collect()
    }

    #[test]
    fn rows_of_all_nodes_are_sorted_by_the_chosen_column() {
        for (sort, expected) in [
            (Sort::Rate, ["b/far", "a/x", "c/y"]),
            (Sort::Rx, ["a/x", "b/far", "c/y"]),
            (Sort::Tx, ["b/far", "c/y", "a/x"]),
            (Sort::Drops, ["a/x", "b/far", "c/y"]),
            (Sort::Pod, ["a/x", "b/far", "c/y"]),
            (Sort::Node, ["b/far", "a/x", "c/y"]),
        ] {
            assert_eq!(pods(&view().table(sort, None)), expected, "{sort:?}");
        }
        let short = view().table(Sort::Rate, Some(1));
        assert_eq!(pods(&short), ["b/far", "and"]);
        assert!(short.ends_with("and 2 more\n"), "{short}");
    }

    #[test]
    fn a_row_has_rates_limits_and_all_drops_in_80_columns() {
        let pod = format!("{}/{}", "namespace".repeat(7), "pod".repeat(80));
        let nodes = vec![node(
            &"node".repeat(60),
            vec![interface(&pod, 1_500_000, 20, 4)],
        )];
        let text = View { nodes }.table(Sort::Rate, None);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        let row = text.lines().nth(1).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[1..6], ["eth0", "1.5M", "20", "-/10M", "7"]);
        assert!(
            cells[0].starts_with("namespace") && cells[0].ends_with("pod"),
            "{row}"
        );
    }

    #[test]
    fn a_node_that_ended_keeps_its_reason_and_one_that_answers_again_loses_it() {
        let mut node = node("n1", Vec::new());
        node.fail("late".to_owned());
        let line = serde_json::to_string(&NodeTraffic {
            seconds: 1.0,
            interfaces: vec![interface("a/x", 1, 1, 0)],
        });
        node.take(Event::Line(line.expect("json")));
        assert!(node.is_fresh && node.error.is_none() && node.traffic.is_some());
        node.take(Event::End("error: lost".to_owned()));
        assert_eq!(node.error.as_deref(), Some("error: lost"));
        assert!(node.has_ended && node.traffic.is_none());
    }
}
