//! Time until pods with requested networks are Ready, compared with pods without.

use super::{create, end, manifests};
use crate::burst::{REST, is_at_rest};
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, Node, wait};
use serde_json::Value;
use std::time::Duration;

/// Largest allowed ratio between the time of pods with networks and the time of pods without.
const AT_MOST: f64 = 1.15;

/// Compares the times until pods with and without networks are Ready. Only the best round of each
/// kind counts, because a busy machine makes rounds slower but never faster.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], count: u16, rounds: usize) -> Result<()> {
    let kinds = [
        manifests::plain(count, nodes),
        manifests::attached(count, nodes),
    ];
    let mut best = [f64::INFINITY; 2];
    for round in 0..rounds {
        // The kinds alternate in being first.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for kind in order {
            best[kind] = best[kind].min(measure(cluster, nodes, &kinds[kind])?);
        }
    }
    let [plain, attached] = best;
    let ratio = attached / plain;
    println!(
        "{count} pods Ready after {plain:.2} s without networks, {attached:.2} s with two: {ratio:.3}, at most {AT_MOST}"
    );
    ensure!(
        rounds == 0 || ratio <= AT_MOST,
        "pods with networks take {ratio:.3} times as long as pods without"
    );
    Ok(())
}

fn measure(cluster: &Cluster, nodes: [Node; 2], pods: &[Value]) -> Result<f64> {
    wait::until("the machine is at rest", Duration::from_mins(3), || {
        is_at_rest(REST)
    })?;
    let seconds = create(cluster, pods)?;
    println!("{seconds:.2} s");
    end(cluster, nodes)?;
    Ok(seconds)
}
