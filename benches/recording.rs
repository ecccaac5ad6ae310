//! What recording costs: nanoseconds per call without it, with it, and with it compressed.
//!
//! A recorded program is replayed through the C interface in a process of its own for each,
//! in turn and several times over, and the least is kept: other work on the machine only adds.
//! The calls come as fast as the library answers them, which no real program does; where the
//! writing thread cannot keep up with that, what is measured is the writing thread.
//!
//! `cargo bench --bench recording -- TEXT` replays only traces with that text in their names.

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{Case, cases, job};
use genesis::config::PoolType;
use genesis_replay::table::Table;
use genesis_replay::{Result, library};

/// How often each is measured.
const ROUNDS: usize = 5;
/// Where recordings go; what the name ends in says how they are written. None at first.
const RECORDINGS: [&str; 3] = ["", "recording.gtr", "recording.gtr.zst"];

fn main() -> ExitCode {
    common::main(bench)
}

fn bench(filter: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("genesis-recording-{}", std::process::id()));
    let cases = cases(filter)?;
    // A recording that cannot be made is a warning of the library's.
    let _ = std::fs::create_dir_all(&folder);
    let rows: Result<Vec<_>> = cases.iter().map(|case| measure(case, &folder)).collect();
    let _ = std::fs::remove_dir_all(&folder);
    let mut table = Table::new(&["ns per call", "off", "on", "on, .zst", "cost", "cost, .zst"]);
    for ((name, _), [off, on, compressed]) in cases.iter().zip(rows?) {
        let numbers = [off, on, compressed, on - off, compressed - off];
        let cells = numbers.iter().map(|ns| format!("{ns:.1}"));
        table.add(std::iter::once(name.clone()).chain(cells).collect());
    }
    println!("{table}");
    Ok(())
}

/// The least nanoseconds per call of a case with each of the recordings.
fn measure((_, trace): &Case, folder: &Path) -> Result<[f64; RECORDINGS.len()]> {
    let library = library::locate(None)?;
    let mut least = [f64::INFINITY; RECORDINGS.len()];
    for _ in 0..ROUNDS {
        for (least, recording) in least.iter_mut().zip(RECORDINGS) {
            let mut job = job(&library, trace, PoolType::Caching, 1);
            if !recording.is_empty() {
                let path = folder.join(recording).display().to_string();
                job.settings.push(("GENESIS_TRACE".to_owned(), path));
            }
            let report = job.run_apart(&[common::JOB_ARGUMENT])?;
            *least = least.min(report.warm_ns_per_call().unwrap_or(f64::NAN));
        }
    }
    Ok(least)
}
