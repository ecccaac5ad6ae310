//! Recorded programs through the C interface: nanoseconds per call, by trace and strategy.
//!
//! First one thread, then two at once, each of which replays the whole trace on streams of its
//! own against the same device; the time is then that of a call in one thread. What two
//! threads lose has two causes: what they share in the library, and what they share in the
//! machine (caches, memory, clock speed, other guests). So two *processes* are measured as
//! well, which share the second only.
//!
//! `cargo bench --bench replay -- TEXT` replays only traces with that text in their names.

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{Case, measure, print};
use genesis_replay::job::trace_name;
use genesis_replay::{Error, Result};

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

/// The recorded traces whose names contain `filter`, by name.
fn cases(filter: &str) -> Result<Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| Error::usage(format!("{}: {error}", folder.display())))?;
    let mut cases: Vec<Case> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "zst"))
        .map(|path| (trace_name(&path), path))
        .filter(|(name, _)| name.contains(filter))
        .collect();
    cases.sort();
    if cases.is_empty() {
        return Err(Error::usage(format!("no trace is called like {filter:?}")));
    }
    Ok(cases)
}
