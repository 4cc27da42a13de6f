//! One directory's plugins in one setting.

use super::attach::Attached;
use super::cell::{Cell, Direction, Family, Rate};
use super::cli::Args;
use super::report::{Failure, Figures, Row};
use super::segments::Segments;
use crate::cli::Contender;
use crate::stats::Summary;
use crate::traffic::cpu::Moment;
use crate::traffic::{self, Arrival, Load, Protocol, Way, Window, rr};
use anyhow::{Context, Error, Result};
use std::time::Duration;

/// How much more than the rate UDP offers.
const OFFERED: f64 = 1.5;
/// What passes before the clock starts: by then the burst is used up and TCP has made good its first losses.
const SETTLE: Duration = Duration::from_secs(2);
/// Bits of a frame that carries a request or its response, about.
const FRAME_BITS: f64 = 8.0 * (64.0 + 66.0);
/// Requests take no more than this part of the rate, so that they wait behind other traffic and not behind each other.
const PART: f64 = 1.0 / 50.0;
const LEAST_PAUSE: Duration = Duration::from_millis(2);
/// The rates of two pods that are measured at the same time.
const PAIR: [Rate; 2] = [Rate::M10, Rate::M50];

/// The plugins that attach, with the name of their list, and how they are measured.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) label: &'a str,
    pub(crate) contender: &'a Contender<'a>,
    pub(crate) args: &'a Args,
}

/// One pod.
pub(crate) fn alone(place: &Place<'_>, cell: Cell, with_round_trips: bool) -> Row {
    let measured = attached(place, &[cell.rate], |attached| {
        let way = attached.way(0, cell.direction, cell.family)?;
        let mut figures = place.bulk(way, cell)?;
        if with_round_trips {
            figures.rr = Some(place.round_trips(way, cell)?);
        }
        Ok(figures)
    });
    place.row(cell, None, measured)
}

/// Two pods at once, a row each.
pub(crate) fn pair(place: &Place<'_>, family: Family, direction: Direction) -> Vec<Row> {
    let cells = PAIR.map(|rate| Cell { rate, direction, protocol: Protocol::Tcp, flows: 1, family });
    let measured = attached(place, &PAIR, |attached| {
        let [one, other] = [(0, 0), (1, 1)].map(|(slot, at): (usize, usize)| {
            Ok::<_, Error>(place.load(attached.way(slot, direction, family)?, *cells.get(at).context("no such cell")?))
        });
        let ((window, others), ones) =
            traffic::during(&one?, || traffic::during(&other?, || Ok(Window::pass(place.length(Rate::M10)))))?;
        Ok([ones, others].map(|arrivals| (window, arrivals)))
    });
    let [one, other] = cells;
    match measured {
        Ok([ones, others]) => {
            let row = |cell: Cell, beside: Cell, (window, arrivals): (Window, Vec<Arrival>)| {
                place.row(cell, Some(beside.rate), figures(window, &arrivals, cell))
            };
            vec![row(one, other, ones), row(other, one, others)]
        }
        Err(err) => {
            let failure = Failure::of(&err);
            [(one, other), (other, one)]
                .map(|(cell, beside)| place.row_of(cell, Some(beside.rate), Err(failure.clone())))
                .into()
        }
    }
}

impl Place<'_> {
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
        let ((window, busy, [before, after]), arrivals) = traffic::during(&self.load(way, cell), || {
            let (before, moment) = (Segments::of(way.from.netns)?, Moment::now()?);
            let window = Window::pass(self.length(cell.rate).max(cell.least_window()));
            let after = Segments::of(way.from.netns)?;
            Ok((window, moment.busy()?, [before, after]))
        })?;
        let seconds = window.end.duration_since(window.start).as_secs_f64();
        let mut figures = match cell.protocol {
            // What waits at the receiver for a segment that is sent again has come as well.
            Protocol::Tcp => {
                let bytes = f64::from(after.delivered_since(before)) * f64::from(cell.payload());
                Figures { resent: after.part_since(before), ..figures_of(bytes * 8.0 / seconds, cell) }
            }
            Protocol::Udp => figures(window, &arrivals, cell)?,
        };
        let gbit = figures.goodput_mbps / 1e3 * seconds;
        figures.cpu_s_per_gbit = Some(busy.as_secs_f64() / gbit);
        Ok(figures)
    }

    /// Round trips of the cell's protocol beside one flow of TCP.
    fn round_trips(&self, way: Way<'_>, cell: Cell) -> Result<Summary> {
        let bulk = self.load(way, Cell { protocol: Protocol::Tcp, flows: 1, ..cell });
        let pause = Duration::from_secs_f64(FRAME_BITS / (cell.rate.bps() * PART)).max(LEAST_PAUSE);
        let (trips, _) = traffic::during(&bulk, || rr::measure(&way, cell.protocol, pause, self.length(cell.rate)))?;
        Summary::of(&trips).context("no request was answered")
    }

    fn row(&self, cell: Cell, beside: Option<Rate>, measured: Result<Figures>) -> Row {
        self.row_of(cell, beside, measured.map_err(|err| Failure::of(&err)))
    }

    fn row_of(&self, cell: Cell, beside: Option<Rate>, measured: Result<Figures, Failure>) -> Row {
        let (figures, failure) = match measured {
            Ok(figures) => (Some(figures), None),
            Err(failure) => (None, Some(failure)),
        };
        Row { conflist: self.label.to_owned(), cell, beside, plugins: self.contender.name.to_owned(), figures, failure }
    }
}

/// Attaches pods for the time of `work`.
fn attached<T>(place: &Place<'_>, rates: &[Rate], work: impl FnOnce(&Attached<'_>) -> Result<T>) -> Result<T> {
    let attached = Attached::new(&place.contender.conflist, &place.contender.dir, rates)?;
    let done = work(&attached);
    let deleted = attached.del();
    let done = done?;
    deleted?;
    Ok(done)
}

fn figures(window: Window, arrivals: &[Arrival], cell: Cell) -> Result<Figures> {
    Ok(figures_of(window.goodput_bps(arrivals).context("nothing arrived")?, cell))
}

fn figures_of(goodput_bps: f64, cell: Cell) -> Figures {
    Figures {
        goodput_mbps: goodput_bps / 1e6,
        of_ideal: goodput_bps / cell.ideal_bps(),
        resent: None,
        rr: None,
        cpu_s_per_gbit: None,
    }
}
