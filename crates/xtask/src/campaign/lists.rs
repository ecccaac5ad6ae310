//! Lists of random operations (`tests/random_operations.rs`), and steps of stream order left out
//! (`tests/order_omissions.rs`).

use std::time::{Duration, Instant};

use steps::{Outcome, cargo, run};

use super::Next;

/// The rounds, with where they go on and how many seeds are taken at once, between which the time is
/// looked at: lists of one thread, and runs of two or eight.
const ROUNDS: [(&str, &str, u64); 2] =
    [("round_of_short_lists", "next_list", 500), ("round_of_threads", "next_threads", 20)];

/// Each step of stream order is left out in turn.
pub(super) fn omissions() -> Outcome {
    run(&cargo(&["test", "--features", "genesis/ablations", "--test", "order_omissions"]))
}

/// Lists of random operations and runs of threads in turn, each from the first that no earlier run
/// has had.
pub(super) fn run_for(time: Duration) -> Outcome {
    let began = Instant::now();
    while began.elapsed() < time {
        for (round, place, at_once) in ROUNDS {
            let next = Next::of(place)?;
            let first = next.get();
            let end = first + at_once;
            let mut test = cargo(&["test", "--test", "random_operations", "--", "--ignored"]);
            test.extend(["--exact", round]);
            run(&test.set("GENESIS_TEST_LISTS", format!("{first}..{end}")))?;
            next.set(end)?;
        }
    }
    Ok(())
}
