//! `cargo xtask campaign`: tests that look for what nobody thought of. Each part runs for its share
//! of the time given, and goes on another time where it stopped:
//!
//! - lists of random operations, one for each number of a seed (`tests/random_operations.rs`); the
//!   next number is kept in `target/campaign/next_list`;
//! - steps of stream order left out, one by one (`tests/order_omissions.rs`);
//! - what the library reads, and C calls, by coverage-guided fuzzing (`fuzz/`); what was found
//!   worth keeping lies in `target/fuzz/corpus`.
//!
//! Mutants of the code (`cargo xtask mutants`) take far longer, and are run in shards of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use steps::{Outcome, Step, cargo, root, run, target_folder};

/// The crate of the fuzz targets, and its targets.
const FUZZ: &str = "fuzz";
const FUZZ_TARGETS: [&str; 5] = ["calls", "options", "profile", "register", "trace"];
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
/// Coverage needs a target of its own, or else it would be in the macros that the compiler runs.
const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};
/// Lists in one run of the test, between which the time is looked at.
const LISTS_AT_ONCE: u64 = 500;

/// A round on two processors.
const HOUR_MINUTES: u64 = 60;

/// Runs tests that look for unknown defects: random operations, omissions, fuzzing
#[derive(Debug, Args)]
pub(crate) struct CampaignArguments {
    /// How long, in minutes
    #[arg(long, default_value_t = HOUR_MINUTES)]
    minutes: u64,
}

impl Default for CampaignArguments {
    fn default() -> Self {
        Self { minutes: HOUR_MINUTES }
    }
}

/// Changes the code in small ways, and lists the changes that no test notices (needs
/// cargo-mutants)
#[derive(Debug, Args)]
pub(crate) struct MutantsArguments {
    /// Which part of the changes, such as 0/64
    #[arg(long)]
    shard: String,
    /// Files whose code is changed
    #[arg(default_values_t = ["src/strategy/**".to_owned(), "src/order/**".to_owned()])]
    files: Vec<String>,
}

/// Runs all, each part for its share of the time: lists half of it, fuzzing the rest.
pub(crate) fn run_all(arguments: &CampaignArguments) -> Outcome {
    let half = Duration::from_secs(arguments.minutes * 30);
    omissions()?;
    lists(half)?;
    fuzz(half / FUZZ_TARGETS.len() as u32)
}

/// Each step of stream order is left out in turn.
fn omissions() -> Outcome {
    run(&cargo(&["test", "--features", "genesis/ablations", "--test", "order_omissions"]))
}

/// Lists of random operations, from the first that no earlier run has had.
fn lists(time: Duration) -> Outcome {
    let (began, kept) = (Instant::now(), folder("campaign")?.join("next_list"));
    let mut next = fs::read_to_string(&kept).ok().and_then(|text| text.trim().parse().ok());
    while began.elapsed() < time {
        let first: u64 = next.unwrap_or(0);
        let end = first + LISTS_AT_ONCE;
        let mut test = cargo(&["test", "--test", "random_operations", "--", "--ignored"]);
        test.extend(["--exact", "round_of_short_lists"]);
        run(&test.set("GENESIS_TEST_LISTS", format!("{first}..{end}")))?;
        fs::write(&kept, end.to_string()).map_err(|error| error.to_string())?;
        next = Some(end);
    }
    Ok(())
}

/// Each fuzz target for so long.
fn fuzz(time: Duration) -> Outcome {
    let manifest = root().join(FUZZ).join("Cargo.toml");
    let built = folder("fuzz")?;
    let mut build = cargo(&["build", "--release", "--target", TARGET, "--manifest-path"]);
    build.extend([manifest, "--target-dir".into(), built.clone()]);
    run(&build.set("RUSTFLAGS", COVERAGE.join(" ")))?;
    for target in FUZZ_TARGETS {
        let corpus = folder(&format!("fuzz/corpus/{target}"))?;
        let mut fuzz = Step::new(built.join(TARGET).join("release").join(target), &[]);
        fuzz.extend([corpus, root().join(FUZZ).join("corpus").join(target)]);
        let artifacts = built.join(format!("found-{target}-"));
        fuzz.extend([
            format!("-max_total_time={}", time.as_secs()),
            format!("-artifact_prefix={}", artifacts.display()),
            "-print_final_stats=1".to_owned(),
            "-verbosity=0".to_owned(),
            "-rss_limit_mb=4096".to_owned(),
            "-timeout=20".to_owned(),
        ]);
        run(&fuzz)?;
    }
    Ok(())
}

/// Changes one shard of the code; the tests are those that take seconds.
pub(crate) fn mutants(arguments: &MutantsArguments) -> Outcome {
    let mut mutants = cargo(&["mutants", "--package", "genesis", "--jobs", "1", "--no-shuffle"]);
    mutants.extend(["--shard", &arguments.shard, "--output"]);
    mutants.extend([folder("mutants")?]);
    for file in &arguments.files {
        mutants.extend(["--file", file]);
    }
    mutants.extend(["--", "--lib", "--test", "heap_conformance", "--test", "random_operations"]);
    run(&mutants)
}

/// A folder of the build's, made if it is missing.
fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = target_folder().join(Path::new(name));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
