//! One replay, described as plain data, and run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::{Replay, loop_ns_per_call};
use crate::error::{Error, Result};
use crate::gtr;
use crate::library::Library;
use crate::program::Program;
use crate::report::Report;

/// A trace to replay, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The trace's file.
    pub trace: PathBuf,
    /// The library, as [`crate::library::locate`] found it.
    pub library: PathBuf,
    /// Settings that differ from the environment's: variables and values.
    pub settings: Vec<(String, String)>,
    /// The most bytes that may be reserved on each device; `None` for no limit.
    pub limit_bytes: Option<u64>,
    /// How many threads replay the whole trace at once; at least 1.
    pub threads: usize,
    /// How many passes follow the first.
    pub warm_passes: usize,
    /// How many samples to take in the first pass (of a single thread).
    pub sample_count: usize,
}

/// Called with the number of passes done and of all passes.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

impl Job {
    /// Runs the job in this process, under the settings of its environment: the job's own are for
    /// [`Self::run_apart`].
    pub fn run(&self, progress: Progress<'_>) -> Result<Report> {
        let (program, damage) = self.prepare()?;
        let library = self.open_library(&program)?;
        let report = self.measure(&library, &program, progress)?;
        Ok(Report { damage, ..report })
    }

    /// The trace as a program, and its damage if it is damaged.
    pub fn prepare(&self) -> Result<(Program, Option<String>)> {
        let trace = gtr::recover_file(&self.trace)?;
        let program = Program::prepare(&trace.records).map_err(|error| Error {
            message: format!("{}: {error}", self.trace.display()),
            ..error
        })?;
        Ok((program, trace.damage.map(|damage| damage.message)))
    }

    /// The library, under the job's limit on each device that `program` uses.
    pub(crate) fn open_library(&self, program: &Program) -> Result<Library> {
        let library = Library::open(&self.library)?;
        self.check_devices(&library, program)?;
        if let Some(limit_bytes) = self.limit_bytes {
            for device in 0..program.device_count {
                library.set_memory_limit(device, limit_bytes)?;
            }
        }
        Ok(library)
    }

    fn check_devices(&self, library: &Library, program: &Program) -> Result<()> {
        let device_count = library.device_count()?;
        if program.device_count > device_count {
            return Err(Error::usage(format!(
                "{} uses {} devices, and there are {device_count}; GENESIS_SIM_DEVICES says \
                 how many are simulated",
                self.trace.display(),
                program.device_count
            )));
        }
        Ok(())
    }

    fn measure(
        &self,
        library: &Library,
        program: &Program,
        progress: Progress<'_>,
    ) -> Result<Report> {
        let threads = self.threads.max(1);
        let passes = self.warm_passes + 1;
        progress(0, passes);
        library.wait_for_plan()?;
        let mut replay = Replay::new(library, program, threads)?;
        let mut done = 0;
        let mut one_more = || {
            done += 1;
            progress(done, passes);
        };
        let mut measured = Vec::with_capacity(passes);
        let mut course = None;
        if threads == 1 {
            let (cold, sampled) = replay.sampled_pass(self.sample_count)?;
            one_more();
            measured.push(cold);
            course = Some(sampled);
        }
        measured.extend(replay.passes(passes - measured.len(), one_more)?);
        let warm = measured.split_off(1);
        let cold = measured[0];
        let fragmentation_ratio = course.as_ref().map(|course| course.fragmentation_ratio);
        let mut samples = course.map(|course| course.samples).unwrap_or_default();
        if self.sample_count == 0 {
            samples.clear();
        }
        Ok(Report {
            trace: trace_name(&self.trace),
            strategy: library.option("GENESIS_POOL_TYPE")?,
            driver_prices: driver_prices(library)?,
            backend: library.backend()?,
            version: library.version(),
            threads,
            calls: program.calls.len() as u64,
            iterations: program.iteration_ends.len() as u64,
            unknown_records: program.unknown_records,
            damage: None,
            live_peak_bytes: program.live_peak_bytes.saturating_mul(threads as u64),
            live_peak_rounded_bytes: program.live_peak_rounded_bytes.saturating_mul(threads as u64),
            loop_ns_per_call: loop_ns_per_call(program)?,
            cold,
            warm,
            fragmentation_ratio,
            samples,
        })
    }
}

/// The name of the prices that the library's driver time is made of; `None` if it is measured.
fn driver_prices(library: &Library) -> Result<Option<String>> {
    if let Some(prices) = library.stand_in_prices() {
        return Ok(Some(prices));
    }
    match &*library.backend()? {
        "cuda" => Ok(None),
        // A library may be too old to have the option.
        _ => Ok(library.option("GENESIS_SIM_PRICES").ok()),
    }
}

/// The name of the trace in `path`: its file name without `.gtr` and `.zst`.
pub fn trace_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    name.strip_suffix(".gtr").unwrap_or(name).to_owned()
}
