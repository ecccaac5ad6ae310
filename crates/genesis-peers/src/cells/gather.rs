//! Measuring the cells that a plan asks for.
//!
//! Every run is one process. Runs count and do not time, so they go side by side; each is written
//! to the terminal when it ends, and kept at once, so that an interrupted measuring loses little.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::judge::{cold_ms, warm_ms};
use super::kept::{Kept, Key};
use super::{Cell, Cells, Smallest};
use crate::measure::{Replay, Search, completes_on, replay, smallest_device};
use crate::queue::side_by_side;
use crate::run::{Room, Run};
use crate::subjects::{Subject, Tools};
use crate::trace::Trace;

/// The first device in a search for the smallest.
const FIRST_ROOM: Room = Room::OverLive(1.06);

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) traces: &'a [Trace],
    pub(crate) subjects: Vec<Subject>,
    /// The rooms of the cells; none for no cells.
    pub(crate) rooms: Vec<Room>,
    pub(crate) passes: u16,
    /// The passes of long runs; `None` for no long runs.
    pub(crate) long_passes: Option<u16>,
    /// True to search for the smallest devices.
    pub(crate) has_smallest: bool,
    /// True to take the runs of peers from `kept` if they are there.
    pub(crate) keeps_peers: bool,
    /// The file of all runs.
    pub(crate) kept: PathBuf,
}

/// One run of the plan.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    key: Key<'a>,
    subject: &'a Subject,
}

/// Measures what `plan` asks for.
pub(crate) fn measure(
    tools: &Tools,
    plan: &Plan<'_>,
    circumstances: Vec<(String, String)>,
) -> Result<Cells, String> {
    let short = plan.rooms.iter().map(|&room| (room, plan.passes));
    let long = plan.long_passes.map(|passes| (Room::Ample, passes));
    let wanted = |room, passes| plan.wanted(tools, room, passes);
    let mut kept = Kept::read(&plan.kept);
    let runs_anyway = |one: &Wanted<'_>| one.subject.is_genesis() || !plan.keeps_peers;
    let missing: Vec<_> = short
        .chain(long)
        .flat_map(|(room, passes)| wanted(room, passes))
        .filter(|one| runs_anyway(one) || kept.get(one.key).is_none())
        .collect();
    let mut searches = if plan.has_smallest { wanted(Room::Ample, plan.passes) } else { vec![] };
    searches.retain(|one| runs_anyway(one) || kept.smallest_device(one.key).is_none());
    run_all(tools, missing, &mut kept)?;
    search_all(tools, searches, &mut kept)?;
    let cells = |room, passes| plan.cells(tools, &kept, room, passes);
    let mut all: Vec<Cell> = plan.rooms.iter().flat_map(|&room| cells(room, plan.passes)).collect();
    // By trace, and within a trace in the order of the rooms.
    all.sort_by(|one, other| one.trace.cmp(&other.trace));
    Ok(Cells {
        circumstances,
        subjects: plan.subjects.iter().map(|subject| subject.name.clone()).collect(),
        cells: all,
        smallest: if plan.has_smallest { plan.smallest(tools, &kept) } else { Vec::new() },
        long: plan.long_passes.map(|passes| cells(Room::Ample, passes)).unwrap_or_default(),
    })
}

/// Runs `wanted` and puts what became of them into `kept`.
fn run_all(tools: &Tools, wanted: Vec<Wanted<'_>>, kept: &mut Kept) -> steps::Outcome {
    let (count, done) = (wanted.len(), AtomicUsize::new(0));
    let kept = Mutex::new(kept);
    side_by_side(wanted, |Wanted { key, subject }| {
        let Key { trace, room, passes, .. } = key;
        let device_bytes = room.device_bytes(trace.live_peak_bytes);
        let run = replay(tools, trace, subject, Replay { threads: 1, passes, device_bytes })?;
        let number = done.fetch_add(1, Ordering::Relaxed) + 1;
        let name = &subject.name;
        let figures = figures(&run);
        eprintln!("[{number}/{count}] {} {room}, {passes} passes, {name}: {figures}", trace.name);
        kept.lock().unwrap_or_else(PoisonError::into_inner).put(key, run)
    })
}

/// Searches for the smallest devices of `wanted`, and puts them into `kept`.
fn search_all(tools: &Tools, wanted: Vec<Wanted<'_>>, kept: &mut Kept) -> steps::Outcome {
    let (count, done) = (wanted.len(), AtomicUsize::new(0));
    let kept = Mutex::new(kept);
    side_by_side(wanted, |Wanted { key, subject }| {
        let Key { trace, passes, .. } = key;
        let guess_bytes = FIRST_ROOM.device_bytes(trace.live_peak_bytes);
        let found = smallest_device(tools, trace, subject, Search { passes, guess_bytes })?;
        let number = done.fetch_add(1, Ordering::Relaxed) + 1;
        let (name, found_text) = (&subject.name, completes_on(trace, found));
        eprintln!("[{number}/{count}] {}, {passes} passes, {name}: {found_text}", trace.name);
        kept.lock().unwrap_or_else(PoisonError::into_inner).put_smallest_device(key, found)
    })
}

/// A run in a few words.
fn figures(run: &Run) -> String {
    match run.completed() {
        Some(report) => format!(
            "{:.3} × live, {:.1} ms cold, {:.1} ms a pass",
            report.reserved_over_live_in_all().unwrap_or_default(),
            cold_ms(report),
            warm_ms(report),
        ),
        None => run.trouble().unwrap_or_default(),
    }
}

impl<'a> Plan<'a> {
    /// The runs of every trace in `room`.
    fn wanted<'b>(&'b self, tools: &'b Tools, room: Room, passes: u16) -> Vec<Wanted<'b>>
    where
        'a: 'b,
    {
        let by_trace = self.traces.iter().flat_map(|trace| {
            let able = self.subjects.iter().filter(|subject| subject.can_replay(trace));
            able.map(move |subject| (trace, subject))
        });
        by_trace
            .map(|(trace, subject)| {
                let (prices, name) = (&*tools.prices, &*subject.name);
                Wanted { key: Key { trace, room, passes, prices, subject: name }, subject }
            })
            .collect()
    }

    /// The cells of every trace in `room`, from what was kept.
    fn cells(&self, tools: &Tools, kept: &Kept, room: Room, passes: u16) -> Vec<Cell> {
        let wanted = self.wanted(tools, room, passes);
        let cell = |trace: &Trace| Cell {
            trace: trace.name.clone(),
            room,
            runs: wanted
                .iter()
                .filter(|one| one.key.trace.name == trace.name)
                .filter_map(|one| Some((one.subject.name.clone(), kept.get(one.key)?.clone())))
                .collect(),
        };
        self.traces.iter().map(cell).collect()
    }

    /// The smallest devices of every trace, from what was kept.
    fn smallest(&self, tools: &Tools, kept: &Kept) -> Vec<Smallest> {
        let wanted = self.wanted(tools, Room::Ample, self.passes);
        let smallest = |trace: &Trace| Smallest {
            trace: trace.name.clone(),
            over_live: wanted
                .iter()
                .filter(|one| one.key.trace.name == trace.name)
                .filter_map(|one| {
                    let bytes = kept.smallest_device(one.key)??;
                    Some((one.subject.name.clone(), bytes as f64 / trace.live_peak_bytes as f64))
                })
                .collect(),
        };
        self.traces.iter().map(smallest).collect()
    }
}
