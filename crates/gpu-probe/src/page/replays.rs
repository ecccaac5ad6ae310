//! Recorded programs, on the page: a table for each number of threads and room.

use std::fmt::Write;

use genesis_profile::units::bytes;

use super::{NOTHING, table};
use crate::report::Replay;

pub(super) fn render(replays: &[Replay]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut seen = Vec::new();
    for replay in replays {
        let circumstances = (replay.threads, replay.room);
        if !seen.contains(&circumstances) {
            seen.push(circumstances);
        }
    }
    for (threads, room) in seen {
        let many =
            if threads == 1 { "One thread".to_owned() } else { format!("{threads} threads") };
        text += &match room {
            None => format!("\n### {many}, without a limit\n\n"),
            Some(room) => format!("\n### {many}, at most {room} times the live peak\n\n"),
        };
        let rows = replays.iter().filter(|replay| (replay.threads, replay.room) == (threads, room));
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
     Python. *Held* is the most memory reserved in any pass over the most that is live. Of several \
     threads each makes all calls, on streams of its own: the time of a call and of a pass is their mean.\n";

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
