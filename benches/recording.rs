//! What it costs to be watched: nanoseconds per call without anybody, with a recording, with one
//! that is compressed, and with a profile without call sites (which `benches/call_sites.rs` has).
//!
//! A recorded program is replayed through the C interface in a process of its own for each,
//! in turn and several times over, and the least is kept: other work on the machine only adds.
//! The calls come as fast as the library answers them, which no real program does; where the
//! collecting thread cannot keep up with that, what is measured is the collecting thread.
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
/// Who watches, as a setting that names a file; what the name ends in says how it is written.
const WATCHERS: [Option<(&str, &str)>; 4] = [
    None,
    Some(("GENESIS_TRACE", "recording.gtr")),
    Some(("GENESIS_TRACE", "recording.gtr.zst")),
    Some(("GENESIS_PROFILE", "profile.txt")),
];

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
    let columns = ["off", "trace", "trace, .zst", "profile", "cost", "cost, .zst", "cost, profile"];
    let mut table = Table::new(&[&["ns per call"], &columns[..]].concat());
    for ((name, _), measured) in cases.iter().zip(rows?) {
        let costs = measured[1..].iter().map(|ns| ns - measured[0]);
        let cells = measured.iter().copied().chain(costs).map(|ns| format!("{ns:.1}"));
        table.add(std::iter::once(name.clone()).chain(cells).collect());
    }
    println!("{table}");
    Ok(())
}

/// The least nanoseconds per call of a case under each of the watchers.
fn measure((_, trace): &Case, folder: &Path) -> Result<[f64; WATCHERS.len()]> {
    let library = library::locate(None)?;
    let mut least = [f64::INFINITY; WATCHERS.len()];
    for _ in 0..common::unless_smoke(ROUNDS) {
        for (least, watcher) in least.iter_mut().zip(WATCHERS) {
            let mut job = job(&library, trace, PoolType::Caching, 1);
            if let Some((setting, name)) = watcher {
                let path = folder.join(name).display().to_string();
                job.settings.push((setting.to_owned(), path));
                job.settings.push(("GENESIS_CALL_SITES".to_owned(), "off".to_owned()));
            }
            let report = job.run_apart(&[common::JOB_ARGUMENT])?;
            *least = least.min(report.warm_ns_per_call().unwrap_or(f64::NAN));
        }
    }
    Ok(least)
}
