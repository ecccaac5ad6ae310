//! Recorded programs again and again on one heap (`tests/soak.rs`): what it holds does not grow.

use std::time::Duration;

use steps::{Outcome, cargo, run};

/// The strategies that the test runs, one after the other.
const STRATEGIES: u32 = 4;

/// Each strategy for its share of the time.
pub(super) fn run_for(time: Duration) -> Outcome {
    let seconds = (time / STRATEGIES).as_secs().to_string();
    let test = cargo(&["test", "--package", "genesis", "--test", "soak", "--", "--nocapture"]);
    run(&test.set("GENESIS_TEST_SOAK_SECONDS", seconds))
}
