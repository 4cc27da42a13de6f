//! The figures as a picture: connections beside goodput, a group of bars for each number of ports.

use super::figures::{Figures, Row, Spread};
use super::report::Report;
use crate::run::FLOOR;
use crate::svg::{
    BAR, BAR_STEP, GROUP_GAP, HEADING, LABELS, PANEL, Scale, colour, contenders, height_of, legend, line, page, rect,
    text,
};

/// What a bar stands for, and where it is drawn.
struct Panel {
    title: &'static str,
    left: f64,
    scale: Scale,
    decimals: usize,
    value: fn(&Figures<Spread>) -> &Spread,
}

/// Draws the whole report.
pub(crate) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let contenders = contenders(report.rows.iter().map(|row| &row.plugins));
    let about = format!(
        "bar: median of {} rounds, whisker: smallest to largest; floor: the pod's own address; Linux {}, {} CPUs",
        report.rounds, report.kernel, report.cpus
    );
    let top = legend(&mut body, "TCP through a port of the host", &about, &contenders, Some(FLOOR));
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in &report.rows {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.ports == row.ports)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let bottom = top + HEADING + groups.iter().map(|group| height_of(group.len())).sum::<f64>();
    let panels = [
        Panel::new("new connections a second", LABELS, 0, report, |figures| &figures.connections_per_s),
        Panel::new("Gbit/s, one flow", LABELS + PANEL, 2, report, |figures| &figures.gbit_per_s),
    ];
    for panel in &panels {
        text(&mut body, panel.left, top + 22.0, "head", panel.title);
        panel.scale.draw(&mut body, panel.left, (top + HEADING - 4.0, bottom - GROUP_GAP + 4.0));
    }
    let mut y = top + HEADING;
    for group in &groups {
        if let Some(row) = group.first() {
            text(&mut body, 14.0, y + 12.0, "head", &row.place());
        }
        for (at, row) in (0_u16..).zip(group) {
            for panel in &panels {
                panel.bar(&mut body, row, colour(&contenders, &row.plugins), y + f64::from(at) * BAR_STEP);
            }
        }
        y += height_of(group.len());
    }
    page("Host ports", bottom + 10.0, &body)
}

impl Panel {
    fn new(
        title: &'static str,
        left: f64,
        decimals: usize,
        report: &Report,
        value: fn(&Figures<Spread>) -> &Spread,
    ) -> Self {
        let longest = report.rows.iter().map(|row| value(&row.figures).max).fold(f64::MIN_POSITIVE, f64::max);
        Panel { title, left, scale: Scale { longest }, decimals, value }
    }

    fn bar(&self, out: &mut String, row: &Row, colour: &str, y: f64) {
        let Spread { median, min, max, .. } = *(self.value)(&row.figures);
        let [width, from, to] = [median, min, max].map(|value| self.scale.width(value));
        rect(out, (self.left, y), (width.max(1.0), BAR), colour);
        let middle = y + BAR / 2.0;
        line(out, "whisker", (self.left + from, middle), (self.left + to, middle));
        for end in [from, to] {
            line(out, "whisker", (self.left + end, middle - 4.0), (self.left + end, middle + 4.0));
        }
        text(out, self.left + to + 6.0, middle + 4.5, "small", &format!("{median:.*}", self.decimals));
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sampled;
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn each_number_of_ports_is_one_group_with_a_bar_for_each_name() {
        let all = [(FLOOR, 0), ("<ref>", 1), ("<ref>", 1000), ("own", 1), ("own", 1000)];
        let drawn = draw(&report(&all.map(|(plugins, ports)| sampled(plugins, ports, &[1234.0, 1500.0]))));
        for title in [">no port<", ">1 port<", ">1000 ports<"] {
            assert_eq!(drawn.matches(title).count(), 1, "{title}: {drawn}");
        }
        assert_eq!(drawn.matches(">1234<").count(), 5);
        assert!(drawn.contains("&lt;ref&gt;") && !drawn.contains("<ref>"));
    }
}
