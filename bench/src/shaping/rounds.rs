//! The middle of several rounds of one setting: other work on the machine comes and goes.

use super::report::{Figures, Row};
use crate::stats::{Summary, median};

/// One row for each of a contender's pods, from the rows of each of its rounds; one that failed is shown as it is.
pub(crate) fn middle(rounds: &[Vec<Row>]) -> Vec<Row> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let of_pod = |pod: usize| rounds.iter().filter_map(move |rows| rows.get(pod));
    (0..first.len())
        .filter_map(|pod| {
            let failed = of_pod(pod).find(|row| row.failure.is_some());
            let mut row = failed.or_else(|| of_pod(pod).next())?.clone();
            if failed.is_none() {
                row.figures = figures(&of_pod(pod).filter_map(|row| row.figures).collect::<Vec<_>>());
            }
            Some(row)
        })
        .collect()
}

/// The median of each figure by itself.
fn figures(all: &[Figures]) -> Option<Figures> {
    let of = |figure: fn(&Figures) -> Option<f64>| median(all.iter().filter_map(figure).collect());
    let trips: Vec<Summary> = all.iter().filter_map(|figures| figures.rr).collect();
    let of_trips = |figure: fn(&Summary) -> f64| median(trips.iter().map(figure).collect());
    let rr = trips.first().and_then(|first| {
        Some(Summary {
            calls: first.calls,
            min_ms: of_trips(|trips| trips.min_ms)?,
            mean_ms: of_trips(|trips| trips.mean_ms)?,
            p50_ms: of_trips(|trips| trips.p50_ms)?,
            p95_ms: of_trips(|trips| trips.p95_ms)?,
            p99_ms: of_trips(|trips| trips.p99_ms)?,
        })
    });
    Some(Figures {
        goodput_mbps: of(|figures| Some(figures.goodput_mbps))?,
        of_ideal: of(|figures| Some(figures.of_ideal))?,
        resent: of(|figures| figures.resent),
        rr,
        cpu_s_per_gbit: of(Figures::cpu),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{failed, row};
    use super::*;

    #[test]
    fn each_figure_is_the_middle_one_of_its_own() {
        let rounds = [row("a", 0.9, 2, 9.0), row("a", 1.0, 70, 2.0), row("a", 0.97, 3, 4.0)].map(|row| vec![row]);
        let middle = middle(&rounds);
        let figures = middle[0].figures.expect("figures");
        assert_eq!((figures.of_ideal, figures.rr_p99_ms(), figures.cpu()), (0.97, Some(3.0), Some(4.0)));
        assert_eq!(middle.len(), 1);
    }

    #[test]
    fn one_round_is_itself_and_one_failure_is_not_hidden() {
        let one = [vec![row("a", 0.9, 2, 9.0)]];
        assert_eq!(middle(&one)[0].figures.expect("figures").cpu(), Some(9.0));
        let rounds = [vec![row("a", 1.0, 2, 1.0)], vec![failed("a", "ADD bridge: no")]];
        assert!(middle(&rounds)[0].figures.is_none());
        assert!(middle(&[]).is_empty());
    }
}
