//! The cells: what a user pays under Genesis's Elastic, and whether that is less than under
//! PyTorch's expandable segments.
//!
//! A *cell* is a trace on a device of some room: of 1.02, 1.05 or 1.10 times the live peak, or an
//! ample one. Each subject replays it in one process, pass after pass, and blocks left live are
//! freed between passes. A *long* run is the same with ample memory and many more passes: it shows
//! whether held memory creeps.
//!
//! ```text
//! gather  measures what a plan asks for, two processes side by side
//! kept    every run by what it measured, so that peers need not run again
//! judge   won, drawn or lost
//! lines   a line for each cell, for the terminal
//! page    docs/benchmarks/cells.md
//! chart   docs/benchmarks/cells.svg
//! ```
//!
//! Memory, driver calls and driver time are counted, so load on the machine does not change them.
//! The time per call is measured while other processes run, and is only a hint here.

pub(crate) mod chart;
pub(crate) mod gather;
mod judge;
mod kept;
pub(crate) mod lines;
pub(crate) mod page;

use std::collections::BTreeMap;

use genesis_replay::report::Report;
use serde::{Deserialize, Serialize};

use crate::run::{Room, Run};
use crate::subjects::{ELASTIC, EXPANDABLE};
use judge::{Tally, Verdict, judge};

/// The strategy that the cells judge.
pub(crate) const STRATEGY: &str = "Elastic";

/// Everything measured by one plan.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cells {
    /// The machine, versions and so on, as pairs of a name and a value.
    pub(crate) circumstances: Vec<(String, String)>,
    /// The subjects' names.
    pub(crate) subjects: Vec<String>,
    /// By trace, then by room.
    pub(crate) cells: Vec<Cell>,
    /// The long runs, with ample memory.
    pub(crate) long: Vec<Cell>,
    /// The smallest devices, by trace.
    pub(crate) smallest: Vec<Smallest>,
}

/// The smallest devices on which all passes of a trace complete.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Smallest {
    pub(crate) trace: String,
    /// Over the live peak, by the subjects' names; a subject that completes on none is left out.
    pub(crate) over_live: BTreeMap<String, f64>,
}

/// A trace on a device of some room.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) trace: String,
    pub(crate) room: Room,
    /// By the subjects' names. A subject that cannot replay the trace is left out.
    pub(crate) runs: BTreeMap<String, Run>,
}

impl Cell {
    /// `None` if one of the two was not measured.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        Some(judge(self.runs.get(ELASTIC)?, self.runs.get(EXPANDABLE)?))
    }

    /// The report of `subject`, if it completed.
    fn completed(&self, subject: &str) -> Option<&Report> {
        self.runs.get(subject)?.completed()
    }
}

impl Cells {
    /// How many cells were won, drawn and lost, of those in `room` or of all.
    fn tally(&self, room: Option<Room>) -> Tally {
        let cells = self.cells.iter().filter(|cell| room.is_none_or(|room| cell.room == room));
        Tally::of(&cells.filter_map(Cell::verdict).collect::<Vec<_>>())
    }

    /// The rooms, in the order in which they were measured.
    fn rooms(&self) -> Vec<Room> {
        let mut rooms: Vec<Room> = Vec::new();
        for cell in &self.cells {
            if !rooms.contains(&cell.room) {
                rooms.push(cell.room);
            }
        }
        rooms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;
    use crate::subjects::TIGHT;

    /// Two traces, one of which has no room for anybody.
    fn cells() -> Cells {
        let cell = |trace: &str, room, failures| Cell {
            trace: trace.to_owned(),
            room,
            runs: BTreeMap::from([
                (EXPANDABLE.to_owned(), run(1.05, &[100.0, 1.0], failures)),
                (ELASTIC.to_owned(), run(1.01, &[120.0, 3.0], failures)),
            ]),
        };
        Cells {
            circumstances: vec![("date".to_owned(), "today".to_owned())],
            subjects: [EXPANDABLE, ELASTIC, TIGHT].map(str::to_owned).into(),
            cells: vec![
                cell("one", Room::OverLive(1.02), 4),
                cell("one", Room::Ample, 0),
                cell("two", Room::OverLive(1.02), 0),
                cell("two", Room::Ample, 0),
            ],
            long: vec![cell("one", Room::Ample, 0), cell("two", Room::Ample, 0)],
            smallest: vec![Smallest {
                trace: "one".to_owned(),
                over_live: BTreeMap::from([(ELASTIC.to_owned(), 1.0049)]),
            }],
        }
    }

    #[test]
    fn a_line_has_both_and_the_reason() {
        let text = lines::write(&cells());
        let lines: Vec<&str> = text.lines().collect();
        let lost = "one  ample | exp: 1.050  100.0    1.0 | gen: 1.010  120.0    3.0 | LOST cold";
        assert!(lines[1].starts_with(lost), "{text}");
        assert!(lines[0].ends_with("DRAW neither completes"), "{text}");
        assert!(lines[5].contains("won 0 of 4, 1 drawn (neither completes), 3 lost"), "{text}");
    }

    #[test]
    fn the_page_has_every_cell_and_leaves_out_what_was_not_measured() {
        let page = page::write(&cells());
        for row in [
            "won 0 of 4, 1 drawn",
            "| one | 1.02 | 8 requests fail, from pass 1 | 8 requests fail, from pass 1 | – |",
            "| one | ample | 1.050 | 1.010 | – |",
            "| one | 1.02 | fails | fails | – |",
            "| two | 1.02 | 1.0 / 1.0 / 1.0 | 3.0 / 3.0 / 3.0 | – |",
            "| one | – | 1.005 | – |",
            "| one | 1.050 → 1.050 | 1.010 → 1.010 | – |",
            "| geometric mean | 1.050 → 1.050 | 1.010 → 1.010 | – |",
        ] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
    }

    #[test]
    fn the_picture_has_a_row_for_each_cell() {
        let path = std::env::temp_dir().join(format!("cells-{}.svg", std::process::id()));
        chart::draw(&path, &cells()).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("two, ample") && svg.contains("<circle"), "{svg}");
        std::fs::remove_file(&path).unwrap();
    }
}
