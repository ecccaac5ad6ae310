//! Small changes of the code, of which each must fail a test: with cargo-mutants, in shards.
//!
//! Only the unit tests judge: they take seconds, and code whose unit tests do not notice a change is
//! known by other tests from afar only. A profile of its own compiles a change in two seconds, and
//! tests of layers that such code knows nothing of are left out, which take longer than all others.

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
/// Code that only models compile, or only a feature.
const OTHERS: [&str; 2] = ["**/*_models.rs", "src/order/omission.rs"];
/// In so many shards, of which each has changes of all files: each takes some minutes, most of them
/// to compile what it begins with.
const SHARDS: u64 = 64;
/// A change that makes a test wait for ever is noticed after so many seconds.
const TIMEOUT_SECONDS: &str = "60";
/// The tests that know nothing of [`FILES`].
const LEFT_OUT: [&str; 5] = ["driver::", "observe::", "callsite::", "process::", "config::"];

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

/// The tests are not run without a change first: the suites do that.
fn of_shard(program: &Path, shard: &str, files: &[String]) -> Result<Step, String> {
    let mut mutants = Step::new(program, &["mutants", "--package=genesis", "--profile=mutants"]);
    mutants.extend(["--jobs=1", "--baseline=skip", "--timeout", TIMEOUT_SECONDS]);
    mutants.extend(["--no-shuffle", "--sharding=round-robin", "--shard", shard, "--output"]);
    mutants.extend([folder("mutants")?]);
    mutants.extend(files.iter().flat_map(|file| ["--file", file]));
    mutants.extend(OTHERS.iter().flat_map(|file| ["--exclude", file]));
    // Also for the build: without it all other test programs are compiled for each change.
    mutants.extend(["--cargo-arg=--lib", "--", "--"]);
    mutants.extend(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
    Ok(mutants.set("CARGO_TARGET_DIR", folder("mutants/built")?))
}
