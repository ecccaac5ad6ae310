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
}

fn main() -> ExitCode {
    match peers(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("peers: {message}");
            ExitCode::FAILURE
        }
    }
}

fn peers(arguments: &Arguments) -> Outcome {
    let folder = target_folder().join("peers");
    let kept = folder.join("results.json");
    let results = if arguments.page {
        let text = std::fs::read(&kept).map_err(|error| failed(&kept, &error))?;
        serde_json::from_slice(&text).map_err(|error| failed(&kept, &error))?
    } else {
        let results = measure_all(arguments, &folder)?;
        let text = serde_json::to_vec(&results).map_err(|error| failed(&kept, &error))?;
        std::fs::write(&kept, text).map_err(|error| failed(&kept, &error))?;
        results
    };
    let pages = root().join(PAGE_FOLDER);
    std::fs::create_dir_all(&pages).map_err(|error| failed(&pages, &error))?;
    chart::draw(&pages.join("peers.svg"), &results)?;
    let page = pages.join("peers.md");
    std::fs::write(&page, page::write(&results)).map_err(|error| failed(&page, &error))?;
    eprintln!("\nThe page is {PAGE_FOLDER}/peers.md");
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
