//! The results of a run, in the form of the JSON file.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::assumptions::Finding;
use crate::costs::Costs;
use crate::facts::Fact;
use crate::heap::{self, Trial};

/// What was run, on what, and when.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// True if the driver was simcuda and there was no GPU.
    pub(crate) simulated: bool,
    /// Then the price list by which driver calls take time.
    #[serde(default)]
    pub(crate) prices: Option<String>,
    pub(crate) gpu: String,
    pub(crate) memory_bytes: u64,
    /// Of this, in use before anything was asked: the driver's own, and other programs'.
    pub(crate) used_bytes: u64,
    /// The version of CUDA that the driver is of.
    pub(crate) cuda: String,
    /// The release of the driver, if the system says it.
    pub(crate) driver: Option<String>,
    pub(crate) genesis: String,
    pub(crate) system: String,
    pub(crate) date: String,
}

/// By what something was measured.
impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("unknown");
        let Self { gpu, cuda, genesis, date, .. } = self;
        write!(formatter, "{gpu}, driver {driver}, CUDA {cuda}, Genesis {genesis}, {date}")
    }
}

/// One section of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Section<T> {
    /// By what it was measured.
    #[serde(default)]
    pub(crate) made: String,
    pub(crate) seconds: f64,
    pub(crate) limit_seconds: f64,
    /// Remarks on the result, or why there is none.
    pub(crate) notes: Vec<String>,
    pub(crate) result: Option<T>,
}

impl<T> Default for Section<T> {
    fn default() -> Self {
        let (made, notes) = (String::new(), Vec::new());
        Self { made, seconds: 0.0, limit_seconds: 0.0, notes, result: None }
    }
}

/// How a suite of tests went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Suite {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<Failed>,
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) name: String,
    /// What it printed.
    pub(crate) message: String,
}

/// A training run: one model under one allocator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Training {
    pub(crate) model: String,
    pub(crate) allocator: String,
    pub(crate) outcome: Outcome,
}

/// What a training run came to; absent figures were not reached.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) pytorch: Option<String>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) batch: Option<u64>,
    /// Median time of a step, all sequences of one length.
    pub(crate) fixed_step_ms: Option<f64>,
    /// Median time of a step, lengths varying, the slowest, and how many there were.
    pub(crate) varied_step_ms: Option<f64>,
    pub(crate) slowest_varied_step_ms: Option<f64>,
    pub(crate) varied_steps: Option<u64>,
    /// The first steps from an empty cache, how many, and the same again: their time together.
    pub(crate) first_steps: Option<u64>,
    pub(crate) first_steps_ms: Option<f64>,
    pub(crate) same_steps_again_ms: Option<f64>,
    /// Of the first, in the driver.
    pub(crate) first_steps_driver_ms: Option<f64>,
    pub(crate) peak_allocated_bytes: Option<u64>,
    pub(crate) peak_reserved_bytes: Option<u64>,
    /// The largest batch known to fit within the limit.
    pub(crate) largest_batch: Option<u64>,
    /// The smallest batch known not to.
    pub(crate) smallest_too_large: Option<u64>,
    /// What went wrong, if anything did.
    pub(crate) error: Option<String>,
}

/// A check made by a program of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) detail: String,
}

/// One program under one allocator in one room.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Replay {
    pub(crate) program: String,
    pub(crate) allocator: String,
    /// Threads that each run the whole program at once, on streams of their own.
    pub(crate) threads: u32,
    /// The most that may be held, in live peaks.
    pub(crate) room: Option<f64>,
    pub(crate) figures: Option<Figures>,
    /// What went wrong, if anything did.
    pub(crate) error: Option<String>,
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) live_peak_bytes: u64,
    /// The most that was held in any pass.
    pub(crate) reserved_peak_bytes: u64,
    /// The time in the allocator and the driver: of the first pass, and of the median later one.
    pub(crate) first_ns: f64,
    pub(crate) later_ns: f64,
    pub(crate) later_ns_per_call: f64,
    /// Requests refused in all passes.
    pub(crate) failures: u64,
}

/// The checks of one mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) title: String,
    /// Those that were made.
    pub(crate) checks: Vec<Check>,
    /// What ended the program before its end.
    pub(crate) error: Option<String>,
}

/// A whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) facts: Section<Vec<Fact>>,
    pub(crate) assumptions: Section<Vec<Finding>>,
    pub(crate) conformance: Section<Suite>,
    pub(crate) heap: Section<Vec<Trial>>,
    pub(crate) costs: Section<Costs>,
    pub(crate) static_runtime: Section<Vec<Check>>,
    pub(crate) replays: Section<Vec<Replay>>,
    pub(crate) pytorch_checks: Section<Vec<Checked>>,
    pub(crate) training: Section<Vec<Training>>,
}

impl Report {
    /// The time of all sections together, also of those kept from earlier runs.
    pub(crate) fn seconds(&self) -> f64 {
        let of_the_driver = self.facts.seconds + self.assumptions.seconds + self.costs.seconds;
        let of_genesis = self.conformance.seconds + self.heap.seconds + self.static_runtime.seconds;
        let of_programs =
            self.replays.seconds + self.pytorch_checks.seconds + self.training.seconds;
        of_the_driver + of_genesis + of_programs
    }

    /// Returns true if the run found a fault of Genesis or of what it is built on.
    pub(crate) fn has_defects(&self) -> bool {
        let suite = self.conformance.result.iter().any(|suite| !suite.failed.is_empty());
        // A strategy without a trial did not end.
        let trials = self.heap.result.iter().any(|trials| {
            trials.len() < heap::strategies().count()
                || trials.iter().any(|trial| trial.wrong_blocks > 0)
        });
        let checks = self.static_runtime.result.iter().flatten().any(|check| !check.passed);
        let refuted = self.assumptions.result.iter().flatten().any(|finding| finding.is_defect);
        let pytorch = self.pytorch_checks.result.as_deref().is_some_and(differs_from_pytorch);
        suite || trials || checks || refuted || pytorch
    }
}

/// True if a check failed under Genesis that PyTorch's own allocator passes.
fn differs_from_pytorch(modes: &[Checked]) -> bool {
    let [own, others @ ..] = modes else { return false };
    let passes = |name: &str| own.checks.iter().any(|check| check.name == name && check.passed);
    others.iter().any(|mode| {
        mode.error.is_some() || mode.checks.iter().any(|check| !check.passed && passes(&check.name))
    })
}

/// Today's date in UTC, as in `2026-01-31`.
pub(crate) fn today() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date((since_epoch.as_secs() / 86_400) as i64)
}

/// The date so many days after 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", 2013).
fn date(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (days, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (19_782, "2024-02-29"), (20_454, "2026-01-01")]
        {
            assert_eq!(date(days), text);
        }
    }

    fn mode(passed: &[bool], error: Option<&str>) -> Checked {
        let check = |(number, passed): (usize, &bool)| Check {
            name: number.to_string(),
            passed: *passed,
            detail: String::new(),
        };
        Checked {
            title: String::new(),
            checks: passed.iter().enumerate().map(check).collect(),
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn a_defect_is_what_pytorchs_own_allocator_passes() {
        let own = mode(&[true, false], None);
        assert!(!differs_from_pytorch(&[own.clone(), mode(&[true, false], None)]));
        assert!(differs_from_pytorch(&[
            own.clone(),
            mode(&[true, true], None),
            mode(&[false, true], None)
        ]));
        assert!(differs_from_pytorch(&[own.clone(), mode(&[true], Some("ended by signal 11"))]));
        assert!(!differs_from_pytorch(&[own]) && !differs_from_pytorch(&[]));
    }
}
