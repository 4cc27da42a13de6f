//! One round of one site.

use super::cli::Args;
use super::connections;
use super::conntrack;
use super::figures::Figures;
use super::site::Site;
use crate::stats::float;
use crate::traffic::cpu::Moment;
use crate::traffic::{self, Load, Protocol, Way, Window, rr};
use anyhow::{Context, Result};
use std::time::Duration;

/// What passes before the clock starts: by then TCP's window is open.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) fn round(site: &Site, args: &Args) -> Result<Figures<f64>> {
    let (way, length) = (site.way(), args.window());
    let opened = connections::measure(&way, length)?;
    conntrack::forget(&site.node)?;
    let (gbit_per_s, cpu_s_per_gbit) = bulk(way, length)?;
    let trips = rr::measure(&way, Protocol::Udp, Duration::ZERO, length).context("round trips")?;
    let took: Duration = trips.iter().sum();
    Ok(Figures {
        connections_per_s: opened.per_s,
        cpu_us_per_connection: opened.cpu_us,
        gbit_per_s,
        cpu_s_per_gbit,
        udp_trips_per_s: float(u64::try_from(trips.len())?) / took.as_secs_f64(),
    })
}

/// Goodput of one flow of TCP, and the processors' time for it.
fn bulk(way: Way<'_>, length: Duration) -> Result<(f64, f64)> {
    let load =
        Load { way, protocol: Protocol::Tcp, flows: 1, offered_bps: f64::INFINITY, settle: SETTLE, congestion: None };
    let ((window, busy), arrivals) = traffic::during(&load, || {
        let before = Moment::now()?;
        Ok((Window::pass(length), before.busy()?))
    })?;
    // A receiver that had no processor in a short window.
    let gbit_per_s = window.goodput_bps(&arrivals).unwrap_or_default() / 1e9;
    let gbit = gbit_per_s * window.end.duration_since(window.start).as_secs_f64();
    Ok((gbit_per_s, busy.as_secs_f64() / gbit))
}
