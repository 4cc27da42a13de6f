//! `braid top`: traffic of the attached interfaces on this node, repeated at an interval.
//!
//! ```text
//!  sample: counters ─► NodeTraffic (report): rates ─► table, or a line of JSON
//! ```

pub(in crate::cli) mod report;
mod sample;

use super::output::{self, Format};
use super::shaped::short;
use super::{Outcome, SUCCESS};
use crate::entry::start;
use braid_core::plan::thing::shaping::Toward;
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd;
use report::{InterfaceTraffic, LimitTraffic, NodeTraffic};
use sample::{Sample, traffic};
use std::cmp::Reverse;
use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Moves to the first line of a terminal and clears it.
pub(super) const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the traffic of all attached interfaces on this node, until interrupted
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Seconds between two samples
    #[arg(short, long, default_value_t = 1.0, value_parser = interval)]
    delay: f64,
    /// Number of samples; without it, no limit
    #[arg(short = 'n', long)]
    count: Option<u64>,
    /// Output format; JSON is one document a line
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// End also when standard input ends
    #[arg(long)]
    until_eof: bool,
}

/// Parses an interval in seconds.
pub(super) fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|err| err.to_string())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not between 0.1 and 3600".to_owned())
    }
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let clear = if stdout().is_terminal() { CLEAR } else { "" };
    let mut before = Sample::take()?;
    let mut count = 0;
    while arguments.count.is_none_or(|most| count < most) {
        if !wait(arguments)? {
            return Ok(SUCCESS);
        }
        let now = Sample::take()?;
        let traffic = traffic(&before, &now);
        let text = match arguments.output {
            Format::Table => format!("{clear}{}", table(&traffic)),
            Format::Json => serde_json::to_string(&traffic)? + "\n",
        };
        if let ControlFlow::Break(code) = output::print_more(&text) {
            return Ok(code);
        }
        (before, count) = (now, count + 1);
    }
    Ok(SUCCESS)
}

/// Waits for the interval. Returns false if standard output was closed, or standard input ended and
/// that counts.
fn wait(arguments: &Arguments) -> nix::Result<bool> {
    let end = Instant::now() + Duration::from_secs_f64(arguments.delay);
    loop {
        // The kernel reports errors even if no event is requested.
        let output = PollFd::new(start::output(), PollFlags::empty());
        let input = PollFd::new(start::input(), PollFlags::POLLIN);
        let mut all = [output, input];
        let watched = if arguments.until_eof { 2 } else { 1 };
        let left = end.saturating_duration_since(Instant::now());
        // A duration below a millisecond would be an immediate timeout.
        let left = u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        match poll(&mut all[..watched], PollTimeout::from(left)) {
            Ok(0) if Instant::now() >= end => return Ok(true),
            Ok(0) | Err(Errno::EINTR) => continue,
            events => events?,
        };
        let has =
            |fd: &PollFd<'_>, flags| fd.revents().is_some_and(|found| found.intersects(flags));
        if has(&all[0], PollFlags::POLLERR | PollFlags::POLLHUP) {
            return Ok(false);
        }
        if watched == 2 && has(&all[1], PollFlags::POLLIN | PollFlags::POLLHUP) {
            let mut text = [0; 512];
            if unistd::read(start::input(), &mut text)? == 0 {
                return Ok(false);
            }
        }
    }
}

/// Formats a line for each direction of each interface, the busiest first. The counters are packets
/// per second.
fn table(traffic: &NodeTraffic) -> String {
    if traffic.interfaces.is_empty() {
        return "no attached interfaces on this node\n".to_owned();
    }
    let has_pods = traffic.interfaces.iter().any(|one| one.pod.is_some());
    let mut rows = Vec::new();
    for interface in &traffic.interfaces {
        for toward in [Toward::Pod, Toward::Network] {
            let (bits, mut row) = direction_row(interface, toward);
            if has_pods {
                row.insert(0, interface.pod.clone().unwrap_or_default());
            }
            rows.push((bits, row));
        }
    }
    rows.sort_by_key(|(bits, _)| Reverse(*bits));
    let header = [
        "pod",
        "container",
        "ifname",
        "direction",
        "bit/s",
        "limit",
        "used",
        "packets/s",
        "delayed",
        "dropped",
        "marked",
        "bypassed",
        "guarded",
    ];
    let header = if has_pods { &header[..] } else { &header[1..] };
    output::table(header, rows.into_iter().map(|(_, row)| row))
}

/// Formats a direction of an interface, and returns its bits per second. A limited direction has the
/// counters of its limit.
fn direction_row(interface: &InterfaceTraffic, toward: Toward) -> (u64, Vec<String>) {
    let mut row = vec![
        super::status::short_id(&interface.container_id),
        interface.ifname.clone(),
        toward.name().to_owned(),
    ];
    let mut limits = interface.bandwidth.iter();
    if let Some(limit) = limits.find(|limit| limit.direction == toward.name()) {
        row.extend(limit_cells(limit));
        return (limit.bits_per_second, row);
    }
    let (bits, packets, dropped) = match toward {
        Toward::Pod => (
            interface.rx_bits_per_second,
            interface.rx_packets_per_second,
            interface.rx_dropped_per_second,
        ),
        Toward::Network => (
            interface.tx_bits_per_second,
            interface.tx_packets_per_second,
            interface.tx_dropped_per_second,
        ),
    };
    let none = String::new;
    row.extend([short(bits), none(), none(), short(packets)]);
    row.extend([none(), short(dropped), none(), none(), none()]);
    (bits, row)
}

fn limit_cells(limit: &LimitTraffic) -> Vec<String> {
    let bits = limit.bits_per_second;
    let share = u128::from(bits) * 100 / u128::from(limit.rate.max(1));
    let mut cells = vec![short(bits), short(limit.rate), format!("{share}%")];
    for count in [
        limit.packets_per_second,
        limit.delayed_per_second,
        limit.dropped_per_second,
        limit.marked_per_second,
        limit.bypassed_per_second,
        limit.guarded_per_second,
    ] {
        cells.push(short(count));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the traffic of an interface that sends 10 Mbit/s with a limit, and receives 1 Mbit/s
    /// without.
    fn interface(pod: Option<&str>) -> InterfaceTraffic {
        let limit = LimitTraffic {
            direction: "egress".to_owned(),
            rate: 20_000_000,
            bits_per_second: 10_000_000,
            packets_per_second: 10,
            delayed_per_second: 1,
            dropped_per_second: 2,
            marked_per_second: 3,
            bypassed_per_second: 4,
            guarded_per_second: 5,
        };
        InterfaceTraffic {
            pod: pod.map(str::to_owned),
            network: "pods".to_owned(),
            container_id: "4f1c".to_owned(),
            ifname: "eth0".to_owned(),
            rx_bits_per_second: 1_000_000,
            tx_bits_per_second: 10_100_000,
            rx_packets_per_second: 7,
            tx_packets_per_second: 8,
            rx_dropped_per_second: 9,
            tx_dropped_per_second: 0,
            bandwidth: vec![limit],
        }
    }

    fn rows(interfaces: Vec<InterfaceTraffic>) -> Vec<String> {
        let text = table(&NodeTraffic {
            seconds: 1.0,
            interfaces,
        });
        text.lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn each_direction_has_a_row_with_its_limit_if_it_has_one() {
        let expected = [
            "4f1c eth0 egress 10M 20M 50% 10 1 2 3 4 5",
            "4f1c eth0 ingress 1M 7 9",
        ];
        assert_eq!(rows(vec![interface(None)]), expected);
        let with_pod = rows(vec![interface(Some("ns/web"))]);
        assert_eq!(with_pod[1], "ns/web 4f1c eth0 ingress 1M 7 9");
    }

    #[test]
    fn node_without_interfaces_gets_a_message() {
        let none = NodeTraffic {
            seconds: 1.0,
            interfaces: Vec::new(),
        };
        assert_eq!(table(&none), "no attached interfaces on this node\n");
    }

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(interval("0.5"), Ok(0.5));
        for bad in ["0", "-1", "1e9", "nan", "x"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
