//! What the driver's time is when less memory may be held than a program could use: the recorded
//! programs under Exact, Round and Caching, by two versions of the library.
//!
//! `cargo run --release -p genesis-replay --example cache_limits -- LIBRARY OTHER [TRACE …]` prints the
//! first table of docs/benchmarks/cache_order.md: the driver time of three passes in milliseconds under
//! each library, with as much memory allowed as the program has live times a factor, and the geometric
//! mean of the second over the first for each strategy. A dash: it does not fit.

use std::path::{Path, PathBuf};

use genesis_replay::job::{Job, trace_name};
use genesis_replay::library;
use genesis_replay::table::Table;

const STRATEGIES: [&str; 3] = ["Exact", "Round", "Caching"];
/// How much may be held, over the most that is live.
const ROOM: [f64; 3] = [1.1, 1.3, 1.6];
/// Leads this program to a job on its standard input.
const JOB: &str = "job";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    if arguments.first().is_some_and(|first| first == Path::new(JOB)) {
        return Ok(genesis_replay::apart::serve(&mut |_, _| ())?);
    }
    if arguments.len() < 2 {
        return Err("two libraries are compared: LIBRARY OTHER [TRACE …]".into());
    }
    let mut traces = arguments.split_off(2);
    let libraries: Vec<PathBuf> =
        arguments.iter().map(|path| library::locate(Some(path))).collect::<Result<_, _>>()?;
    if traces.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let files = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        traces = files.filter(|path| path.extension().is_some_and(|end| end == "zst")).collect();
        traces.sort();
    }
    let headings = ROOM.iter().flat_map(|room| [format!("{room} × live"), "other".to_owned()]);
    let headings: Vec<String> =
        ["program".to_owned(), "strategy".to_owned()].into_iter().chain(headings).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut ratios = STRATEGIES.map(|_| Vec::new());
    for trace in &traces {
        for (strategy, ratios) in STRATEGIES.iter().zip(&mut ratios) {
            let mut row = vec![trace_name(trace), (*strategy).to_owned()];
            for room in ROOM {
                let [first, other] = [&libraries[0], &libraries[1]]
                    .map(|library| ms(trace, library, strategy, room));
                let (first, other) = (first?, other?);
                ratios.extend(first.zip(other).map(|(first, other)| other / first));
                row.extend([first, other].map(cell));
            }
            table.add(row);
        }
    }
    println!("{table}");
    for (strategy, ratios) in STRATEGIES.iter().zip(&ratios) {
        let mean = ratios.iter().map(|ratio: &f64| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        println!("{strategy}: geometric mean of the other over the first {:.2}", mean.exp());
    }
    Ok(())
}

fn cell(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), |ms| format!("{ms:.0}"))
}

/// The driver time of three passes, in milliseconds; `None` if a request failed.
fn ms(
    trace: &Path,
    library: &Path,
    strategy: &str,
    room: f64,
) -> Result<Option<f64>, Box<dyn std::error::Error>> {
    let settings = [("BACKEND", "sim"), ("POOL_TYPE", strategy), ("LOG", "off")];
    let settings = settings.map(|(name, value)| (format!("GENESIS_{name}"), value.to_owned()));
    let mut job = Job {
        trace: trace.to_owned(),
        library: library.to_owned(),
        settings: settings.to_vec(),
        limit_bytes: None,
        threads: 1,
        warm_passes: 2,
        sample_count: 0,
    };
    let live_bytes = job.prepare()?.0.live_peak_bytes as f64;
    job.limit_bytes = Some((live_bytes * room) as u64);
    let report = job.run_apart(&[JOB])?;
    let driver_ns: u64 = report.passes().map(|pass| pass.driver_ns).sum();
    Ok((report.failures() == 0).then_some(driver_ns as f64 / 1e6))
}
