//! What the rounds amount to: the middle of each figure, how far it spreads, and how it compares.

use crate::run::FLOOR;
use crate::stats::median;
use serde::Serialize;

/// What is measured of one site, once or as a whole.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figures<T> {
    /// New connections of TCP.
    pub(crate) connections_per_s: T,
    /// The client's and the server's own time on a processor for each of them.
    pub(crate) cpu_us_per_connection: T,
    /// Payload of one flow of TCP.
    pub(crate) gbit_per_s: T,
    /// Busy time of all processors for each Gbit of it.
    pub(crate) cpu_s_per_gbit: T,
    /// Requests of UDP and their responses, one after the other.
    pub(crate) udp_trips_per_s: T,
}

/// All rounds of one site.
pub(crate) struct Sampled {
    pub(crate) plugins: String,
    pub(crate) ports: u16,
    pub(crate) rounds: Vec<Figures<f64>>,
}

/// One site's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) plugins: String,
    pub(crate) ports: u16,
    #[serde(flatten)]
    pub(crate) figures: Figures<Spread>,
}

/// One figure of all rounds.
///
/// A ratio to another site is the median of the rounds' ratios: what else the machine does in a round burdens both.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Over the baseline's, of several that whose median is best.
    pub(crate) of_baseline: Option<f64>,
    /// Over the same plugins' with the fewest ports.
    pub(crate) of_fewest: Option<f64>,
    /// Over that of a pod that is reached by its own address.
    pub(crate) of_floor: Option<f64>,
    pub(crate) rounds: Vec<f64>,
}

/// One figure, and whether more of it is better.
#[derive(Clone, Copy)]
struct Figure {
    of: fn(&Figures<f64>) -> f64,
    more_is_better: bool,
}

impl Sampled {
    pub(crate) fn new(plugins: &str, ports: u16) -> Self {
        Sampled { plugins: plugins.to_owned(), ports, rounds: Vec::new() }
    }

    fn values(&self, figure: Figure) -> Vec<f64> {
        self.rounds.iter().map(figure.of).collect()
    }

    fn ratio(&self, other: &Sampled, figure: Figure) -> Option<f64> {
        let pairs = self.values(figure).into_iter().zip(other.values(figure));
        median(pairs.map(|(own, other)| own / other).collect())
    }
}

impl Spread {
    /// How far the figure is from the middle of its bounds at most, as a part of the median.
    pub(crate) fn off(&self) -> f64 {
        (self.max - self.min) / 2.0 / self.median
    }
}

/// A row for each site.
pub(crate) fn rows(all: &[Sampled], baselines: &[&str]) -> Vec<Row> {
    let row = |own: &Sampled| {
        let more = |of| spread(own, all, baselines, Figure { of, more_is_better: true });
        let less = |of| spread(own, all, baselines, Figure { of, more_is_better: false });
        let figures = Figures {
            connections_per_s: more(|figures| figures.connections_per_s)?,
            cpu_us_per_connection: less(|figures| figures.cpu_us_per_connection)?,
            gbit_per_s: more(|figures| figures.gbit_per_s)?,
            cpu_s_per_gbit: less(|figures| figures.cpu_s_per_gbit)?,
            udp_trips_per_s: more(|figures| figures.udp_trips_per_s)?,
        };
        Some(Row { plugins: own.plugins.clone(), ports: own.ports, figures })
    };
    all.iter().filter_map(row).collect()
}

fn spread(own: &Sampled, all: &[Sampled], baselines: &[&str], figure: Figure) -> Option<Spread> {
    let rounds = own.values(figure);
    let is_floor = own.plugins == FLOOR;
    let baseline = (!is_floor && !baselines.contains(&own.plugins.as_str()))
        .then(|| best(all.iter().filter(|s| s.ports == own.ports && baselines.contains(&s.plugins.as_str())), figure));
    let fewest = all.iter().filter(|other| other.plugins == own.plugins).min_by_key(|other| other.ports);
    let floor = all.iter().find(|other| other.plugins == FLOOR && !is_floor);
    Some(Spread {
        median: median(rounds.clone())?,
        min: rounds.iter().copied().fold(f64::INFINITY, f64::min),
        max: rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        of_baseline: baseline.flatten().and_then(|other| own.ratio(other, figure)),
        of_fewest: fewest.filter(|other| other.ports != own.ports).and_then(|other| own.ratio(other, figure)),
        of_floor: floor.and_then(|floor| own.ratio(floor, figure)),
        rounds,
    })
}

fn best<'a>(all: impl Iterator<Item = &'a Sampled>, figure: Figure) -> Option<&'a Sampled> {
    let middle = |sampled: &Sampled| {
        let middle = median(sampled.values(figure)).unwrap_or_default();
        if figure.more_is_better { middle } else { -middle }
    };
    all.max_by(|one, other| middle(one).total_cmp(&middle(other)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A site of which each round's connections are given; goodput is a thousandth of them.
    pub(crate) fn sampled(plugins: &str, ports: u16, connections: &[f64]) -> Sampled {
        let figures = |&connections: &f64| Figures {
            connections_per_s: connections,
            cpu_us_per_connection: 1e6 / connections,
            gbit_per_s: connections / 1e3,
            cpu_s_per_gbit: 0.1,
            udp_trips_per_s: 500.0,
        };
        Sampled { plugins: plugins.to_owned(), ports, rounds: connections.iter().map(figures).collect() }
    }

    fn of<'a>(rows: &'a [Row], plugins: &str, ports: u16) -> &'a Figures<Spread> {
        &rows.iter().find(|row| row.plugins == plugins && row.ports == ports).expect("a row").figures
    }

    #[test]
    fn the_baseline_is_the_better_of_several_in_each_figure() {
        let all = [
            sampled("slow", 1, &[50.0, 50.0, 50.0]),
            sampled("fast", 1, &[80.0, 100.0, 120.0]),
            sampled("own", 1, &[80.0, 110.0, 60.0]),
        ];
        let rows = rows(&all, &["slow", "fast"]);
        let own = of(&rows, "own", 1);
        assert_eq!(own.connections_per_s.of_baseline, Some(1.0));
        assert_eq!(own.cpu_us_per_connection.of_baseline, Some(1.0));
        assert_eq!(of(&rows, "slow", 1).connections_per_s.of_baseline, None);
    }

    #[test]
    fn more_ports_are_compared_with_the_same_plugins_fewest_in_the_same_round() {
        let all = [
            sampled(FLOOR, 0, &[200.0, 400.0, 200.0]),
            sampled("own", 1, &[100.0, 200.0, 100.0]),
            sampled("own", 1000, &[90.0, 180.0, 95.0]),
        ];
        let rows = rows(&all, &["own"]);
        let many = &of(&rows, "own", 1000).connections_per_s;
        assert_eq!((many.median, many.min, many.max), (95.0, 90.0, 180.0));
        assert_eq!((many.of_fewest, many.of_floor), (Some(0.9), Some(0.45)));
        assert_eq!(of(&rows, "own", 1).connections_per_s.of_fewest, None);
        let floor = &of(&rows, FLOOR, 0).connections_per_s;
        assert_eq!((floor.of_floor, floor.of_fewest, floor.of_baseline), (None, None, None));
    }

    #[test]
    fn spread_is_half_of_what_lies_between_the_bounds() {
        let rows = rows(&[sampled("own", 1, &[90.0, 100.0, 120.0])], &[]);
        assert!((of(&rows, "own", 1).connections_per_s.off() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn a_site_without_a_round_has_no_row() {
        assert!(rows(&[sampled("own", 1, &[])], &[]).is_empty());
    }
}
