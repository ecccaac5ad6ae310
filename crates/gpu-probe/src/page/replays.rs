//! Recorded programs, on the page: a table for each room.

use std::fmt::Write;

use genesis_profile::units::bytes;

use super::{NOTHING, table};
use crate::replays::Replay;

pub(super) fn render(replays: &[Replay]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut rooms: Vec<Option<f64>> = Vec::new();
    for replay in replays {
        if !rooms.contains(&replay.room) {
            rooms.push(replay.room);
        }
    }
    for room in rooms {
        text += &match room {
            None => "\n### Without a limit\n\n".to_owned(),
            Some(room) => format!("\n### At most {room} times the live peak\n\n"),
        };
        let rows = replays.iter().filter(|replay| replay.room == room);
        text += &table(&HEADS, rows.clone().map(row));
        for replay in rows {
            if let Some(error) = &replay.error {
                let _ = writeln!(text, "\n*{}, {}: {error}*", replay.program, replay.allocator);
            }
        }
    }
    text
}

const INTRODUCTION: &str = "The calls of recorded programs (`traces/`), and no work of the device: times are the \
     allocator's, calls of the driver included. PyTorch's allocator is called from C++, without \
     Python. *Held* is the most memory reserved in any pass over the most that is live.\n";

const HEADS: [&str; 7] = [
    "program and allocator",
    "live peak",
    "held",
    "first pass",
    "later pass",
    "later, ns a call",
    "requests refused",
];

fn row(replay: &Replay) -> Vec<String> {
    let name = format!("{}, {}", replay.program, replay.allocator);
    let Some(seen) = replay.figures else {
        let nothing = std::iter::repeat_n(NOTHING.to_owned(), HEADS.len() - 1);
        return std::iter::once(name).chain(nothing).collect();
    };
    let held = seen.reserved_peak_bytes as f64 / seen.live_peak_bytes.max(1) as f64;
    let milliseconds = |ns: f64| format!("{:.1} ms", ns / 1e6);
    vec![
        name,
        bytes(seen.live_peak_bytes),
        format!("{held:.3}"),
        milliseconds(seen.first_ns),
        milliseconds(seen.later_ns),
        format!("{:.0}", seen.later_ns_per_call),
        seen.failures.to_string(),
    ]
}
