//! The figures as a picture: goodput beside the 99th percentile of round trips, a group of bars for each cell.

use super::report::{Report, Row};
use crate::svg::{
    BAR, BAR_STEP, GROUP_GAP, HEADING, LABELS, PANEL, Scale, colour, contenders, height_of, legend, page, rect, text,
};

/// What a bar stands for, and where it is drawn.
struct Panel {
    title: &'static str,
    left: f64,
    scale: Scale,
    value: fn(&Row) -> Option<f64>,
}

/// Draws the whole report.
pub(crate) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let contenders = contenders(report.rows.iter().map(|row| &row.plugins));
    let about = format!(
        "goodput in percent of what the rate lets through; round trip in milliseconds (p99) beside one bulk flow; \
         Linux {}, {} CPUs",
        report.kernel, report.cpus
    );
    let mut y = legend(&mut body, "What shaping does to traffic", &about, &contenders, None);
    let mut conflists: Vec<&str> = report.rows.iter().map(|row| row.conflist.as_str()).collect();
    conflists.dedup();
    for conflist in conflists {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.conflist == conflist).collect();
        y = draw_conflist(&mut body, conflist, &rows, &contenders, y);
    }
    page("Traffic shaping", y + 10.0, &body)
}

fn draw_conflist(out: &mut String, conflist: &str, rows: &[&Row], contenders: &[&str], top: f64) -> f64 {
    let groups: Vec<&[&Row]> = rows.chunk_by(|a, b| a.title() == b.title()).collect();
    let bottom = top + HEADING + groups.iter().map(|group| height_of(group.len())).sum::<f64>();
    text(out, 14.0, top + 22.0, "head", conflist);
    let panels = [
        Panel::new("goodput, % of ideal", LABELS, rows, |row| row.figures.map(|figures| figures.of_ideal * 100.0)),
        Panel::new("round trip p99, ms", LABELS + PANEL, rows, |row| row.figures?.rr_p99_ms()),
    ];
    for panel in &panels {
        text(out, panel.left, top + 22.0, "head", panel.title);
        panel.scale.draw(out, panel.left, (top + HEADING - 4.0, bottom - GROUP_GAP + 4.0));
    }
    let mut y = top + HEADING;
    for group in groups {
        if let Some(row) = group.first() {
            text(out, 14.0, y + 12.0, "small", &row.cell.to_string());
            text(out, 14.0, y + 26.0, "small", &row.neighbours().unwrap_or_default());
        }
        for (at, row) in (0_u16..).zip(group) {
            for panel in &panels {
                panel.bar(out, row, colour(contenders, &row.plugins), y + f64::from(at) * BAR_STEP);
            }
        }
        y += height_of(group.len());
    }
    bottom
}

impl Panel {
    fn new(title: &'static str, left: f64, rows: &[&Row], value: fn(&Row) -> Option<f64>) -> Self {
        let longest = rows.iter().filter_map(|row| value(row)).fold(f64::MIN_POSITIVE, f64::max);
        Panel { title, left, scale: Scale { longest }, value }
    }

    fn bar(&self, out: &mut String, row: &Row, colour: &str, y: f64) {
        let (width, figure) = match ((self.value)(row), &row.failure) {
            (Some(value), _) => (self.scale.width(value), format!("{value:.*}", usize::from(value < 1000.0) * 2)),
            (None, Some(failure)) => (0.0, failure.word().to_owned()),
            (None, None) => return,
        };
        rect(out, (self.left, y), (width.max(1.0), BAR), colour);
        text(out, self.left + width + 6.0, y + BAR / 2.0 + 4.5, "small", &figure);
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{failed, report, row};
    use super::*;

    #[test]
    fn bars_have_their_figures_and_failures_their_word() {
        let drawn = draw(&report(vec![row("ref", 0.5, 40, 1.0), failed("<b>", "ADD bandwidth: no")]));
        assert!(drawn.contains(">50.00<") && drawn.contains(">40.00<"), "{drawn}");
        assert!(drawn.contains(">refused<") && drawn.contains("&lt;b&gt;") && !drawn.contains("<b>"));
    }

    #[test]
    fn a_cell_is_one_group() {
        let rows = [row("ref", 0.5, 40, 1.0), row("braid", 1.0, 4, 1.0)];
        assert_eq!(draw(&report(rows.into())).matches("10M ingress tcp IPv4").count(), 1);
    }
}
