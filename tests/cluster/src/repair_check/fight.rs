//! A program that deletes a route again and again: the agent warns, and pauses.

use super::breaks::World;
use crate::agent;
use anyhow::{Context, Result, ensure};
use braid_testbed::wait;
use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// Duration of the fight: five repairs, then pauses of 2, 4, 8 and 16 seconds.
const FIGHT: Duration = Duration::from_secs(45);
/// Longest time until the route stays after the fight. The next pause would be 32 seconds.
const AFTER: Duration = Duration::from_secs(75);
const LIMIT: Duration = Duration::from_secs(15);
/// Repairs of a minute without a pause.
const MOST: usize = 5;

/// Deletes a route as soon as it is there, and reads the times of its repairs.
pub(super) fn check(world: &World<'_>) -> Result<()> {
    let routes = world.read("ip route show proto 98")?;
    let route = routes.lines().next().context("no route of the agent")?;
    let to = route.split(' ').next().unwrap_or_default();
    let seen = tempfile::NamedTempFile::new().context("make a file of times")?;
    let mut monitor = world
        .cluster
        .on(world.node, ["ip", "-ts", "-o", "monitor", "route"])?;
    let mut monitor = Ended(monitor.stdout(seen.reopen()?).spawn()?);
    let script = format!("while :; do ip route del {to} 2>/dev/null; sleep 0.05; done");
    let mut fight = world.cluster.on(world.node, ["sh", "-c", &script])?;
    let mut fight = Ended(fight.stdout(Stdio::null()).spawn()?);
    thread::sleep(FIGHT);
    fight.end();
    monitor.end();
    let times = times(&fs::read_to_string(seen.path())?, to);
    let pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    println!("pauses between repairs of {to}: {pauses:.1?} s");
    ensure!(pauses.len() > MOST, "{} repairs", times.len());
    let late: Vec<&f64> = pauses.iter().skip(MOST - 1).collect();
    let grow = late.windows(2).all(|pair| *pair[1] > pair[0] * 1.5);
    ensure!(
        *late[0] >= 1.9 && grow,
        "the pauses after {MOST} repairs do not grow: {late:.1?}"
    );
    wait::eventually(LIMIT, || {
        let node = world.node.to_string();
        let all = agent::events(world.cluster, "Node", &node)?;
        let is_it = |event: &agent::Event| {
            event.severity == "Warning"
                && event.reason == "RepairPaused"
                && event.message.contains(to)
        };
        ensure!(all.iter().any(is_it), "no warning about {to}");
        Ok(())
    })?;
    wait::eventually(AFTER, || {
        let routes = world.read("ip route show proto 98")?;
        ensure!(
            routes.lines().any(|line| line.starts_with(to)),
            "no route to {to}"
        );
        Ok(())
    })?;
    world.ensure_traffic().context("after the fight")
}

/// A program that ends with this value.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the seconds of a day at which `ip -ts -o monitor route` shows a new route to `to`.
fn times(shown: &str, to: &str) -> Vec<f64> {
    let mut times = Vec::new();
    for line in shown.lines() {
        let Some((time, rest)) = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        else {
            continue;
        };
        let clock = time.split('T').nth(1).unwrap_or_default();
        let parts: Vec<f64> = clock
            .split(':')
            .filter_map(|part| part.parse().ok())
            .collect();
        if let [hours, minutes, seconds] = parts[..]
            && rest.starts_with(to)
        {
            times.push((hours * 60.0 + minutes) * 60.0 + seconds);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_route_are_those_of_its_return() {
        let shown = "[2026-11-29T19:41:22.500000] 10.244.2.0/24 via 10.99.0.12 dev eth0 proto 98 \n\
                     [2026-11-29T19:41:22.600000] Deleted 10.244.2.0/24 via 10.99.0.12 dev eth0 proto 98 \n\
                     [2026-11-29T19:41:24.500000] 10.244.2.0/24 via 10.99.0.12 dev eth0 proto 98 \n\
                     [2026-11-29T19:41:25.500000] 10.244.6.0/24 dev braid-vxlan \n";
        let times = times(shown, "10.244.2.0/24");
        assert_eq!(times.len(), 2);
        assert!((times[1] - times[0] - 2.0).abs() < 0.01);
    }
}
