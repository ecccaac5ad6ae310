//! `cargo xtask peers`: Genesis and other allocators, measured on the same recorded programs, the
//! same driver stand-in and the same machine, in one run.
//!
//! ```text
//! install   the peers and their headers, from the package registry
//! subjects  the allocators that are measured, and what is built for them
//! driver    the driver stand-in under CUDA's library names
//! trace     the recorded programs
//! measure   replays, one process each; the smallest device
//! page      docs/benchmarks/peers.md
//! chart     docs/benchmarks/peers.svg
//! results   what was measured, which page and chart are written from
//! ```
//!
//! Everything measured is kept as JSON under the build folder; `--page` writes
//! the page from it again.

mod chart;
mod driver;
mod install;
mod measure;
mod page;
mod results;
mod subjects;
mod trace;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use genesis_replay::report::Report;
use steps::{Outcome, root, target_folder};

use install::Packages;
use results::{Measured, Results, failed};
use subjects::{Subject, Tools};
use trace::Trace;

/// Where the page and the chart go, from the root of the repository.
const PAGE_FOLDER: &str = "docs/benchmarks";

/// Compare Genesis with PyTorch's own allocator and RMM's pool on the recorded programs
#[derive(Debug, Parser)]
#[command(name = "cargo xtask peers", max_term_width = 100)]
struct Arguments {
    /// Traces to replay, by name, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    traces: Vec<String>,
    /// How often every allocator is timed in turn; times are medians over all rounds
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only write the page again, from what the last run measured
    #[arg(long)]
    page: bool,
    /// Replay one short trace once, to see that everything works: page, chart and results go to
    /// the build folder
    #[arg(long, conflicts_with_all = ["traces", "rounds", "page"])]
    smoke: bool,
}

/// The trace of `--smoke`.
const SMOKE_TRACE: &str = "alternating";

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.smoke {
        arguments.traces = vec![SMOKE_TRACE.to_owned()];
        arguments.rounds = 1;
    }
    match peers(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("peers: {message}");
            ExitCode::FAILURE
        }
    }
}

fn peers(arguments: &Arguments) -> Outcome {
    let folder = target_folder().join("peers");
    let pages = if arguments.smoke { folder.join("smoke") } else { root().join(PAGE_FOLDER) };
    std::fs::create_dir_all(&pages).map_err(|error| failed(&pages, &error))?;
    let kept = if arguments.smoke { &pages } else { &folder }.join("results.json");
    let results = if arguments.page {
        let text = std::fs::read(&kept).map_err(|error| failed(&kept, &error))?;
        serde_json::from_slice(&text).map_err(|error| failed(&kept, &error))?
    } else {
        let results = measure_all(arguments, &folder)?;
        let text = serde_json::to_vec(&results).map_err(|error| failed(&kept, &error))?;
        std::fs::write(&kept, text).map_err(|error| failed(&kept, &error))?;
        results
    };
    chart::draw(&pages.join("peers.svg"), &results)?;
    let page = pages.join("peers.md");
    std::fs::write(&page, page::write(&results)).map_err(|error| failed(&page, &error))?;
    eprintln!("\nThe page is {}", page.display());
    Ok(())
}

fn measure_all(arguments: &Arguments, folder: &Path) -> Result<Results, String> {
    let traces = trace::find(&arguments.traces)?;
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let packages = Packages::install(folder)?;
    let tools = Tools::build(folder, &packages)?;
    let subjects = tools.subjects(&strategies(&tools)?);
    let circumstances = page::circumstances();
    let mut measured = measure_times(&tools, &traces, &subjects, arguments.rounds)?;
    measure_smallest(&tools, &traces, &subjects, &mut measured)?;
    Ok(Results {
        circumstances,
        subjects: subjects.into_iter().map(|subject| subject.name).collect(),
        traces: traces.into_iter().map(|trace| trace.name).collect(),
        measured,
    })
}

type ByTrace = BTreeMap<String, BTreeMap<String, Measured>>;

fn measure_times(
    tools: &Tools,
    traces: &[Trace],
    subjects: &[Subject],
    rounds: u16,
) -> Result<ByTrace, String> {
    let mut measured = ByTrace::new();
    for trace in traces {
        eprintln!("\n{}, memory and times:", trace.name);
        let by_subject = measured.entry(trace.name.clone()).or_default();
        let able: Vec<_> = subjects.iter().filter(|subject| subject.can_replay(trace)).collect();
        for _ in 0..rounds {
            for subject in &able {
                let round = measure::times(tools, trace, subject)?;
                match by_subject.get_mut(&subject.name) {
                    Some(before) => before.add(round),
                    None => drop(by_subject.insert(subject.name.clone(), round)),
                }
            }
        }
        for subject in &able {
            eprintln!("  {}: {}", subject.name, by_subject[&subject.name].summary());
        }
    }
    Ok(measured)
}

fn measure_smallest(
    tools: &Tools,
    traces: &[Trace],
    subjects: &[Subject],
    measured: &mut ByTrace,
) -> Outcome {
    eprintln!("\nSmallest devices:");
    let searches = measured.iter_mut().flat_map(|(name, by_subject)| {
        let trace = traces.iter().find(|trace| trace.name == *name);
        by_subject.iter_mut().filter_map(move |(name, measured)| {
            let subject = subjects.iter().find(|subject| subject.name == *name);
            Some((trace?, subject?, measured))
        })
    });
    measure::smallest_devices(tools, searches.collect())
}

/// Every strategy of the library, from its own list.
fn strategies(tools: &Tools) -> Result<Vec<String>, String> {
    let program = &tools.genesis;
    let output = std::process::Command::new(program)
        .args(["compare", "--json", "--warm", "0"])
        .arg(root().join("traces/alternating.gtr.zst"))
        .output()
        .map_err(|error| failed(program, &error))?;
    let reports: Vec<Report> =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(program, &error))?;
    Ok(reports.into_iter().map(|report| report.strategy).collect())
}

#[cfg(test)]
mod tests {
    use genesis_replay::report::Pass;

    use super::*;

    fn measured(ns_per_call: f64) -> Measured {
        let pass = Pass { ns_per_call, reserved_peak_bytes: 3 << 20, ..Pass::default() };
        let report: Report = serde_json::from_value(serde_json::json!({
            "trace": "t", "strategy": "Elastic", "backend": "cuda", "version": "", "threads": 1,
            "calls": 1, "iterations": 1, "unknown_records": 0, "damage": null,
            "live_peak_bytes": 2 << 20, "live_peak_rounded_bytes": 2 << 20,
            "loop_ns_per_call": 1.0, "cold": pass, "warm": [pass], "fragmentation_ratio": null,
            "samples": [],
        }))
        .unwrap();
        let rounds = || results::Rounds(vec![report.clone()]);
        Measured {
            single: rounds(),
            double: rounds(),
            processes: rounds(),
            smallest_device_bytes: Some(5 << 20),
        }
    }

    #[test]
    fn page_and_chart_show_every_subject_and_leave_out_what_was_not_measured() {
        let by_subject = [(subjects::YARDSTICK, 10.0), ("Genesis Elastic", 5.0)];
        let by_subject = by_subject.map(|(name, ns)| (name.to_owned(), measured(ns)));
        let results = Results {
            circumstances: vec![("date".to_owned(), "today".to_owned())],
            subjects: [subjects::YARDSTICK, "Genesis Elastic", "RMM pool"].map(str::to_owned).into(),
            traces: vec!["t".to_owned()],
            measured: BTreeMap::from([("t".to_owned(), BTreeMap::from(by_subject))]),
        };
        let page = page::write(&results);
        for row in ["| t | 1.500 | 1.500 | – |", "| t | 2.500 |", "| t | 10 (1.00) | 5 (0.50) | – |"] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
        let chart = std::env::temp_dir().join(format!("peers-{}.svg", std::process::id()));
        chart::draw(&chart, &results).unwrap();
        let svg = std::fs::read_to_string(&chart).unwrap();
        assert!(svg.contains("Genesis Elastic") && svg.contains("<circle"), "{svg}");
        std::fs::remove_file(&chart).unwrap();
    }
}
