//! One round of one site.

use super::cli::Args;
use super::connections;
use super::conntrack;
use super::figures::Figures;
use super::goodput;
use super::site::Site;
use crate::stats::float;
use crate::traffic::{Protocol, rr};
use anyhow::{Context, Result};
use std::time::Duration;

pub(crate) fn round(site: &Site, args: &Args) -> Result<Figures<f64>> {
    let (way, length) = (site.way(), args.window());
    let opened = connections::measure(&way, length)?;
    conntrack::forget(&site.node)?;
    let went = goodput::measure(&way, length)?;
    let trips = rr::measure(&way, Protocol::Udp, Duration::ZERO, length).context("round trips")?;
    let took: Duration = trips.iter().sum();
    Ok(Figures {
        connections_per_s: opened.per_s,
        cpu_us_per_connection: opened.cpu_us,
        gbit_per_s: went.gbit_per_s,
        cpu_s_per_gbit: went.cpu_s_per_gbit,
        udp_trips_per_s: float(u64::try_from(trips.len())?) / took.as_secs_f64(),
    })
}
