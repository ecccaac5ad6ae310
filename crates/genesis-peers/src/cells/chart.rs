//! The cells as a picture: a row for each, memory to the left, driver time to the right. The colour
//! of a row's name is the judgement: green won, red lost, grey drawn.

use std::path::Path;

use genesis_replay::report::Report;
use plotters::style::RGBColor;

use super::judge::{Verdict, cold_ms, warm_ms};
use super::{Cell, Cells};
use crate::chart::{Dot, INK, Panel, Picture, Row, colour};
use crate::subjects::{ELASTIC, EXPANDABLE, FINE, TIGHT};
use steps::Outcome;

const ROW_HEIGHT: u32 = 26;
const WON: RGBColor = RGBColor(0x00, 0x7a, 0x4d);
const DRAWN: RGBColor = RGBColor(0x8a, 0x93, 0x9e);
const LOST: RGBColor = RGBColor(0xc4, 0x1e, 0x3a);
/// The least driver time on the logarithmic axis, in milliseconds.
const LEAST_MS: f64 = 0.1;

/// Draws the cells into the SVG file `path`.
pub(crate) fn draw(path: &Path, cells: &Cells) -> Outcome {
    let panel = |title, value| Panel { title, dots: dots(cells, value) };
    let picture = Picture {
        title: "Memory and driver time, by trace and room: further left is better",
        subjects: cells.subjects.iter().map(|name| (&**name, colour_of(name))).collect(),
        rows: cells.cells.iter().map(row).collect(),
        row_height: ROW_HEIGHT,
        panels: vec![
            panel("peak of all passes over live", Report::reserved_over_live_in_all),
            panel("driver time of the first pass, ms", |report| {
                Some(cold_ms(report).max(LEAST_MS))
            }),
            panel("driver time of a later pass, ms", |report| Some(warm_ms(report).max(LEAST_MS))),
        ],
    };
    picture.draw(path)
}

/// Far from each other for those that are compared.
fn colour_of(subject: &str) -> RGBColor {
    colour(match subject {
        EXPANDABLE => 0,
        ELASTIC => 6,
        TIGHT => 3,
        FINE => 4,
        _ => 2,
    })
}

fn row(cell: &Cell) -> Row {
    let colour = match cell.verdict() {
        Some(Verdict::Won) => WON,
        Some(Verdict::Draw) => DRAWN,
        Some(Verdict::Lost(_)) => LOST,
        None => INK,
    };
    Row { name: format!("{}, {}", cell.trace, cell.room), colour }
}

fn dots(cells: &Cells, value: fn(&Report) -> Option<f64>) -> Vec<Dot> {
    let mut dots = Vec::new();
    for (row, cell) in cells.cells.iter().enumerate() {
        for (subject, name) in cells.subjects.iter().enumerate() {
            let value = cell.completed(name).and_then(value);
            dots.extend(value.map(|value| Dot { row, subject, value }));
        }
    }
    dots
}
