//! Figures of one round.

use super::iperf;
use super::pair::Pair;
use crate::report::Figures;
use crate::stats::Spread;
use crate::traffic::cpu::Moment;
use crate::traffic::{Protocol, rr};
use anyhow::{Context, Result};
use std::time::Duration;

/// MTU of the pods' interfaces.
pub(super) const MTU: &str = "pod_mtu";
/// Payload of one TCP stream.
pub(super) const THROUGHPUT: &str = "gbit_per_s";
/// Busy time of all processors per Gbit of payload.
pub(super) const CPU: &str = "cpu_s_per_gbit";
/// Median time of a request and its response.
pub(super) const P50: &str = "p50_us";
/// The same, 95th percentile.
pub(super) const P95: &str = "p95_us";

/// Measures throughput, then latency, each for some seconds. Fails if the traffic did not take the
/// path of the network.
pub(super) fn round(pair: &Pair<'_>, seconds: u16) -> Result<Figures> {
    let (way, counters, start) = (pair.way()?, pair.counters()?, Moment::now()?);
    let stream = iperf::measure(&way, seconds)?;
    let busy = start.busy()?;
    let length = Duration::from_secs(seconds.into());
    let trips = rr::measure(&way, Protocol::Tcp, Duration::ZERO, length).context("round trips")?;
    pair.check(counters, stream.bytes)?;
    let mut micros = Vec::new();
    for trip in trips {
        micros.push(trip.as_secs_f64() * 1e6);
    }
    let trips = Spread::of(&micros).context("no round trip")?;
    let gbit = stream.gbit_per_s * length.as_secs_f64();
    Ok(vec![
        (MTU, pair.mtu()?.into()),
        (THROUGHPUT, stream.gbit_per_s),
        (CPU, busy.as_secs_f64() / gbit),
        (P50, trips.p50),
        (P95, trips.p95),
    ])
}
