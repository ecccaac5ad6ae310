//! What PyTorch computes over Genesis: `programs/pytorch_checks.py`, in three modes.
//!
//! The first run has PyTorch's own allocator and shows what PyTorch itself does on this device. A check
//! that it passes must pass under Genesis, too.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::child;
use crate::folder::{Folder, Scratch};
use crate::python;
use crate::report::{Check, Checked};
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
