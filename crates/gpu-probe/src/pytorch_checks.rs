//! What PyTorch computes over Genesis: `programs/pytorch_checks.py`, in three modes.
//!
//! The first run has PyTorch's own allocator and shows what PyTorch itself does on this device. A check
//! that it passes must pass under Genesis, too.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::child;
use crate::folder::{Folder, Scratch};
use crate::python;
use crate::report::Check;
use crate::sections::Found;

/// A mode of the program.
struct Mode {
    /// How a page calls it.
    title: &'static str,
    argument: &'static str,
    /// True if `cudaMalloc` is Genesis's.
    is_preloaded: bool,
}

const MODES: [Mode; 3] = [
    Mode { title: "PyTorch's own allocator", argument: "native", is_preloaded: false },
    Mode { title: "genesis.torch.enable()", argument: "enabled", is_preloaded: false },
    Mode { title: "its own, under the preload", argument: "native", is_preloaded: true },
];
const IMPORT_TIME: Duration = Duration::from_secs(60);

/// The checks of one mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) title: String,
    /// Those that were made.
    pub(crate) checks: Vec<Check>,
    /// What ended the program before its end.
    pub(crate) error: Option<String>,
}

/// Runs the program in every mode.
pub(crate) fn run(folder: &Folder, python: &Path, limit: Duration) -> Found<Vec<Checked>> {
    if folder.simulated {
        return Found::skipped("Skipped: kernels do nothing on the simulated driver.");
    }
    let budget = Budget::new(Instant::now(), limit);
    let import_time = budget.grant(Instant::now(), IMPORT_TIME);
    if let Err(reason) = python::can_train(folder, python, import_time) {
        return Found::skipped(format!("Skipped: {reason}."));
    }
    let scratch = match Scratch::make() {
        Ok(scratch) => scratch,
        Err(reason) => return Found::skipped(reason),
    };
    let modes = MODES.iter().enumerate().map(|(done, mode)| {
        let granted = budget.share(Instant::now(), MODES.len() - done);
        let made = run_mode(folder, python, mode, &scratch, granted);
        let (checks, error) = made.unwrap_or_else(|reason| (Vec::new(), Some(reason)));
        Checked { title: mode.title.to_owned(), checks, error }
    });
    Found { result: Some(modes.collect()), notes: Vec::new() }
}

/// The checks made, and what ended the program early.
fn run_mode(
    folder: &Folder,
    python: &Path,
    mode: &Mode,
    scratch: &Scratch,
    limit: Duration,
) -> Result<(Vec<Check>, Option<String>), String> {
    let mut command = python::command(folder, python);
    command.arg(folder.file("programs/pytorch_checks.py")?).arg(mode.argument);
    command.arg("--losses").arg(scratch.path().join("losses.json"));
    if mode.is_preloaded {
        command.env("LD_PRELOAD", folder.file("lib/libgenesis_preload.so")?);
    }
    let finished = child::run(command, limit)?;
    let said = finished.output.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let error = (!finished.is_success()).then(|| finished.reason());
    Ok((said.unwrap_or_default(), error))
}

/// True if a check failed under Genesis that PyTorch's own allocator passes.
pub(crate) fn has_defects(modes: &[Checked]) -> bool {
    let [own, others @ ..] = modes else { return false };
    let passes = |name: &str| own.checks.iter().any(|check| check.name == name && check.passed);
    others.iter().any(|mode| {
        mode.error.is_some() || mode.checks.iter().any(|check| !check.passed && passes(&check.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!has_defects(&[own.clone(), mode(&[true, false], None)]));
        assert!(has_defects(&[own.clone(), mode(&[true, true], None), mode(&[false, true], None)]));
        assert!(has_defects(&[own.clone(), mode(&[true], Some("ended by signal 11"))]));
        assert!(!has_defects(&[own]) && !has_defects(&[]));
    }
}
