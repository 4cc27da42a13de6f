//! The figures as a picture: p50 as bars, p95 as whiskers, ADD beside DEL.

use crate::report::{self, Report, Row};
use crate::run::FLOOR;
use crate::site::Held;
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
pub(crate) const LABELS: f64 = 170.0;
/// What a panel keeps free at its right for the longest bar's figure.
const FIGURE: f64 = 104.0;
pub(crate) const PANEL: f64 = (WIDTH - LABELS) / 2.0;
pub(crate) const BAR: f64 = 15.0;
pub(crate) const BAR_STEP: f64 = 19.0;
pub(crate) const GROUP_GAP: f64 = 14.0;
pub(crate) const HEADING: f64 = 50.0;

/// Colours that stay apart for colour-blind eyes, on light and on dark ground; the first is the floor's.
const COLOURS: [&str; 7] = ["#8b949e", "#e69f00", "#2f81c7", "#1a9e77", "#c76fa3", "#d55e00", "#a08cd8"];

// Viewers that don't know the query keep the middle grey, which reads on both grounds.
const STYLE: &str = "<style>\
    text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#6e7781}\
    .title{font-size:16px;font-weight:600}.head{font-weight:600}.small{font-size:11px}.line{stroke:#8b949e}\
    .grid{stroke:#8b949e;stroke-opacity:.25}.whisker{stroke:#6e7781;stroke-width:1.5}\
    @media(prefers-color-scheme:light){text{fill:#24292f}.whisker{stroke:#24292f}}\
    @media(prefers-color-scheme:dark){text{fill:#c9d1d9}.whisker{stroke:#c9d1d9}}\
    </style>\n";

/// Rows that share a scale: those with as many calls at once and as much held.
struct Section<'a> {
    concurrency: usize,
    held: Held,
    /// Networks with their rows.
    groups: Vec<(&'a str, Vec<&'a Row>)>,
}

/// Draws the whole report.
pub(crate) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let contenders = contenders(report.rows.iter().map(|row| &row.plugins));
    let about = format!(
        "milliseconds; bar p50, whisker p95, (× p50 as a multiple of {}'s); Linux {}, {} CPUs",
        report.baseline, report.kernel, report.cpus
    );
    let title = "Time to attach (ADD) and detach (DEL) one pod";
    let mut y = legend(&mut body, title, &about, &contenders, Some("floor (kernel alone, one veth)"));
    for section in sections(report) {
        y = draw_section(&mut body, &section, &contenders, y);
    }
    page("Attachment latency", y + 10.0, &body)
}

/// A picture of its own, with the style.
pub(crate) fn page(label: &str, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{label}\">\n{STYLE}{body}</svg>\n"
    )
}

/// The title, what the bars are, and whose colour is which; `floor` is what the floor is called, where it is shown.
/// Returns where the rest begins.
pub(crate) fn legend(out: &mut String, title: &str, about: &str, contenders: &[&str], floor: Option<&str>) -> f64 {
    text(out, 14.0, 26.0, "title", title);
    text(out, 14.0, 46.0, "small", about);
    let mut x = 14.0;
    for name in contenders {
        let Some(shown) = (if *name == FLOOR { floor } else { Some(*name) }) else { continue };
        rect(out, (x, 60.0), (13.0, 13.0), colour(contenders, name));
        text(out, x + 19.0, 71.0, "", shown);
        x += 19.0 + 7.5 * width_of(shown) + 22.0;
    }
    82.0
}

fn draw_section(out: &mut String, section: &Section<'_>, contenders: &[&str], top: f64) -> f64 {
    let bottom = top + HEADING + section.groups.iter().map(|(_, rows)| group_height(rows)).sum::<f64>();
    let mut y = top + HEADING;
    for (name, rows) in &section.groups {
        text(out, 14.0, y + 12.0, "head", name);
        y += group_height(rows);
    }
    for (verb, left) in [("ADD", LABELS), ("DEL", LABELS + PANEL)] {
        let scale =
            Scale::of(section.groups.iter().flat_map(|(_, rows)| rows.iter().copied()).filter(|row| row.verb == verb));
        text(out, left, top + 22.0, "head", &format!("{verb}{}", section.title()));
        scale.draw(out, left, (top + HEADING - 4.0, bottom - GROUP_GAP + 4.0));
        let mut y = top + HEADING;
        for (_, rows) in &section.groups {
            for (at, row) in (0_u16..).zip(rows.iter().filter(|row| row.verb == verb)) {
                draw_bar(out, row, &scale, colour(contenders, &row.plugins), (left, y + f64::from(at) * BAR_STEP));
            }
            y += group_height(rows);
        }
    }
    bottom
}

fn draw_bar(out: &mut String, row: &Row, scale: &Scale, colour: &str, (left, y): (f64, f64)) {
    let (p50, p95) = (scale.width(row.summary.p50_ms), scale.width(row.summary.p95_ms));
    rect(out, (left, y), (p50.max(1.0), BAR), colour);
    let (middle, from, to) = (y + BAR / 2.0, left + p50, left + p95);
    line(out, "whisker", (from, middle), (to, middle));
    line(out, "whisker", (to, middle - 4.0), (to, middle + 4.0));
    text(out, to.max(from) + 6.0, middle + 4.5, "small", &figure(row));
}

/// The p50 with three digits, and how many times the baseline's it is.
fn figure(row: &Row) -> String {
    let p50 = row.summary.p50_ms;
    let decimals = if p50 < 10.0 { 2 } else { usize::from(p50 < 100.0) };
    match row.of_baseline {
        Some(ratio) if row.plugins != FLOOR && (ratio - 1.0).abs() > f64::EPSILON => {
            format!("{p50:.decimals$} (× {})", report::shown(ratio))
        }
        _ => format!("{p50:.decimals$}"),
    }
}

/// From zero to the longest bar or whisker.
pub(crate) struct Scale {
    pub(crate) longest: f64,
}

impl Scale {
    fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        Scale { longest: rows.map(|row| row.summary.p95_ms.max(row.summary.p50_ms)).fold(f64::MIN_POSITIVE, f64::max) }
    }

    pub(crate) fn width(&self, ms: f64) -> f64 {
        ms / self.longest * (PANEL - FIGURE)
    }

    /// The distance of grid lines: 1, 2 or 5 times a power of ten, three to seven in a panel.
    fn step(&self) -> f64 {
        let power = 10_f64.powf((self.longest / 3.0).log10().floor());
        [5.0, 2.0].into_iter().find(|times| times * power <= self.longest / 3.0).unwrap_or(1.0) * power
    }

    pub(crate) fn draw(&self, out: &mut String, left: f64, (top, bottom): (f64, f64)) {
        line(out, "line", (left, top), (left, bottom));
        let step = self.step();
        for ms in (1_u16..).map(|at| f64::from(at) * step).take_while(|ms| *ms <= self.longest) {
            let x = left + self.width(ms);
            line(out, "grid", (x, top), (x, bottom));
            let label = format!("{:.*}", usize::from(step < 1.0), ms);
            let _ = writeln!(
                out,
                "<text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
                top - 3.0
            );
        }
    }
}

impl Section<'_> {
    fn title(&self) -> String {
        let of = |count: usize, what| if count == 0 { String::new() } else { format!(", {count} {what} held") };
        let held = of(self.held.leases, "leases") + &of(self.held.ports.into(), "ports");
        let at_once = if self.concurrency == 1 { String::new() } else { format!(", {} at once", self.concurrency) };
        held + &at_once
    }
}

fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for row in &report.rows {
        let Row { concurrency, held, .. } = *row;
        let at = sections.iter().position(|s| (s.concurrency, s.held) == (concurrency, held)).unwrap_or_else(|| {
            sections.push(Section { concurrency, held, groups: Vec::new() });
            sections.len() - 1
        });
        let Some(Section { groups, .. }) = sections.get_mut(at) else { continue };
        match groups.iter_mut().find(|(name, _)| *name == row.conflist) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((&row.conflist, vec![row])),
        }
    }
    sections.sort_by_key(|section| (section.concurrency, section.held));
    sections
}

/// All names, in the order of their first row, after the floor, which keeps its colour.
pub(crate) fn contenders<'a>(rows: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names = vec![FLOOR];
    for name in rows {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

pub(crate) fn colour(contenders: &[&str], name: &str) -> &'static str {
    let place = contenders.iter().position(|contender| *contender == name).unwrap_or_default();
    COLOURS.iter().cycle().nth(place).unwrap_or(&"#8b949e")
}

fn group_height(rows: &[&Row]) -> f64 {
    height_of(rows.iter().filter(|row| row.verb == "ADD").count().max(2))
}

/// The height of a group with so many bars.
pub(crate) fn height_of(bars: usize) -> f64 {
    u16::try_from(bars).map_or(0.0, f64::from) * BAR_STEP + GROUP_GAP
}

fn width_of(text: &str) -> f64 {
    u16::try_from(text.chars().count()).map_or(0.0, f64::from)
}

pub(crate) fn rect(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2\" fill=\"{colour}\"/>"
    );
}

pub(crate) fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(out, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

pub(crate) fn text(out: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{safe}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;
    use std::time::Duration;

    fn row(plugins: &str, leases: usize, ms: u64) -> Row {
        Row {
            conflist: "bridge".to_owned(),
            held: Held { leases, ports: 0 },
            concurrency: 1,
            verb: "ADD",
            plugins: plugins.to_owned(),
            summary: Summary::of(&[Duration::from_millis(ms)]).unwrap(),
            of_baseline: None,
            of_floor: None,
            calls_per_s: 1.0,
            trace: None,
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { kernel: "6.12".to_owned(), cpus: 2, load: 0.0, baseline: "ref".to_owned(), rows }
    }

    #[test]
    fn bars_are_as_long_as_their_share_of_the_longest() {
        let scale = Scale::of([row("a", 0, 5), row("b", 0, 20)].iter());
        assert!((scale.width(20.0) / scale.width(5.0) - 4.0).abs() < 1e-9);
        assert!((scale.width(20.0) - (PANEL - FIGURE)).abs() < 1e-9);
    }

    #[test]
    fn grid_lines_are_round_and_few() {
        for longest in [0.07, 1.0, 3.0, 29.0, 61.0, 4700.0] {
            let scale = Scale { longest };
            let lines = longest / scale.step();
            assert!((3.0..=7.5).contains(&lines), "{longest} ms: {lines} lines");
        }
    }

    #[test]
    fn settings_with_other_leases_get_a_scale_of_their_own() {
        let report = report(vec![row("a", 0, 1), row("a", 10_000, 900), row("b", 0, 2)]);
        let shape: Vec<_> = sections(&report)
            .iter()
            .map(|s| (s.held.leases, s.groups.iter().map(|(_, rows)| rows.len()).sum()))
            .collect();
        assert_eq!(shape, [(0, 2), (10_000, 1)]);
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let drawn = draw(&report(vec![row("<b>&", 0, 1)]));
        assert!(drawn.contains("&lt;b&gt;&amp;") && !drawn.contains("<b>"));
    }
}
