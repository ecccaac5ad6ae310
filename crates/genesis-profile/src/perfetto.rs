//! The profile as Chrome's trace events, for ui.perfetto.dev and chrome://tracing.
//!
//! The form is the JSON object with `traceEvents` ("Trace Event Format", the Chromium project),
//! times in microseconds:
//!
//! | profile | trace |
//! |---|---|
//! | device | process |
//! | level of a device | counter (`C`) |
//! | thread of the program | track, in a process for the program |
//! | range | begin and end (`B`, `E`) |
//! | mark, iteration, failure and the rest | instant (`i`) |
//!
//! Viewers take a few million values of at most a hundred bytes. So with more than [`MOST_CHANGES`]
//! changes of a device's levels, the time is divided into that many parts, and each part has only
//! the highest and the last value of a level; peaks and lasting levels stay exact. For the time
//! before the history, the highest value of each interval of the timeline is written.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::levels;
use crate::model::{Action, Event, Levels, Profile};
use crate::units;

/// The most changes of levels that are written one by one.
pub const MOST_CHANGES: usize = 250_000;

/// The process of the program's tracks; devices are processes 1, 2, ….
const PROGRAM: u64 = 0;
const NAMES: [&str; 4] = ["requested", "allocated", "active", "reserved"];

/// Writes `profile` to `out`.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace { out, is_first: true };
    trace.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    trace.name_process(PROGRAM, &profile.program)?;
    for (row, device) in profile.devices.iter().enumerate() {
        let name = format!("Device {} {}", device.ordinal, device.name);
        trace.name_process(process_of(row), &name)?;
    }
    write_timelines(profile, &mut trace)?;
    write_levels(profile, &mut trace)?;
    write_notes(profile, &mut trace)?;
    trace.out.write_all(b"\n]}\n")
}

struct Trace<'o> {
    out: &'o mut dyn Write,
    is_first: bool,
}

impl Trace<'_> {
    fn push(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",\n")?;
        }
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    fn name_process(&mut self, process: u64, name: &str) -> io::Result<()> {
        self.push(&json!({"ph": "M", "pid": process, "tid": 0, "name": "process_name",
                          "args": {"name": name}}))?;
        self.push(&json!({"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index",
                          "args": {"sort_index": process}}))
    }

    /// A counter's value. Formatted directly, because there are millions of them.
    fn count(&mut self, row: usize, level: usize, time_ns: u64, bytes: u64) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",\n")?;
        }
        let (process, name) = (process_of(row), NAMES[level]);
        let (us, ns) = (time_ns / 1000, time_ns % 1000);
        write!(
            self.out,
            "{{\"ph\":\"C\",\"pid\":{process},\"tid\":0,\"ts\":{us}.{ns:03},\
             \"name\":\"{name}\",\"args\":{{\"bytes\":{bytes}}}}}"
        )
    }

    fn count_all(&mut self, row: usize, time_ns: u64, levels: &Levels) -> io::Result<()> {
        for (level, bytes) in values(levels).into_iter().enumerate() {
            self.count(row, level, time_ns, bytes)?;
        }
        Ok(())
    }
}

fn process_of(row: usize) -> u64 {
    row as u64 + 1
}

fn values(levels: &Levels) -> [u64; 4] {
    let &Levels { requested_bytes, allocated_bytes, active_bytes, reserved_bytes } = levels;
    [requested_bytes, allocated_bytes, active_bytes, reserved_bytes]
}

fn microseconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1000.0
}

/// The levels before the history.
fn write_timelines(profile: &Profile, trace: &mut Trace) -> io::Result<()> {
    let events = &profile.history.events;
    let begin_ns = match events.first() {
        Some(_) if profile.history.dropped_events == 0 => return Ok(()),
        Some(event) => event.time_ns,
        None => u64::MAX,
    };
    for timeline in &profile.timelines {
        let Some(row) = profile.device_row(timeline.device) else {
            continue;
        };
        for (index, peaks) in timeline.peaks.iter().enumerate() {
            let time_ns = timeline.interval_ns.saturating_mul(index as u64);
            if time_ns >= begin_ns {
                break;
            }
            trace.count_all(row, time_ns, peaks)?;
        }
    }
    Ok(())
}

/// One device's level on its way to the file.
#[derive(Clone, Copy, Default)]
struct Pending {
    /// The number of the part of the time.
    part: u64,
    written: Option<u64>,
    /// (time, bytes): the highest of the part, and the last.
    highest: (u64, u64),
    last: (u64, u64),
}

impl Pending {
    fn flush(&mut self, trace: &mut Trace, row: usize, level: usize) -> io::Result<()> {
        for (time_ns, bytes) in [self.highest, self.last] {
            if self.written != Some(bytes) {
                trace.count(row, level, time_ns, bytes)?;
                self.written = Some(bytes);
            }
        }
        Ok(())
    }
}

fn write_levels(profile: &Profile, trace: &mut Trace) -> io::Result<()> {
    let events = &profile.history.events;
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Ok(());
    };
    for (row, levels) in profile.history.start.iter().enumerate().take(profile.devices.len()) {
        trace.count_all(row, first.time_ns, levels)?;
    }
    let span_ns = last.time_ns.saturating_sub(first.time_ns);
    let part_ns =
        if events.len() > MOST_CHANGES { (span_ns / MOST_CHANGES as u64).max(1) } else { 1 };
    let mut pending = vec![[Pending::default(); 4]; profile.devices.len()];
    for (row, levels) in profile.history.start.iter().enumerate().take(pending.len()) {
        for (level, bytes) in values(levels).into_iter().enumerate() {
            let value = (first.time_ns, bytes);
            pending[row][level] =
                Pending { part: 0, written: Some(bytes), highest: value, last: value };
        }
    }
    let mut result = Ok(());
    levels::walk(profile, |event, row, levels| {
        let time_ns = event.time_ns;
        let part = time_ns.saturating_sub(first.time_ns) / part_ns;
        for (level, bytes) in values(levels).into_iter().enumerate() {
            let slot = &mut pending[row][level];
            if slot.last.1 == bytes {
                continue;
            }
            if part != slot.part || part_ns == 1 {
                let flushed = slot.flush(trace, row, level);
                result = std::mem::replace(&mut result, Ok(())).and(flushed);
                (slot.part, slot.highest) = (part, (time_ns, bytes));
            }
            slot.last = (time_ns, bytes);
            if bytes > slot.highest.1 {
                slot.highest = slot.last;
            }
        }
    });
    result?;
    for (row, levels) in pending.iter_mut().enumerate() {
        for (level, slot) in levels.iter_mut().enumerate() {
            slot.flush(trace, row, level)?;
        }
    }
    Ok(())
}

/// Ranges and moments.
fn write_notes(profile: &Profile, trace: &mut Trace) -> io::Result<()> {
    for event in &profile.history.events {
        let ts = microseconds(event.time_ns);
        let thread = event.address;
        match event.action {
            Action::RangePush => trace.push(&json!({
                "ph": "B", "pid": PROGRAM, "tid": thread, "ts": ts,
                "name": profile.name(event.name),
            }))?,
            Action::RangePop => {
                trace.push(&json!({"ph": "E", "pid": PROGRAM, "tid": thread, "ts": ts}))?;
            }
            _ => {
                if let Some(name) = moment_name(profile, event) {
                    let row = profile.device_row(event.device).filter(|_| is_of_device(event));
                    let process = row.map_or(PROGRAM, process_of);
                    trace.push(&json!({
                        "ph": "i", "s": "p", "pid": process, "tid": 0, "ts": ts, "name": name,
                    }))?;
                }
            }
        }
    }
    Ok(())
}

/// Returns true if an instant belongs to its event's device, not to the program.
fn is_of_device(event: &Event) -> bool {
    matches!(event.action, Action::OutOfMemory | Action::Trim | Action::Pause | Action::Resume)
}

/// The name of an instant; `None` for events that are no instant.
fn moment_name(profile: &Profile, event: &Event) -> Option<String> {
    Some(match event.action {
        Action::Mark => profile.name(event.name).to_owned(),
        Action::Iteration => format!("iteration {}", event.requested_bytes),
        Action::OutOfMemory => {
            format!("out of memory: {} requested", units::bytes(event.requested_bytes))
        }
        Action::Trim => "trim".to_owned(),
        Action::Pause => format!("pause {}", profile.name(event.name)),
        Action::Resume => format!("resume {}", profile.name(event.name)),
        _ => return None,
    })
}
