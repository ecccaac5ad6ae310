//! What the library reads, and C calls, by coverage-guided fuzzing (`fuzz/`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use steps::{Outcome, Step, root, run};

use super::folder;

/// The crate of the fuzz targets, and its targets.
const FUZZ: &str = "fuzz";
const FUZZ_TARGETS: [&str; 9] = [
    "calls",
    "handles",
    "objects",
    "options",
    "plan",
    "preload_report",
    "profile",
    "register",
    "trace",
];
/// Has the compiler count the edges that a run takes, for libFuzzer. Every compiler has these
/// passes; cargo-fuzz, which passes the same flags, asks for an unreleased one.
const COVERAGE: [&str; 6] = [
    "--cfg fuzzing -Clink-dead-code",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Under AddressSanitizer each target gets so many inputs, those of its corpora first.
const SOME_INPUTS: &str = "-runs=10000";
/// What is compiled with other flags needs a target of its own, or else these would also be in the
/// macros that the compiler runs.
pub(super) const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// Each target for its share of the time.
pub(super) fn run_for(time: Duration) -> Outcome {
    let each = time / FUZZ_TARGETS.len() as u32;
    let built = folder("fuzz")?;
    run(&build(&built, env!("CARGO"), &[], &[]))?;
    let limit = format!("-max_total_time={}", each.as_secs());
    FUZZ_TARGETS.into_iter().try_for_each(|target| run(&fuzz(&built, target, &limit)?))
}

/// Each target under AddressSanitizer on [`SOME_INPUTS`], with `variables`; those after one that
/// failed too.
pub(super) fn run_under_addresses(variables: &[(&str, &str)]) -> Outcome {
    let built = folder("fuzz-address")?;
    run(&build(&built, "cargo", &["+nightly"], &["-Zsanitizer=address"]))?;
    let mut outcome = Ok(());
    for target in FUZZ_TARGETS {
        let fuzz = fuzz(&built, target, SOME_INPUTS)?;
        let set = |step: Step, (name, value): &(&str, &str)| step.set(name, value);
        outcome = outcome.and(run(&variables.iter().fold(fuzz, set)));
    }
    outcome
}

/// Builds the targets into the folder `built`, with `flags` more for the compiler.
fn build(built: &Path, cargo: &str, toolchain: &[&str], flags: &[&str]) -> Step {
    let mut build = Step::new(cargo, toolchain);
    build.extend(["build", "--release", "--target", TARGET, "--manifest-path"]);
    build.extend([root().join(FUZZ).join("Cargo.toml"), "--target-dir".into(), built.into()]);
    build.set("RUSTFLAGS", [&COVERAGE, flags].concat().join(" "))
}

/// Runs `target` until `limit`; inputs worth keeping go to the corpus in the target folder.
fn fuzz(built: &Path, target: &str, limit: &str) -> Result<Step, String> {
    let program: PathBuf = built.join(TARGET).join("release").join(target);
    let mut fuzz = Step::new(program, &[limit]);
    let corpus = folder(&format!("fuzz/corpus/{target}"))?;
    fuzz.extend([corpus, root().join(FUZZ).join("corpus").join(target)]);
    let artifacts = built.join(format!("found-{target}-"));
    fuzz.extend([
        format!("-artifact_prefix={}", artifacts.display()),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
        "-rss_limit_mb=4096".to_owned(),
        "-timeout=20".to_owned(),
    ]);
    Ok(fuzz)
}
