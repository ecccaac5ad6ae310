//! Recorded programs through the C interface: nanoseconds per call, by trace and strategy.
//!
//! First one thread, then two at once. Each replays the whole trace on streams of its own against
//! the same device; the time is that of a call in one thread. Two threads are slower for two
//! reasons: what they share in the library, and what they share in the machine (caches, memory,
//! clock speed, other guests). So two *processes* are measured as well, which share only the
//! machine.
//!
//! `cargo bench --bench replay -- TEXT` replays only the traces with that text in their names.

mod common;

use std::process::ExitCode;

use common::{cases, measure, print};
use genesis_replay::Result;

fn main() -> ExitCode {
    common::main(bench)
}

fn bench(filter: &str) -> Result<()> {
    let cases = cases(filter)?;
    let alone = measure(&cases, 1, 1)?;
    print("ns/op, one thread", 1, &cases, &alone);
    let threads = measure(&cases, 1, 2)?;
    print("ns/op, two threads", 1, &cases, &threads);
    let processes = measure(&cases, 2, 1)?;
    print("two threads / one", 2, &cases, &ratios(&threads, &alone));
    print("two processes / one", 2, &cases, &ratios(&processes, &alone));
    print("threads / processes", 2, &cases, &ratios(&threads, &processes));
    Ok(())
}

fn ratios(dividends: &[Vec<f64>], divisors: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let divide = |(dividends, divisors): (&Vec<f64>, &Vec<f64>)| {
        dividends.iter().zip(divisors).map(|(dividend, divisor)| dividend / divisor).collect()
    };
    dividends.iter().zip(divisors).map(divide).collect()
}
