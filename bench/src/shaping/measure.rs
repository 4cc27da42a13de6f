//! Measurement of one directory's plugins in one setting.

use super::cell::{Cell, Direction, Family, Rate};
use super::cli::Args;
use super::segments::Segments;
use super::{CPU, GOODPUT, OF_IDEAL, RESENT, RR_P50, RR_P99};
use crate::attached::Attached;
use crate::options::Contender;
use crate::report::Figures;
use crate::stats::Spread;
use crate::traffic::cpu::Moment;
use crate::traffic::{self, Load, Protocol, Way, Window, rr};
use anyhow::{Context, Result};
use std::time::Duration;

/// Rate at which UDP sends, relative to the limit.
const OFFERED: f64 = 1.5;
/// Time before the measurement starts, enough to use up the burst and for TCP to recover from its
/// first losses.
const SETTLE: Duration = Duration::from_secs(2);
/// Approximate bits of the frames of a request and its response.
const FRAME_BITS: f64 = 8.0 * (64.0 + 66.0);
/// Maximum share of the rate for requests, so that they wait behind other traffic and not behind
/// each other.
const PART: f64 = 1.0 / 50.0;
const LEAST_PAUSE: Duration = Duration::from_millis(2);

/// Plugins and the parameters of their measurement.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) contender: &'a Contender<'a>,
    pub(crate) args: &'a Args,
}

impl Place<'_> {
    /// Measures one pod.
    pub(crate) fn alone(&self, cell: Cell, with_round_trips: bool) -> Result<Figures> {
        self.attached(&[cell.rate], |attached| {
            let way = way(attached, 0, cell.direction, cell.family)?;
            let mut figures = self.bulk(way, cell)?;
            if with_round_trips {
                figures.extend(self.round_trips(way, cell)?);
            }
            Ok(figures)
        })
    }

    /// Measures two pods that send at the same time.
    pub(crate) fn pair(&self, cells: [Cell; 2]) -> Result<[Figures; 2]> {
        self.attached(&cells.map(|cell| cell.rate), |attached| {
            let [one, other] = cells;
            let one_load = self.load(way(attached, 0, one.direction, one.family)?, one);
            let other_load = self.load(way(attached, 1, other.direction, other.family)?, other);
            let window = || Ok(Window::pass(self.length(one.rate)));
            let ((window, others), ones) =
                traffic::during(&one_load, || traffic::during(&other_load, window))?;
            let goodput = |arrivals: &[_]| window.goodput_bps(arrivals).context("nothing arrived");
            Ok([
                received(goodput(&ones)?, one),
                received(goodput(&others)?, other),
            ])
        })
    }

    /// Attaches pods, runs `work`, and detaches them.
    fn attached<T>(
        &self,
        rates: &[Rate],
        work: impl FnOnce(&Attached<'_>) -> Result<T>,
    ) -> Result<T> {
        let Contender { conflist, dir, .. } = self.contender;
        let mut attached = Attached::new(conflist, dir)?;
        let added = rates.iter().try_for_each(|rate| {
            attached.add(conflist.with_capability("bandwidth", &rate.limits()))
        });
        let done = added.and_then(|()| work(&attached));
        let deleted = attached.del();
        let done = done?;
        deleted.map(|()| done)
    }

    fn length(&self, rate: Rate) -> Duration {
        Duration::from_secs(self.args.seconds).max(rate.least_window())
    }

    fn load<'b>(&'b self, way: Way<'b>, cell: Cell) -> Load<'b> {
        Load {
            way,
            protocol: cell.protocol,
            flows: cell.flows,
            offered_bps: OFFERED * cell.rate.bps(),
            settle: SETTLE.max(cell.rate.least_settle()),
            congestion: self.args.congestion.as_deref(),
        }
    }

    /// Measures goodput, and the CPU time for it.
    fn bulk(&self, way: Way<'_>, cell: Cell) -> Result<Figures> {
        let ((window, busy, [before, after]), arrivals) =
            traffic::during(&self.load(way, cell), || {
                let (before, moment) = (Segments::of(way.from.netns)?, Moment::now()?);
                let window = Window::pass(self.length(cell.rate).max(cell.least_window()));
                let after = Segments::of(way.from.netns)?;
                Ok((window, moment.busy()?, [before, after]))
            })?;
        let seconds = window.end.duration_since(window.start).as_secs_f64();
        let goodput_bps = match cell.protocol {
            // Includes segments that wait at the receiver for a retransmission.
            Protocol::Tcp => {
                f64::from(after.delivered_since(before)) * f64::from(cell.payload()) * 8.0 / seconds
            }
            Protocol::Udp => window.goodput_bps(&arrivals).context("nothing arrived")?,
        };
        let mut figures = received(goodput_bps, cell);
        if cell.protocol == Protocol::Tcp {
            figures.extend(after.part_since(before).map(|part| (RESENT, part)));
        }
        figures.push((CPU, busy.as_secs_f64() / (goodput_bps / 1e9 * seconds)));
        Ok(figures)
    }

    /// Measures round trips of the cell's protocol beside one TCP flow.
    fn round_trips(&self, way: Way<'_>, cell: Cell) -> Result<Figures> {
        let bulk = self.load(
            way,
            Cell {
                protocol: Protocol::Tcp,
                flows: 1,
                ..cell
            },
        );
        let pause = Duration::from_secs_f64(FRAME_BITS / (cell.rate.bps() * PART)).max(LEAST_PAUSE);
        let (trips, _) = traffic::during(&bulk, || {
            rr::measure(&way, cell.protocol, pause, self.length(cell.rate))
        })?;
        let trips: Vec<f64> = trips.iter().map(|trip| trip.as_secs_f64() * 1e3).collect();
        let trips = Spread::of(&trips).context("no request was answered")?;
        Ok(vec![(RR_P50, trips.p50), (RR_P99, trips.p99)])
    }
}

/// Returns the path of the traffic between a pod and its gateway.
fn way<'a>(
    attached: &'a Attached<'_>,
    slot: usize,
    direction: Direction,
    family: Family,
) -> Result<Way<'a>> {
    let (pod, gateway) = attached.pod_and_gateway(slot, family == Family::V4)?;
    Ok(match direction {
        Direction::Ingress => Way {
            from: gateway,
            to: pod,
            entrance: None,
        },
        Direction::Egress => Way {
            from: pod,
            to: gateway,
            entrance: None,
        },
    })
}

fn received(goodput_bps: f64, cell: Cell) -> Figures {
    vec![
        (GOODPUT, goodput_bps / 1e6),
        (OF_IDEAL, goodput_bps / cell.ideal_bps()),
    ]
}
