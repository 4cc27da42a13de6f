//! `braid top`: traffic of the shaped interfaces on this node, repeated at an interval.

use super::output;
use super::shaped::{self, Direction, short};
use super::{Outcome, SUCCESS};
use braid_core::plan::thing::shaping::Traffic;
use braid_node::store::record;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Show the traffic of the shaped interfaces on this node, until interrupted
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Seconds between two samples
    #[arg(short, long, default_value_t = 1.0, value_parser = interval)]
    delay: f64,
    /// Number of samples; without it, no limit
    #[arg(short = 'n', long)]
    count: Option<u64>,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|err| err.to_string())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not between 0.1 and 3600".to_owned())
    }
}

/// Container id, interface and direction.
type Key = (String, String, &'static str);

/// Sample of all directions at one time.
struct Look {
    at: Instant,
    directions: BTreeMap<Key, Direction>,
}

impl Look {
    fn take() -> Result<Self, braid_node::Error> {
        let mut directions = BTreeMap::new();
        for record in record::list()? {
            for attached in &record.attachments {
                for direction in shaped::of(&record, attached) {
                    let key = (
                        record.key.owner.container_id.clone(),
                        attached.ifname.to_string(),
                        direction.toward.name(),
                    );
                    directions.insert(key, direction);
                }
            }
        }
        Ok(Self {
            at: Instant::now(),
            directions,
        })
    }
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let clear = if stdout().is_terminal() {
        "\x1b[H\x1b[J"
    } else {
        ""
    };
    let mut before = Look::take()?;
    let mut looks = 0;
    while arguments.count.is_none_or(|count| looks < count) {
        sleep(Duration::from_secs_f64(arguments.delay));
        let now = Look::take()?;
        if let ControlFlow::Break(code) =
            output::print_more(&format!("{clear}{}", frame(&before, &now)))
        {
            return Ok(code);
        }
        (before, looks) = (now, looks + 1);
    }
    Ok(SUCCESS)
}

/// Formats one line per direction, the busiest first. The counters are packets per second.
fn frame(before: &Look, now: &Look) -> String {
    let seconds = (now.at - before.at).as_secs_f64();
    let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
    for (key, direction) in &now.directions {
        let earlier = before
            .directions
            .get(key)
            .and_then(|direction| direction.passed);
        // Counters without an earlier sample have no rate.
        let (Some(passed), Some(earlier)) = (direction.passed, earlier) else {
            continue;
        };
        let rate = |count: fn(&Traffic) -> u64| {
            per_second(count(&passed).saturating_sub(count(&earlier)), seconds)
        };
        let bits = rate(|passed| passed.bytes.saturating_mul(8));
        let counters: [fn(&Traffic) -> u64; 6] = [
            |p| p.packets,
            |p| p.delayed,
            |p| p.dropped,
            |p| p.marked,
            |p| p.bypassed,
            |p| p.guarded,
        ];
        let (container, ifname, toward) = key;
        let share = u128::from(bits) * 100 / u128::from(direction.rate.max(1));
        let mut row = vec![
            super::status::short_id(container),
            ifname.clone(),
            (*toward).to_owned(),
            short(bits),
        ];
        row.extend([short(direction.rate), format!("{share}%")]);
        row.extend(counters.map(|count| short(rate(count))));
        rows.push((bits, row));
    }
    if rows.is_empty() {
        return "no shaped interfaces on this node\n".to_owned();
    }
    rows.sort_by_key(|(bits, _)| std::cmp::Reverse(*bits));
    let header = [
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
    output::table(&header, rows.into_iter().map(|(_, row)| row))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for people"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds.max(0.001)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::thing::shaping::Toward;

    fn look(at: Instant, bytes: u64, packets: u64) -> Look {
        let passed = Some(Traffic {
            bytes,
            packets,
            ..Traffic::default()
        });
        let direction = Direction {
            toward: Toward::Network,
            rate: 20_000_000,
            burst: 8_000,
            queue: "fq".to_owned(),
            passed,
        };
        let key = ("4f1c".to_owned(), "eth0".to_owned(), "egress");
        Look {
            at,
            directions: BTreeMap::from([(key, direction)]),
        }
    }

    #[test]
    fn frame_shows_the_traffic_since_the_previous_sample() {
        let start = Instant::now();
        let text = frame(
            &look(start, 1_000_000, 10),
            &look(start + Duration::from_secs(2), 3_500_000, 30),
        );
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            [
                "4f1c", "eth0", "egress", "10M", "20M", "50%", "10", "0", "0", "0", "0", "0"
            ]
        );
    }

    #[test]
    fn node_without_limits_gets_a_message() {
        let empty = || Look {
            at: Instant::now(),
            directions: BTreeMap::new(),
        };
        assert_eq!(
            frame(&empty(), &empty()),
            "no shaped interfaces on this node\n"
        );
    }

    #[test]
    fn an_interval_has_bounds() {
        assert_eq!(interval("0.5"), Ok(0.5));
        for bad in ["0", "-1", "1e9", "nan", "x"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
