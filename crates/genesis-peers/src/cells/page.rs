//! The page of the cells: the judgement first, then a table for each quantity.

use std::fmt::Write;

use genesis_replay::report::Report;
use genesis_replay::table::grouped;

use super::judge::{Verdict, cold_ms, warm_ms};
use super::{Cell, Cells, Smallest};
use crate::results::geometric_mean;
use crate::run::{Room, Run};

const NOTHING: &str = "–";

/// A quantity of a run that completed.
type Quantity = fn(&Report) -> Option<String>;

/// What a table says of a run that did not complete.
type Trouble = fn(&Run) -> Option<String>;

/// A table of the page: heading, explanation and quantity.
type Section = (&'static str, &'static str, Quantity);

const SECTIONS: [Section; 6] = [
    (
        "Peak of held memory",
        "The most physical memory taken from the device in any pass, over the live peak as \
         requested. Where requests fail, their number in all passes and the first such pass; the \
         tables below only have \"fails\" there.",
        |report| report.reserved_over_live_in_all().map(|peak| format!("{peak:.3}")),
    ),
    ("Driver time of the first pass", "In milliseconds, by the prices named above.", |report| {
        Some(format!("{:.1}", cold_ms(report)))
    }),
    (
        "Driver time of a later pass",
        "In milliseconds: the mean, the worst pass, and the last.",
        |report| {
            let worst_ms = report.worst_warm_driver_ns()? as f64 / 1e6;
            let last_ms = report.warm.last()?.driver_ns as f64 / 1e6;
            Some(format!("{:.1} / {worst_ms:.1} / {last_ms:.1}", warm_ms(report)))
        },
    ),
    (
        "Waits of the host",
        "Calls in all passes in which the host waits for the device: synchronising ones and \
         `cuMemFree`.",
        |report| report.host_waits().map(grouped),
    ),
    (
        "Driver calls in the last pass",
        "All calls; those that do not concern events, in brackets as a part of the program's \
         calls.",
        |report| {
            let pass = report.passes().last()?;
            let others = pass.driver_calls - pass.driver_event_calls?;
            let percent = 100.0 * others as f64 / report.calls as f64;
            Some(format!("{} / {} ({percent:.3} %)", grouped(pass.driver_calls), grouped(others)))
        },
    ),
    (
        "Nanoseconds per call, warm",
        "The median of the later passes, measured while another process ran: a hint only. \
         [peers.md](peers.md) has times that were measured alone.",
        |report| report.warm_ns_per_call().map(|ns| format!("{ns:.0}")),
    ),
];

/// The page in Markdown.
pub(crate) fn write(cells: &Cells) -> String {
    let mut page = "# Elastic against expandable segments\n\n\
         Written by `cargo xtask peers`, as [peers.md](peers.md) is, which describes the replay and \
         the driver stand-in. A *cell* is a recorded program on a device of some room: of 1.02, \
         1.05 or 1.10 times the program's live peak, or an ample one of 1 TiB. Each allocator \
         replays the program pass after pass in one process; blocks left live are freed between \
         passes.\n"
        .to_owned();
    if !cells.cells.is_empty() {
        page += "\n![Memory and driver time of every cell](cells.svg)\n";
    }
    page += "\n## The run\n\n";
    for (name, value) in &cells.circumstances {
        let _ = writeln!(page, "- {name}: {value}");
    }
    if !cells.cells.is_empty() {
        page += &judgement(cells);
        for (number, (heading, explanation, quantity)) in SECTIONS.into_iter().enumerate() {
            let _ = write!(page, "\n## {heading}\n\n{explanation}\n\n");
            let trouble = if number == 0 { Run::trouble } else { fails };
            page += &table(cells, quantity, trouble);
        }
    }
    if !cells.long.is_empty() {
        page += &long(cells);
    }
    if !cells.smallest.is_empty() {
        page += &smallest(cells);
    }
    page
}

fn judgement(cells: &Cells) -> String {
    let mut text = format!(
        "\n## Won or lost\n\n\
         Genesis Elastic {}. A cell is won if Elastic completes it, and\n\n\
         - its peak of held memory over all passes is at most expandable's + 0.003 × live,\n\
         - its driver time of the first pass is at most 1.1 × expandable's + 5 ms (+ 40 ms for \
         programs with a live peak under 5 GiB),\n\
         - its mean driver time of later passes is at most expandable's + 5 ms;\n\n\
         or if expandable does not complete it. Where neither completes, the device is too small \
         for both, and the cell is drawn.\n\n",
        cells.tally(None)
    );
    let rooms = cells.rooms();
    let names = |room: &Room| format!("{room} | ");
    let _ = writeln!(text, "| trace | {}", rooms.iter().map(names).collect::<String>().trim_end());
    let _ = writeln!(text, "|---|{}", "---|".repeat(rooms.len()));
    let mut traces: Vec<&str> = cells.cells.iter().map(|cell| &*cell.trace).collect();
    traces.dedup();
    for trace in traces {
        let verdict = |room: &Room| {
            let cell = cells.cells.iter().find(|cell| cell.trace == trace && cell.room == *room);
            match cell.and_then(Cell::verdict) {
                Some(Verdict::Won) => "won".to_owned(),
                Some(Verdict::Draw) => "drawn".to_owned(),
                Some(Verdict::Lost(reasons)) => format!("**lost**: {}", reasons.join(", ")),
                None => NOTHING.to_owned(),
            }
        };
        let verdicts: Vec<String> = rooms.iter().map(verdict).collect();
        let _ = writeln!(text, "| {trace} | {} |", verdicts.join(" | "));
    }
    text + "\n" + &means(cells)
}

/// A table of one row for each room: how many were won, and geometric means of peaks.
fn means(cells: &Cells) -> String {
    let mut text = "Geometric means of the peaks, over the cells that all allocators complete:\n\n\
        | room | judgement | cells | "
        .to_owned();
    let _ = writeln!(text, "{} |", cells.subjects.join(" | "));
    let _ = writeln!(text, "|---|---|---:|{}", "---:|".repeat(cells.subjects.len()));
    for room in cells.rooms() {
        let common: Vec<&Cell> = cells
            .cells
            .iter()
            .filter(|cell| cell.room == room)
            .filter(|cell| cell.runs.values().all(|run| run.completed().is_some()))
            .collect();
        let mean = |subject: &String| {
            let reports = common.iter().filter_map(|cell| cell.completed(subject));
            let mean = geometric_mean(reports.filter_map(Report::reserved_over_live_in_all));
            mean.map_or(NOTHING.to_owned(), |mean| format!("{mean:.4}"))
        };
        let means: Vec<String> = cells.subjects.iter().map(mean).collect();
        let tally = cells.tally(Some(room));
        let _ = writeln!(text, "| {room} | {tally} | {} | {} |", common.len(), means.join(" | "));
    }
    text
}

fn fails(run: &Run) -> Option<String> {
    run.trouble().map(|_| "fails".to_owned())
}

fn table(cells: &Cells, quantity: Quantity, trouble: Trouble) -> String {
    let mut table = format!("| trace | room | {} |\n", cells.subjects.join(" | "));
    let _ = writeln!(table, "|---|---|{}", "---:|".repeat(cells.subjects.len()));
    for cell in &cells.cells {
        let show = |subject| show(cell, subject, quantity, trouble);
        let shown: Vec<String> = cells.subjects.iter().map(show).collect();
        let _ = writeln!(table, "| {} | {} | {} |", cell.trace, cell.room, shown.join(" | "));
    }
    table
}

/// The quantity of `subject` in a cell, or `trouble` if it did not complete.
fn show(cell: &Cell, subject: &String, quantity: Quantity, trouble: Trouble) -> String {
    let run = cell.runs.get(subject);
    let shown = run.and_then(|run| run.completed().map_or_else(|| trouble(run), quantity));
    shown.unwrap_or_else(|| NOTHING.to_owned())
}

/// The peak of the first pass, and of all.
fn both(report: &Report) -> Option<(f64, f64)> {
    Some((report.reserved_over_live()?, report.reserved_over_live_in_all()?))
}

fn creep(report: &Report) -> Option<String> {
    both(report).map(|(first, all)| format!("{first:.3} → {all:.3}"))
}

fn long(cells: &Cells) -> String {
    let passes = cells.long.iter().flat_map(|cell| cell.runs.values()).filter_map(Run::report);
    let passes = passes.map(|report| report.passes().count()).max().unwrap_or(0);
    let mut text = format!(
        "\n## Held memory over {passes} passes\n\n\
         With ample memory, over the live peak: the peak of the first pass → the peak of all \
         passes.\n\n| trace | {} |\n|---|{}\n",
        cells.subjects.join(" | "),
        "---:|".repeat(cells.subjects.len())
    );
    for cell in &cells.long {
        let show = |subject| show(cell, subject, creep, Run::trouble);
        let shown: Vec<String> = cells.subjects.iter().map(show).collect();
        let _ = writeln!(text, "| {} | {} |", cell.trace, shown.join(" | "));
    }
    let means = cells.subjects.iter().map(|subject| {
        let reports = cells.long.iter().filter_map(|cell| cell.completed(subject));
        let (first, all): (Vec<f64>, Vec<f64>) = reports.filter_map(both).unzip();
        let means = geometric_mean(first).zip(geometric_mean(all));
        means.map_or(NOTHING.to_owned(), |(first, all)| format!("{first:.3} → {all:.3}"))
    });
    let _ = writeln!(text, "| geometric mean | {} |", means.collect::<Vec<_>>().join(" | "));
    text
}

fn smallest(cells: &Cells) -> String {
    let mut text = format!(
        "\n## Smallest device\n\n\
         The least memory on which no request of any pass fails, over the live peak; found to \
         0.1 % by bisection. Completing is not strictly monotonic in the size, so near the \
         threshold this is one of several values.\n\n| trace | {} |\n|---|{}\n",
        cells.subjects.join(" | "),
        "---:|".repeat(cells.subjects.len())
    );
    for Smallest { trace, over_live } in &cells.smallest {
        let show = |subject| {
            over_live.get(subject).map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.3}"))
        };
        let shown: Vec<String> = cells.subjects.iter().map(show).collect();
        let _ = writeln!(text, "| {trace} | {} |", shown.join(" | "));
    }
    text
}
