//! One directory's plugins in one setting.

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

/// Rate that UDP offers, over the limit.
const OFFERED: f64 = 1.5;
/// Time before the clock starts: by then the burst is used up and TCP has made good its first
/// losses.
const SETTLE: Duration = Duration::from_secs(2);
/// Bits of a frame that carries a request or its response, about.
const FRAME_BITS: f64 = 8.0 * (64.0 + 66.0);
/// Requests take no more than this part of the rate, so that they wait behind other traffic and not
/// behind each other.
const PART: f64 = 1.0 / 50.0;
const LEAST_PAUSE: Duration = Duration::from_millis(2);

/// Plugins that attach, and how they are measured.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) contender: &'a Contender<'a>,
    pub(crate) args: &'a Args,
}

impl Place<'_> {
    /// Figures of one pod.
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

    /// Figures of two pods that send at once.
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

    /// Attaches pods for the time of `work`.
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

    /// Goodput, and the processors' time for it.
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
            // What waits at the receiver for a segment that is sent again has come as well.
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

    /// Round trips of the cell's protocol beside one flow of TCP.
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

/// The way of the traffic of one pod. Its peer is the gateway.
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
