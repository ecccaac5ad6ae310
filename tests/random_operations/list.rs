//! Lists of operations: drawn, run, made shorter while they still fail, and kept in files.
//!
//! A list with its settings is all that a run depends on: one thread performs it, and the heap's
//! clock counts operations. A list that fails is cut down by delta debugging (Zeller and
//! Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): parts are left out, by
//! halves and ever smaller, as long as what remains fails, until no single operation can go. Then
//! it is written to a file, one line of JSON for the settings and one for each operation. Files in
//! `tests/regressions` run with the tests.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use genesis::config::{LogLevel, PoolType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use simgpu::{Progress, StoreKind};

use crate::operation::{Extent, Operation, START_OPTIONS};
use crate::oracle::Oracle;
use crate::support::{Plan, Random, Rig, Subject};
use crate::worker::{Conduct, Worker};
use crate::{CAPACITY_BYTES, DEVICES};

/// Making a list shorter ends by then.
const SHRINK_TIME: Duration = Duration::from_secs(300);
/// In a list no longer than this everything is judged after each operation.
const SHORT: usize = 500;
/// In a longer one, each so many operations.
const JUDGED_EACH: usize = 1_000;
/// And the structure of the heap, which takes longest.
const VALIDATED_EACH: usize = 10_000;

/// What a list is run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub strategy: String,
    /// Real bytes, or addresses only.
    pub real_bytes: bool,
    /// Streams do what they are given at once, or stand still until they are told.
    #[serde(default)]
    pub at_once: bool,
    /// So many blocks are live at most.
    pub most_live: usize,
    /// Options and their values.
    pub options: Vec<(String, String)>,
}

/// A list of operations and what it is run on.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    pub header: Header,
    pub operations: Vec<Operation>,
}

impl Header {
    /// One with random options.
    pub fn draw(random: &mut Random, pool_type: PoolType, real_bytes: bool) -> Self {
        let choose = |(name, values): &(&str, [&str; 2])| {
            (name.to_string(), values[random.below(2) as usize].to_owned())
        };
        let options = START_OPTIONS.iter().map(choose).collect();
        let (at_once, most_live) = (false, Conduct::ALONE.most_live);
        Self { strategy: format!("{pool_type:?}"), real_bytes, at_once, most_live, options }
    }

    pub fn pool_type(&self) -> PoolType {
        let is_named = |known: &PoolType| format!("{known:?}") == self.strategy;
        PoolType::ALL.iter().copied().find(is_named).expect("a strategy")
    }

    /// What operations on it may be drawn of: also driver calls that fail, if `faults` is set.
    pub fn extent(&self, faults: bool) -> Extent {
        Extent { faults, is_elastic: self.pool_type() == PoolType::Elastic }
    }

    /// Starts a heap with a clock that counts in milliseconds.
    pub fn start(&self, clock: &Arc<AtomicU64>) -> Rig {
        let store = if self.real_bytes { StoreKind::RealBytes } else { StoreKind::AddressesOnly };
        let mut plan: Plan = Subject::new(self.pool_type(), store).plan();
        plan = plan.devices(DEVICES, CAPACITY_BYTES);
        plan.settings.log = LogLevel::Off;
        plan.machine.progress = if self.at_once { Progress::Automatic } else { Progress::Manual };
        for (name, value) in &self.options {
            genesis::config::set(&mut plan.settings, name, value, false).unwrap();
        }
        let clock = Arc::clone(clock);
        plan.clock(move || Duration::from_millis(clock.load(Relaxed))).start()
    }
}

impl List {
    pub fn draw(random: &mut Random, header: Header, (count, faults): (u64, bool)) -> Self {
        let extent = header.extent(faults);
        let operations = (0..count).map(|_| Operation::draw(random, extent)).collect();
        Self { header, operations }
    }

    /// Performs all, and panics if something is wrong. Afterwards nothing is live.
    pub fn run(&self) -> Rig {
        let clock = Arc::new(AtomicU64::new(0));
        let rig = self.header.start(&clock);
        let oracle = Arc::new(Oracle::new(DEVICES));
        let conduct = Conduct { most_live: self.header.most_live, ..Conduct::ALONE };
        let mut worker = Worker::new(rig.clone(), oracle, conduct, clock);
        let is_short = self.operations.len() <= SHORT;
        let is_due = |done: usize, each: usize| is_short || done.is_multiple_of(each);
        for (done, operation) in (1..).zip(&self.operations) {
            worker.perform(operation);
            if is_due(done, JUDGED_EACH) {
                worker.check();
            }
            if is_due(done, VALIDATED_EACH) {
                rig.check();
            }
        }
        worker.finish();
        rig.check();
        rig
    }

    /// What it fails with, if it does.
    ///
    /// It runs in a thread of its own, because a thread that failed may be within a tag or a pool.
    pub fn failure(&self, is_quiet: bool) -> Option<String> {
        quieten();
        let run = || {
            IS_QUIET.set(is_quiet);
            self.run().finish();
        };
        let ran = thread::scope(|scope| scope.spawn(run).join());
        ran.err().map(|panic| message(panic.as_ref()))
    }

    /// The shortest list of those operations that still fails so, as far as it is found in time. Runs
    /// that fail meanwhile print nothing.
    pub fn shrink(&self) -> Self {
        let began = Instant::now();
        let Some(failure) = self.failure(true) else { return self.clone() };
        let mut list = self.clone();
        let mut part = list.operations.len().div_ceil(2);
        while part > 0 && began.elapsed() < SHRINK_TIME {
            let before = list.operations.len();
            list.leave_out_parts(part, &kind(&failure), began);
            let is_done = list.operations.len() == before;
            part = match part {
                1 if is_done => 0,
                1 => 1,
                _ => part.div_ceil(2).min(list.operations.len().div_ceil(2).max(1)),
            };
        }
        list
    }

    /// Leaves out each `part` operations that are not needed, the last ones first.
    fn leave_out_parts(&mut self, part: usize, wanted: &str, began: Instant) {
        let mut end = self.operations.len();
        while end > 0 && began.elapsed() < SHRINK_TIME {
            let start = end.saturating_sub(part);
            let mut shorter = self.clone();
            shorter.operations.drain(start..end);
            if shorter.failure(true).is_some_and(|failure| kind(&failure) == wanted) {
                *self = shorter;
            }
            end = start;
        }
    }

    /// The lines of its file, the first of which say in `#` comments what it showed.
    pub fn to_text(&self, comment: &str) -> String {
        let mut text = String::new();
        for line in comment.lines() {
            writeln!(text, "# {line}").unwrap();
        }
        writeln!(text, "{}", serde_json::to_string(&self.header).unwrap()).unwrap();
        for operation in &self.operations {
            writeln!(text, "{}", serde_json::to_string(operation).unwrap()).unwrap();
        }
        text
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let header = read_line(lines.next().expect("a header"), path);
        let operations = lines.map(|line| read_line(line, path)).collect();
        Self { header, operations }
    }
}

fn read_line<T: DeserializeOwned>(line: &str, path: &Path) -> T {
    let read = serde_json::from_str(line);
    read.unwrap_or_else(|error| panic!("{}: {error} in {line}", path.display()))
}

/// The beginning of what a failure says, without its numbers: the same defect mostly says the same.
fn kind(failure: &str) -> String {
    failure.chars().filter(|letter| letter.is_ascii_alphabetic()).take(12).collect()
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
    text.unwrap_or_else(|| "a panic".to_owned())
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// From now on, panics of threads that ask for it print nothing.
fn quieten() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
}
