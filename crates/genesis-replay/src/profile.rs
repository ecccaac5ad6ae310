//! A replay under the library's profiler, instead of a measured one: one pass. The profiler is told
//! of iterations and writes its profile to a file. Blocks that the program never frees are live in
//! it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::Replay;
use crate::error::Result;
use crate::job::{Job, Progress};

/// A trace to replay under the profiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileJob {
    /// The replay: one pass on one thread, without samples, whatever it says of these.
    pub job: Job,
    /// Where to write the profile, in the form that the name ends in.
    pub output: PathBuf,
}

/// What such a replay found, apart from the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiled {
    /// Calls made.
    pub calls: u64,
    /// Requests refused because memory was short.
    pub failures: u64,
    /// Records left out because their operation is newer than this program.
    pub unknown_records: u64,
    /// The damage of a damaged trace, of which only the records before were replayed.
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
}
