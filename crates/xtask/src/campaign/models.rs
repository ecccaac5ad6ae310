//! Models of threads: what stands in `*_models.rs` beside the code, and whole heaps
//! (`tests/random_operations/schedules.rs`).

use std::time::{Duration, Instant};

use steps::{Outcome, Step, cargo, run, target_folder};

use super::Next;

/// Seeds in one run of the tests, between which the time is looked at.
const SEEDS_AT_ONCE: u64 = 1_000;

/// First in every order, by loom; then drawn schedules for so long, by shuttle.
pub(super) fn run_all(time: Duration) -> Outcome {
    run(&test("loom", &["--lib", "models::"]))?;
    let (began, next) = (Instant::now(), Next::of("next_schedule")?);
    loop {
        let first = next.get();
        let end = first + SEEDS_AT_ONCE;
        let seeds = format!("{first}..{end}");
        let small = test("shuttle", &["--lib", "models::"]);
        run(&small.set("GENESIS_TEST_SCHEDULES", &seeds))?;
        let whole = test("shuttle", &["--test", "random_operations", "schedules::"]);
        run(&whole.set("GENESIS_TEST_SCHEDULES", &seeds))?;
        next.set(end)?;
        if began.elapsed() >= time {
            return Ok(());
        }
    }
}

/// In a folder of its own, or else every other build would compile the library anew.
fn test(feature: &str, arguments: &[&str]) -> Step {
    let mut test = cargo(&["test", "--package", "genesis", "--features", feature]);
    test.extend(["--target-dir".into(), target_folder().join("models")]);
    test.extend(arguments);
    test
}
