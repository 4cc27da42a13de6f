//! Figures as a picture: bars with whiskers in two panels side by side.

use crate::run::FLOOR;
use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 1000;
const MARGIN: i32 = 14;
const LABELS: i32 = 170;
/// What a panel keeps free at its right for the longest bar's figure.
const FIGURE: i32 = 104;
const BAR: i32 = 15;
const BAR_STEP: i32 = 19;
const GROUP_GAP: i32 = 14;
/// The title, what the bars are, and whose colour is which.
const HEAD: i32 = 82;
/// A section's titles and the numbers of its scale.
const HEADING: i32 = 50;
const SCALE: i32 = 22;
/// The fewest bars that a group has room for: as many as lines of text beside it.
const LEAST: usize = 2;

/// Colours that stay apart for colour-blind eyes, on light and on dark ground; the first is the floor's.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x8b, 0x94, 0x9e),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x2f, 0x81, 0xc7),
    RGBColor(0x1a, 0x9e, 0x77),
    RGBColor(0xc7, 0x6f, 0xa3),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xa0, 0x8c, 0xd8),
];
/// Reads on both grounds.
const GREY: RGBColor = RGBColor(0x6e, 0x77, 0x81);
/// Viewers that know the query show text as their page does.
const STYLE: &str = "<style>\
    @media(prefers-color-scheme:light){text{fill:#24292f}}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Scaled<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub(crate) struct Picture<'a> {
    pub(crate) title: &'static str,
    /// Meaning of the bars.
    pub(crate) about: String,
    /// The floor as the legend calls it, where it is shown.
    pub(crate) floor: Option<&'static str>,
    pub(crate) panels: [&'static str; 2],
    /// Those of a section follow each other, and so do those of a group in it.
    pub(crate) bars: Vec<Bar<'a>>,
}

pub(crate) struct Bar<'a> {
    /// Bars of one section share a scale in each panel.
    pub(crate) section: String,
    /// The lines of text at the left of the bars that have them in common.
    pub(crate) group: String,
    pub(crate) panel: usize,
    pub(crate) plugins: &'a str,
    pub(crate) length: f64,
    pub(crate) whisker: Option<(f64, f64)>,
    /// The text behind it.
    pub(crate) figure: String,
}

impl Picture<'_> {
    pub(crate) fn draw(&self) -> Result<String> {
        let sections = || self.bars.chunk_by(|a, b| a.section == b.section);
        let whole = HEAD + sections().map(|section| HEADING + height(section)).sum::<i32>() + 10;
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (WIDTH, whole.unsigned_abs())).into_drawing_area();
        let mut names = vec![FLOOR];
        for bar in self.bars.iter().filter(|bar| bar.plugins != FLOOR) {
            if !names.contains(&bar.plugins) {
                names.push(bar.plugins);
            }
        }
        self.legend(&area, &names)?;
        let (_, mut rest) = area.split_vertically(HEAD);
        for section in sections() {
            let (here, below) = rest.split_vertically(HEADING + height(section));
            self.section(section, &here, &names)?;
            rest = below;
        }
        area.present()?;
        drop((area, rest));
        Ok(svg.replacen('>', &format!(">\n{STYLE}"), 1))
    }

    fn legend(&self, area: &Area<'_>, names: &[&str]) -> Result<()> {
        area.draw(&Text::new(self.title, (MARGIN, 20), text(20)))?;
        area.draw(&Text::new(self.about.as_str(), (MARGIN, 42), text(14)))?;
        let mut x = MARGIN;
        for name in names {
            let Some(shown) = (if *name == FLOOR { self.floor } else { Some(*name) }) else { continue };
            area.draw(&Rectangle::new([(x, 60), (x + 13, 73)], colour(names, name).filled()))?;
            area.draw(&Text::new(shown, (x + 19, 67), text(16)))?;
            x += 41 + 8 * i32::try_from(shown.chars().count())?;
        }
        Ok(())
    }

    fn section(&self, bars: &[Bar<'_>], area: &Area<'_>, names: &[&str]) -> Result<()> {
        let (labels, panels) = area.split_horizontally(LABELS);
        let mut y = HEADING;
        for group in groups(bars) {
            for (at, line) in (0..).zip(group[0].group.lines()) {
                labels.draw(&Text::new(line, (MARGIN, y + 8 + at * 14), text(14)))?;
            }
            y += height(group);
        }
        for (side, panel) in panels.split_evenly((1, 2)).iter().enumerate() {
            let title = [self.panels[side], bars[0].section.as_str()];
            panel.draw(&Text::new(title.join(", ").trim_end_matches(", "), (0, 17), text(16)))?;
            let longest = of_panel(bars, side).map(Bar::end).fold(f64::MIN_POSITIVE, f64::max);
            let mut chart = ChartBuilder::on(panel)
                .margin_top(HEADING - SCALE)
                .margin_right(FIGURE)
                .set_label_area_size(LabelAreaPosition::Top, SCALE)
                .build_cartesian_2d(0.0..longest, f64::from(height(bars))..0.0)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_y_mesh().x_labels(6).label_style(text(14)).axis_style(GREY);
            mesh.light_line_style(TRANSPARENT).bold_line_style(GREY.mix(0.25)).draw()?;
            let mut top = 0;
            for group in groups(bars) {
                for (at, bar) in (0..).zip(of_panel(group, side)) {
                    bar.draw(chart.plotting_area(), f64::from(top + at * BAR_STEP), colour(names, bar.plugins))?;
                }
                top += height(group);
            }
        }
        Ok(())
    }
}

fn groups<'b, 'a>(section: &'b [Bar<'a>]) -> impl Iterator<Item = &'b [Bar<'a>]> {
    section.chunk_by(|a, b| a.group == b.group)
}

fn of_panel<'b, 'a>(bars: &'b [Bar<'a>], panel: usize) -> impl Iterator<Item = &'b Bar<'a>> {
    bars.iter().filter(move |bar| bar.panel == panel)
}

/// The height of all groups of a section or of one group.
fn height(bars: &[Bar<'_>]) -> i32 {
    let rows = |group| [0, 1].map(|panel| of_panel(group, panel).count()).into_iter().fold(LEAST, usize::max);
    groups(bars).map(|group| i32::try_from(rows(group)).unwrap_or_default() * BAR_STEP + GROUP_GAP).sum()
}

impl Bar<'_> {
    /// Ends of it and of its whisker.
    fn end(&self) -> f64 {
        self.whisker.map_or(self.length, |(_, to)| to.max(self.length))
    }

    fn draw(&self, panel: &Scaled<'_>, y: f64, colour: RGBColor) -> Result<()> {
        let (middle, bottom) = (y + f64::from(BAR) / 2.0, y + f64::from(BAR));
        panel.draw(&Rectangle::new([(0.0, y), (self.length, bottom)], colour.filled()))?;
        if let Some((from, to)) = self.whisker {
            panel.draw(&PathElement::new([(from, middle), (to, middle)], GREY))?;
            for end in [from, to] {
                panel.draw(&PathElement::new([(end, middle - 4.0), (end, middle + 4.0)], GREY))?;
            }
        }
        let figure = Text::new(self.figure.clone(), (6, 0), text(14));
        Ok(panel.draw(&(EmptyElement::at((self.end(), middle)) + figure))?)
    }
}

fn colour(names: &[&str], name: &str) -> RGBColor {
    let place = names.iter().position(|other| *other == name).unwrap_or_default();
    COLOURS[place % COLOURS.len()]
}

/// Text at the right of a point, whose middle is at the point's height.
fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&GREY).pos(Pos::new(HPos::Left, VPos::Center))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_text_and_names_cannot_break_the_picture() {
        let bar = |panel, figure: &str| Bar {
            section: String::new(),
            group: "bridge".to_owned(),
            panel,
            plugins: "<b>&",
            length: 2.0,
            whisker: Some((1.0, 8.0)),
            figure: figure.to_owned(),
        };
        let (panels, bars) = (["ADD", "DEL"], vec![bar(0, "2 ms"), bar(1, "4 ms")]);
        let picture = Picture { title: "Time", about: String::new(), floor: None, panels, bars };
        let drawn = picture.draw().unwrap();
        for text in ["&lt;b&gt;&amp;", "bridge", "ADD", "DEL", "2 ms", "4 ms", "Time"] {
            assert_eq!(drawn.matches(&format!("\n{text}\n")).count(), 1, "{text}: {drawn}");
        }
        assert!(!drawn.contains("<b>") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    }
}
