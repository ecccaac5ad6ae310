//! A replay that is looked at instead of measured: one pass under the library's own profiler, which
//! is told of iterations and writes what it saw to a file. What the program leaves live is still
//! live in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::Replay;
use crate::error::Result;
use crate::job::{Job, Progress, Task, run_apart};

/// A trace to replay under the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileJob {
    /// The replay; of its passes there is one, on one thread, without samples.
    pub job: Job,
    /// Where to write the profile, in the form that the name ends in.
    pub output: PathBuf,
}

/// What such a replay found beside the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiled {
    /// Calls made.
    pub calls: u64,
    /// Requests refused for want of memory.
    pub failures: u64,
    /// Records left out because their operation is newer than this program.
    pub unknown_records: u64,
    /// Where the trace is damaged, and only what stands before was replayed.
    pub damage: Option<String>,
}

impl ProfileJob {
    /// Runs the job in this process, as [`Job::run`] does.
    pub fn run(&self, progress: Progress<'_>) -> Result<Profiled> {
        let (program, damage) = self.job.prepare()?;
        let library = self.job.open_library(&program)?;
        let profiler = library.profiler()?;
        progress(0, 1);
        let mut replay = Replay::new(&library, &program, 1)?;
        profiler.start()?;
        let failures = replay.told_pass(|number| profiler.end_iteration(number))?;
        profiler.stop()?;
        profiler.write(&self.output)?;
        progress(1, 1);
        Ok(Profiled {
            calls: program.calls.len() as u64,
            failures,
            unknown_records: program.unknown_records,
            damage,
        })
    }

    /// Runs the job in a process of its own, as [`Job::run_apart`] does.
    pub fn run_apart(&self, arguments: &[&str]) -> Result<Profiled> {
        run_apart(&Task::Profile(self.clone()), &self.job.settings, arguments)
    }
}
