//! Training runs under PyTorch: two models with four allocators, each in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::child::{self, Finished};
use crate::folder::Folder;
use crate::report::{Outcome, Training};
use crate::sections::Found;

/// The models of `training.py`, and how a report calls them.
const MODELS: [(&str, &str); 2] = [("gpt2", "GPT-2 class, 124 M"), ("llama", "Llama class, 1.1 B")];
/// The allocators of `training.py`, and how a report calls them.
const ALLOCATORS: [(&str, &str); 4] = [
    ("native", "PyTorch native"),
    ("expandable", "PyTorch expandable segments"),
    ("plain", "Genesis by two symbols"),
    ("enabled", "genesis.torch.enable()"),
];
/// The most bytes that an allocator may reserve, if the device has as many: enough that batches
/// differ, and little enough that the largest is found in seconds.
const LIMIT_BYTES: u64 = 64 << 30;
/// Importing PyTorch may take this long.
const IMPORT_TIME: Duration = Duration::from_secs(60);
/// A run with less time than this is not started.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// The Python to use: the one asked for, else `python3`.
pub(crate) fn find(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(|| PathBuf::from("python3"), Path::to_owned)
}

/// Every model under every allocator, as far as `limit` allows.
pub(crate) fn training(folder: &Folder, python: &Path, limit: Duration) -> Found<Vec<Training>> {
    let budget = Budget::new(Instant::now(), limit);
    if let Err(reason) = can_train(folder, python, budget.grant(Instant::now(), IMPORT_TIME)) {
        return Found::skipped(format!("Skipped: {reason}."));
    }
    let mut found = Found { result: Some(Vec::new()), notes: notes(folder) };
    let mut left = MODELS.len() * ALLOCATORS.len();
    for (model, model_name) in MODELS {
        for (allocator, allocator_name) in ALLOCATORS {
            let granted = budget.share(Instant::now(), left);
            left -= 1;
            eprintln!("  {model_name}, {allocator_name} (at most {:.0} s)", granted.as_secs_f64());
            let outcome = run(folder, python, [model, allocator], granted);
            found.result.get_or_insert_default().push(Training {
                model: model_name.to_owned(),
                allocator: allocator_name.to_owned(),
                outcome,
            });
        }
    }
    found
}

fn notes(folder: &Folder) -> Vec<String> {
    let mut notes = vec![
        "A batch fits if eight steps of varying lengths run in it from an empty cache, within the \
         same limit for all."
            .to_owned(),
    ];
    if folder.simulated {
        notes.push(
            "On the simulated driver kernels do nothing: times are those of the host alone; \
             memory and batches are what the allocators make of the real requests."
                .to_owned(),
        );
    }
    notes
}

/// An error unless PyTorch is installed and sees a device.
pub(crate) fn can_train(folder: &Folder, python: &Path, limit: Duration) -> Result<(), String> {
    const SCRIPT: &str = "import torch; assert torch.version.cuda, 'this PyTorch has no CUDA'; \
                          assert torch.cuda.is_available(), 'PyTorch sees no device'";
    let mut command = command(folder, python);
    command.args(["-c", SCRIPT]);
    let finished = child::run(command, limit)?;
    if finished.is_success() {
        return Ok(());
    }
    Err(format!("no PyTorch with CUDA can be used ({})", finished.reason()))
}

/// A command line of `python` that finds Genesis's package and library.
pub(crate) fn command(folder: &Folder, python: &Path) -> Command {
    let mut command = folder.command(python);
    command.env("GENESIS_LIBRARY", folder.path("lib/libgenesis.so"));
    // PyTorch itself may be found by what is set already.
    let before = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let paths = [folder.path("python")].into_iter().chain(std::env::split_paths(&before));
    if let Ok(paths) = std::env::join_paths(paths) {
        command.env("PYTHONPATH", paths);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    if folder.simulated {
        folder.preload_simulated(&mut command);
        // The cost of the race detector is no part of an allocator's time.
        command.env("SIMCUDA_RACES", "off");
    }
    command
}

fn run(folder: &Folder, python: &Path, what: [&str; 2], limit: Duration) -> Outcome {
    let failed = |error: String| Outcome { error: Some(error), ..Outcome::default() };
    if limit < LEAST_TIME {
        return failed("no time was left".to_owned());
    }
    let program = match folder.file("programs/training.py") {
        Ok(program) => program,
        Err(reason) => return failed(reason),
    };
    let [model, allocator] = what;
    let mut command = command(folder, python);
    command.arg(program).args([model, allocator]);
    command.args(["--limit-bytes", &LIMIT_BYTES.to_string()]);
    // The program looks at the clock between steps, and the first ones are slow.
    command.args(["--seconds", &limit.mul_f64(0.7).as_secs_f64().to_string()]);
    match allocator {
        "expandable" => command.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        "native" => &mut command,
        _ => command.env("GENESIS_MEMORY_LIMIT", LIMIT_BYTES.to_string()),
    };
    match child::run(command, limit) {
        Ok(finished) => outcome(&finished),
        Err(error) => failed(error),
    }
}

/// What a run has printed, also if it failed.
fn outcome(finished: &Finished) -> Outcome {
    let said = finished.output.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let mut outcome: Outcome = said.unwrap_or_default();
    if !finished.is_success() {
        outcome.error = Some(finished.reason());
    }
    outcome
}
