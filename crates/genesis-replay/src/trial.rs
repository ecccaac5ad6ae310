//! A replay that only asks whether memory is enough: passes up to the first request that fails, on a
//! simulated device of some size. Nothing is measured but the peak of what was held.

use serde::{Deserialize, Serialize};

use crate::engine::Replay;
use crate::error::Result;
use crate::job::Job;

/// The setting with the size of simulated devices.
const DEVICE_MEMORY: &str = "GENESIS_SIM_MEMORY";

/// A trace to try, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialJob {
    /// The replay: on one thread, without samples, whatever it says of these.
    pub job: Job,
    /// The memory of each device.
    pub device_bytes: u64,
}

/// What it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The strategy in force.
    pub strategy: String,
    /// The first request that failed; `None` if every pass completed.
    pub failed: Option<FailedCall>,
    /// The most that one device held.
    pub reserved_peak_bytes: u64,
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCall {
    /// The pass, counted from 1.
    pub pass: usize,
    /// The index of the call in the program.
    pub call: usize,
}

impl TrialJob {
    /// The job's settings and the device's size, which counts more.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let size = (DEVICE_MEMORY.to_owned(), self.device_bytes.to_string());
        self.job.settings.iter().cloned().chain([size]).collect()
    }

    /// Runs the job in this process, under the settings of its environment.
    pub fn run(&self) -> Result<Trial> {
        let (program, _) = self.job.prepare()?;
        let library = self.job.open_library(&program)?;
        let mut replay = Replay::new(&library, &program, 1)?;
        let failed = (1..=self.job.warm_passes + 1)
            .find_map(|pass| Some(FailedCall { pass, call: replay.pass_to_failure()? }));
        let mut reserved_peak_bytes = 0;
        for device in 0..program.device_count {
            let peak_bytes = library.stats(device)?.reserved_bytes.peak;
            reserved_peak_bytes = peak_bytes.max(reserved_peak_bytes);
        }
        Ok(Trial { strategy: library.option("GENESIS_POOL_TYPE")?, failed, reserved_peak_bytes })
    }
}
