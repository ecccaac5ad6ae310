//! What the benchmarks share: jobs in processes of their own, and tables of their times.
//!
//! Jobs run on the simulated device, which costs next to nothing itself. Times are medians of
//! warm passes and include the replay's own loop, whose cost has a column of its own.
#![allow(dead_code)] // each benchmark uses a part of it

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use genesis::config::PoolType;
use genesis_replay::job::{Job, trace_name};
use genesis_replay::table::Table;
use genesis_replay::{Error, Result, apart, library};

/// The argument that makes the benchmark run one job.
pub(crate) const JOB_ARGUMENT: &str = "replay-job";
/// The argument that asks for one case and one pass, to see that the benchmark works.
const SMOKE_ARGUMENT: &str = "--smoke";
/// Passes per median.
const WARM_PASSES: usize = 21;
/// Room for two threads at once under every strategy.
const DEVICE_MEMORY: &str = "1TiB";

/// The body of a benchmark's `main`: runs a job if the arguments ask for one, else `bench` with
/// the first argument that is no flag.
pub(crate) fn main(bench: impl FnOnce(&str) -> Result<()>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = if arguments.iter().any(|argument| argument == JOB_ARGUMENT) {
        apart::serve(&mut |_, _| {}).map_err(|error| error.to_string())
    } else {
        let filter = arguments.iter().find(|argument| !argument.starts_with("--"));
        bench(filter.map_or("", String::as_str)).map_err(|error| error.to_string())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// `count`, or 1 if the benchmark is only to be seen to work.
pub(crate) fn unless_smoke(count: usize) -> usize {
    if std::env::args().any(|argument| argument == SMOKE_ARGUMENT) { 1 } else { count }
}

/// A name and a trace: one row of a table.
pub(crate) type Case = (String, PathBuf);

/// The recorded traces whose names contain `filter`, by name.
pub(crate) fn cases(filter: &str) -> Result<Vec<Case>> {
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
    cases.truncate(unless_smoke(cases.len()));
    if cases.is_empty() {
        return Err(Error::usage(format!("no trace is called like {filter:?}")));
    }
    Ok(cases)
}

/// The nanoseconds per call of each of `cases`: a column per strategy, then the loop's own.
/// `processes` run at once, with `threads` each.
pub(crate) fn measure(cases: &[Case], processes: usize, threads: usize) -> Result<Vec<Vec<f64>>> {
    let library = library::locate(None)?;
    let measure_case = |(_, trace): &Case| {
        let mut row = Vec::new();
        let mut loop_ns = f64::INFINITY;
        for pool_type in PoolType::ALL {
            let run = || job(&library, trace, *pool_type, threads).run_apart(&[JOB_ARGUMENT]);
            let report = std::thread::scope(|scope| {
                let others: Vec<_> = (1..processes).map(|_| scope.spawn(run)).collect();
                let report = run();
                // The others' figures are not needed, but a failure of one is an error.
                for other in others {
                    other.join().expect("a job does not panic")?;
                }
                report
            })?;
            row.push(report.warm_ns_per_call().unwrap_or(f64::NAN));
            loop_ns = loop_ns.min(report.loop_ns_per_call);
        }
        row.push(loop_ns);
        Ok(row)
    };
    cases.iter().map(measure_case).collect()
}

/// The replay of `trace` under a strategy, on the simulated device.
pub(crate) fn job(library: &Path, trace: &Path, pool_type: PoolType, threads: usize) -> Job {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Job {
        trace: trace.to_owned(),
        library: library.to_owned(),
        settings: vec![
            setting("GENESIS_BACKEND", "sim"),
            setting("GENESIS_SIM_MEMORY", DEVICE_MEMORY),
            setting("GENESIS_POOL_TYPE", pool_type.name()),
        ],
        limit_bytes: None,
        threads,
        warm_passes: unless_smoke(WARM_PASSES),
        sample_count: 0,
    }
}

/// Prints a row for each of `cases`, as [`measure`] returns them, and their geometric mean, with
/// so many `decimals`.
pub(crate) fn print(title: &str, decimals: usize, cases: &[Case], rows: &[Vec<f64>]) {
    let mut headings = vec![title];
    headings.extend(PoolType::ALL.iter().map(|pool_type| pool_type.name()));
    headings.push("loop alone");
    let mut table = Table::new(&headings);
    let mut add = |name: &str, row: &[f64]| {
        let numbers = row.iter().map(|number| format!("{number:.decimals$}"));
        table.add(std::iter::once(name.to_owned()).chain(numbers).collect());
    };
    for ((name, _), row) in cases.iter().zip(rows) {
        add(name, row);
    }
    let mean = |column| geometric_mean(rows.iter().map(|row: &Vec<f64>| row[column]));
    add("geometric mean", &(0..headings.len() - 1).map(mean).collect::<Vec<f64>>());
    println!("{table}");
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}
