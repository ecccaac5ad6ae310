//! What the library reads, and C calls, by coverage-guided fuzzing (`fuzz/`).

use std::time::Duration;

use steps::{Outcome, Step, cargo, root, run};

use super::folder;

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
            format!("-max_total_time={}", each.as_secs()),
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
