//! Small changes of the code, of which each must fail a test: with cargo-mutants, in shards.
//!
//! Only the unit tests judge: they take seconds, and code whose unit tests do not notice a change is
//! known by other tests from afar only.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use steps::{Outcome, Step, run};

use super::{Left, Next, folder, toolchains};

/// The program, and the version that is installed.
const NAME: &str = "cargo-mutants";
const VERSION: &str = "27.1.0";
/// The files whose code is changed.
const FILES: [&str; 3] = ["src/strategy/**", "src/order/**", "src/memory/**"];
/// In so many shards: each takes a few minutes.
const SHARDS: u64 = 256;
/// A change that makes a test wait for ever is noticed after so many seconds.
const TIMEOUT_SECONDS: &str = "120";

/// Changes the code in small ways, and lists the changes that no unit test notices
#[derive(Debug, Args)]
pub(crate) struct MutantsArguments {
    /// Which part of the changes, such as 0/64
    #[arg(long)]
    shard: String,
    /// Files whose code is changed
    #[arg(default_values_t = FILES.map(str::to_owned))]
    files: Vec<String>,
}

/// Changes one shard of the code.
pub(crate) fn mutants(arguments: &MutantsArguments) -> Outcome {
    run(&of_shard(&toolchains::program(NAME, VERSION)?, &arguments.shard, &arguments.files)?)
}

/// One shard after the other, for so long. Those after one with a change that nobody noticed are run
/// too.
pub(super) fn run_for(time: Duration, left: &mut Left) -> Outcome {
    let program = match toolchains::program(NAME, VERSION) {
        Ok(program) => program,
        Err(reason) => {
            left.lacks("mutants", Err(reason));
            return Ok(());
        }
    };
    let (began, next) = (Instant::now(), Next::of("next_shard")?);
    let mut outcome = Ok(());
    while began.elapsed() < time {
        let shard = next.get() % SHARDS;
        let step = of_shard(&program, &format!("{shard}/{SHARDS}"), &FILES.map(str::to_owned))?;
        outcome = outcome.and(run(&step));
        next.set(shard + 1)?;
    }
    outcome
}

fn of_shard(program: &Path, shard: &str, files: &[String]) -> Result<Step, String> {
    let mut mutants = Step::new(program, &["mutants", "--package", "genesis", "--no-shuffle"]);
    mutants.extend(["--jobs", "1", "--timeout", TIMEOUT_SECONDS, "--shard", shard, "--output"]);
    mutants.extend([folder("mutants")?]);
    mutants.extend(files.iter().flat_map(|file| ["--file", file]));
    mutants.extend(["--", "--lib"]);
    // Building is most of the time.
    Ok(mutants.set("CARGO_PROFILE_DEV_DEBUG", "0"))
}
