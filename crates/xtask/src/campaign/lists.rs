//! Lists of random operations (`tests/random_operations.rs`), and steps of stream order left out
//! (`tests/order_omissions.rs`).

use std::time::{Duration, Instant};

use steps::{Outcome, cargo, run};

use super::Next;

/// Lists in one run of the test, between which the time is looked at.
const LISTS_AT_ONCE: u64 = 500;

/// Each step of stream order is left out in turn.
pub(super) fn omissions() -> Outcome {
    run(&cargo(&["test", "--features", "genesis/ablations", "--test", "order_omissions"]))
}

/// Lists of random operations, from the first that no earlier run has had.
pub(super) fn run_for(time: Duration) -> Outcome {
    let (began, next) = (Instant::now(), Next::of("next_list")?);
    while began.elapsed() < time {
        let first = next.get();
        let end = first + LISTS_AT_ONCE;
        let mut test = cargo(&["test", "--test", "random_operations", "--", "--ignored"]);
        test.extend(["--exact", "round_of_short_lists"]);
        run(&test.set("GENESIS_TEST_LISTS", format!("{first}..{end}")))?;
        next.set(end)?;
    }
    Ok(())
}
