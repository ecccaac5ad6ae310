//! The cells on a terminal: a line for each, with what decides it.
//!
//! ```text
//! trace room | exp: peak cold_ms warm_ms | gen: peak cold_ms warm_ms | WON, DRAW or LOST and why
//! ```

use std::fmt::Write;

use super::judge::{cold_ms, warm_ms};
use super::{Cell, Cells, Smallest};
use crate::results::geometric_mean;
use crate::run::Run;
use crate::subjects::{ELASTIC, EXPANDABLE, FINE, TIGHT, YARDSTICK};

/// The subjects in the order of a line, with their names on it.
const NAMES: [(&str, &str); 5] = [
    (YARDSTICK, "native"),
    (EXPANDABLE, "exp"),
    (ELASTIC, "gen"),
    (FINE, "fine"),
    (TIGHT, "tight"),
];
/// The characters of one subject's figures.
const FIGURES_WIDTH: usize = 19;

/// The lines and their summary, then long runs (peak of the first pass -> of all) and the smallest
/// devices over live.
pub(crate) fn write(cells: &Cells) -> String {
    let mut text = String::new();
    let width = |rows: &[Cell]| rows.iter().map(|cell| cell.trace.len()).max().unwrap_or(0);
    for cell in &cells.cells {
        let _ = write!(text, "{:<1$} {2:>6}", cell.trace, width(&cells.cells), cell.room);
        text += &subjects(cell, figures);
        let verdict = cell.verdict().map(|verdict| verdict.to_string());
        let _ = writeln!(text, " | {}", verdict.unwrap_or_default());
    }
    if !cells.cells.is_empty() {
        let _ = writeln!(text, "\n{}", cells.tally(None));
        let _ = writeln!(text, "{}", peaks(cells));
    }
    for cell in &cells.long {
        let _ = write!(text, "{:<1$}   long", cell.trace, width(&cells.long));
        let _ = writeln!(text, "{}", subjects(cell, creep));
    }
    let width = cells.smallest.iter().map(|one| one.trace.len()).max().unwrap_or(0);
    for Smallest { trace, over_live } in &cells.smallest {
        let _ = write!(text, "{trace:<width$} device");
        for (name, short) in
            NAMES.iter().filter(|(name, _)| cells.subjects.contains(&(*name).into()))
        {
            let device = over_live
                .get(*name)
                .map_or("none".to_owned(), |over_live| format!("{over_live:.3}"));
            let _ = write!(text, " | {short}: {device:<FIGURES_WIDTH$}");
        }
        text += "\n";
    }
    text
}

fn subjects(cell: &Cell, show: fn(&Run) -> String) -> String {
    let measured = NAMES.iter().filter_map(|(name, short)| Some((short, cell.runs.get(*name)?)));
    measured.map(|(short, run)| format!(" | {short}: {:<FIGURES_WIDTH$}", show(run))).collect()
}

fn figures(run: &Run) -> String {
    match (run.completed(), run.report()) {
        (Some(report), _) => {
            let peak = report.reserved_over_live_in_all().unwrap_or_default();
            format!("{peak:.3} {:6.1} {:6.1}", cold_ms(report), warm_ms(report))
        }
        (None, Some(report)) => format!("{} requests fail", report.failures()),
        (None, None) => "died".to_owned(),
    }
}

/// Peak of the first pass, and of all.
fn creep(run: &Run) -> String {
    let Some(report) = run.completed() else { return figures(run) };
    let all = report.reserved_over_live_in_all().unwrap_or_default();
    format!("{:.3} -> {all:.3}", report.reserved_over_live().unwrap_or_default())
}

/// The geometric mean of each subject's peaks, over the cells that all subjects complete.
fn peaks(cells: &Cells) -> String {
    let measured: Vec<_> = NAMES
        .iter()
        .filter(|(name, _)| cells.cells.iter().any(|cell| cell.runs.contains_key(*name)))
        .collect();
    let common = || {
        cells
            .cells
            .iter()
            .filter(|cell| measured.iter().all(|(name, _)| cell.completed(name).is_some()))
    };
    let mean = |name: &str| {
        let reports = common().filter_map(|cell| cell.completed(name));
        geometric_mean(reports.filter_map(|report| report.reserved_over_live_in_all()))
    };
    let means = measured.iter().map(|(name, short)| {
        mean(name).map_or(format!("{short} –"), |mean| format!("{short} {mean:.4}"))
    });
    let means: Vec<String> = means.collect();
    let count = common().count();
    format!("geometric mean of peaks, {count} cells that all complete: {}", means.join(", "))
}
