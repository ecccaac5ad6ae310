//! Pictures of dots: rows with a name, panels side by side, a colour for each subject; further left
//! is better in every panel. Values are ratios or times, so the axes are logarithmic.
//!
//! The picture of all allocators has a row for each trace. Memory is reserved over live; time is
//! that of a warm call over PyTorch native's in the same run.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::results::{Measured, Results, failed};
use crate::subjects::YARDSTICK;
use steps::Outcome;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;
/// A measurement's value on a panel's axis, given the yardstick's of the same trace.
type Value = fn(&Measured, &Measured) -> Option<f64>;

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    /// Names and colours.
    pub(crate) subjects: Vec<(&'a str, RGBColor)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) row_height: u32,
    pub(crate) panels: Vec<Panel<'a>>,
}

/// A row's name.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
}

/// Dots on an axis of their own.
#[derive(Debug)]
pub(crate) struct Panel<'a> {
    pub(crate) title: &'a str,
    pub(crate) dots: Vec<Dot>,
}

/// A value, above 0, of a subject in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dot {
    pub(crate) row: usize,
    /// Its place in the list of subjects.
    pub(crate) subject: usize,
    pub(crate) value: f64,
}

const WIDTH: u32 = 1240;
const TRACE_ROW_HEIGHT: u32 = 44;
/// The part of a row over which its dots are spread, so that equal ones do not cover each other.
const ROW_SPREAD: f64 = 0.68;
const NAMES_WIDTH: u32 = 190;
const HEAD_HEIGHT: u32 = 110;
const AXIS_HEIGHT: u32 = 40;
const FONT: &str = "sans-serif";

pub(crate) const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
const FAINT_INK: RGBColor = RGBColor(0x5b, 0x67, 0x75);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xec);
/// Colours that colour-blind readers can distinguish too.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb0, 0x9a, 0x5b),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0x44, 0x44, 0x44),
    RGBColor(0x7a, 0x4f, 0xbf),
];

/// Draws all allocators of `results` into the SVG file `path`.
pub(crate) fn draw(path: &Path, results: &Results) -> Outcome {
    let panel = |title, value| Panel { title, dots: dots(results, value) };
    let rows = results.traces.iter().map(|name| Row { name: name.clone(), colour: INK });
    let picture = Picture {
        title: "Allocators on recorded programs: further left is better",
        subjects: (0..)
            .zip(&results.subjects)
            .map(|(number, name)| (&**name, colour(number)))
            .collect(),
        rows: rows.collect(),
        row_height: TRACE_ROW_HEIGHT,
        panels: vec![
            panel("memory reserved over live", |measured, _| {
                measured.single.first().reserved_over_live()
            }),
            panel("time per warm call over PyTorch native", |measured, yardstick| {
                Some(measured.single.warm_ns()? / yardstick.single.warm_ns()?)
            }),
        ],
    };
    picture.draw(path)
}

impl Picture<'_> {
    /// Draws it into the SVG file `path`.
    pub(crate) fn draw(&self, path: &Path) -> Outcome {
        let mut svg = String::new();
        let height = HEAD_HEIGHT + self.rows_height() + AXIS_HEIGHT;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        self.draw_all(&root).map_err(|error| failed(path, &error))?;
        drop(root);
        std::fs::write(path, svg).map_err(|error| failed(path, &error))
    }

    fn draw_all(&self, root: &Area<'_>) -> Drawn {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD_HEIGHT);
        draw_key(&head, self.title, &self.subjects)?;
        let (names, mut panels) = body.split_horizontally(NAMES_WIDTH);
        let right = Pos::new(HPos::Right, VPos::Center);
        for (number, row) in self.rows.iter().enumerate() {
            let place = (NAMES_WIDTH as i32 - 12, self.row_middle(number));
            let style = (FONT, 15).into_font().color(&row.colour).pos(right);
            names.draw(&Text::new(row.name.as_str(), place, style))?;
        }
        let width = (WIDTH - NAMES_WIDTH) / self.panels.len().max(1) as u32;
        for panel in &self.panels {
            let (left, others) = panels.split_horizontally(width);
            self.draw_panel(&left, panel)?;
            panels = others;
        }
        Ok(root.present()?)
    }

    fn draw_panel(&self, area: &Area<'_>, panel: &Panel<'_>) -> Drawn {
        let values = || panel.dots.iter().map(|dot| dot.value);
        let low = values().fold(1.0, f64::min) / 1.06;
        let high = values().fold(1.0, f64::max) * 1.06;
        let width = area.dim_in_pixel().0 as f64 - 40.0;
        let place = |value: f64| (10.0 + width * (value / low).ln() / (high / low).ln()) as i32;
        let bottom = self.rows_height() as i32;
        let below = Pos::new(HPos::Center, VPos::Top);
        let label = (FONT, 13).into_font().color(&FAINT_INK).pos(below);
        for mark in marks(low, high) {
            let x = place(mark);
            let line_colour = if mark == 1.0 { FAINT_INK } else { GRID };
            area.draw(&PathElement::new(vec![(x, 0), (x, bottom)], line_colour))?;
            area.draw(&Text::new(format!("{mark}"), (x, bottom + 4), label.clone()))?;
        }
        for row in 0..self.rows.len() {
            let middle = self.row_middle(row);
            let line = vec![(0, middle), (width as i32 + 20, middle)];
            area.draw(&PathElement::new(line, GRID))?;
        }
        let spread = ROW_SPREAD * f64::from(self.row_height);
        for &Dot { row, subject, value } in &panel.dots {
            let aside = spread * ((subject as f64 + 0.5) / self.subjects.len() as f64 - 0.5);
            let middle = (place(value), self.row_middle(row) + aside as i32);
            area.draw(&Circle::new(middle, 5, self.subjects[subject].1.mix(0.85).filled()))?;
        }
        let style = (FONT, 15).into_font().color(&INK).pos(below);
        Ok(area.draw(&Text::new(panel.title, (width as i32 / 2, bottom + 20), style))?)
    }

    fn rows_height(&self) -> u32 {
        self.row_height * self.rows.len() as u32
    }

    fn row_middle(&self, row: usize) -> i32 {
        (row as u32 * self.row_height + self.row_height / 2) as i32
    }
}

fn draw_key(area: &Area<'_>, title: &str, subjects: &[(&str, RGBColor)]) -> Drawn {
    let style = (FONT, 22).into_font().color(&INK);
    area.draw(&Text::new(title, (24, 16), style))?;
    let left = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 15).into_font().color(&INK).pos(left);
    let in_row = subjects.len().div_ceil(2).max(1);
    let step = (WIDTH as i32 - 48) / in_row as i32;
    for (number, (name, colour)) in subjects.iter().enumerate() {
        let x = 32 + (number % in_row) as i32 * step;
        let y = 60 + (number / in_row) as i32 * 24;
        area.draw(&Circle::new((x, y), 6, colour.filled()))?;
        area.draw(&Text::new(*name, (x + 14, y), style.clone()))?;
    }
    Ok(())
}

fn dots(results: &Results, value: Value) -> Vec<Dot> {
    let mut dots = Vec::new();
    for (row, trace) in results.traces.iter().enumerate() {
        for (subject, name) in results.subjects.iter().enumerate() {
            let both = results.get(trace, name).zip(results.get(trace, YARDSTICK));
            let value = both.and_then(|(measured, yardstick)| value(measured, yardstick));
            let value = value.filter(|value| *value > 0.0);
            dots.extend(value.map(|value| Dot { row, subject, value }));
        }
    }
    dots
}

/// Round numbers between `low` and `high`, few enough to fit.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = match high / low {
        ratio if ratio > 20.0 => &[1.0, 3.0],
        ratio if ratio > 1.8 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        _ => &[1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7],
    };
    let decades = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];
    let all = decades.iter().flat_map(|decade| steps.iter().map(move |step| decade * step));
    let round = |mark: f64| (mark * 1e4).round() / 1e4;
    all.map(round).filter(|mark| (low..=high).contains(mark)).collect()
}

/// The colour of that number.
pub(crate) fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::marks;

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(marks(0.94, 3.5), [1.0, 1.5, 2.0, 3.0]);
        assert_eq!(marks(0.98, 1.25), [1.0, 1.05, 1.1, 1.2]);
        assert_eq!(marks(0.05, 12.0), [0.1, 0.3, 1.0, 3.0, 10.0]);
    }
}
