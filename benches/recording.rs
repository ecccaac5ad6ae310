//! What a recording costs: nanoseconds per call with nothing recorded, with a trace, with a
//! compressed trace, and with a profile. Call sites are off: `benches/call_sites.rs` measures them.
//!
//! A recorded program is replayed through the C interface, each time in a process of its own. The
//! four are measured in turn, several times over, and the least is kept: other work on the machine
//! only adds. The calls come as fast as the library returns, which no real program does. Where the
//! collecting thread cannot keep up, the figure is that of the collecting thread.
//!
//! `cargo bench --bench recording -- TEXT` replays only the traces with that text in their names.

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{Case, cases, job};
use genesis::config::PoolType;
use genesis_replay::table::Table;
use genesis_replay::{Result, library};

/// How often each is measured.
const ROUNDS: usize = 5;
/// What is recorded: a setting and the file it names, whose ending selects the format.
const RECORDERS: [Option<(&str, &str)>; 4] = [
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
    // If the folder is missing, the library warns that it cannot record.
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

/// The least nanoseconds per call of a case with each of the recorders.
fn measure((_, trace): &Case, folder: &Path) -> Result<[f64; RECORDERS.len()]> {
    let library = library::locate(None)?;
    let mut least = [f64::INFINITY; RECORDERS.len()];
    for _ in 0..common::unless_smoke(ROUNDS) {
        for (least, recorder) in least.iter_mut().zip(RECORDERS) {
            let mut job = job(&library, trace, PoolType::Caching, 1);
            if let Some((setting, name)) = recorder {
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
