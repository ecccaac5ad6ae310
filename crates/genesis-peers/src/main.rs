//! `cargo xtask peers`: Genesis and other allocators, measured on the same recorded programs, the
//! same driver stand-in and the same machine, in one run.
//!
//! ```text
//! arguments      the command line, and where results go
//! install        the peers and their headers, from the package registry
//! subjects       the allocators that are measured, and what is built for them
//! driver         the driver stand-in under CUDA's library names
//! trace          the recorded programs
//! run            one replay: the device's room, and what became of it
//! measure        replays, one process each; the smallest device
//! instructions   instructions of a call
//! queue          work side by side
//! page           docs/benchmarks/peers.md
//! chart          docs/benchmarks/peers.svg, and pictures of dots
//! objects        arenas, pools and managers beside their peers, a call at a time
//! circumstances  date, machine and versions
//! results        what was measured, which page and chart are written from
//! cells          docs/benchmarks/cells.md: Elastic against expandable segments, won or lost
//! ```
//!
//! Everything measured is kept as JSON under the build folder; `--page` writes
//! the pages from it again.

mod arguments;
mod cells;
mod chart;
mod circumstances;
mod driver;
mod install;
mod instructions;
mod measure;
mod objects;
mod page;
mod queue;
mod results;
mod run;
mod subjects;
mod trace;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use genesis_replay::report::Report;
use serde::Serialize;
use serde::de::DeserializeOwned;
use steps::{Outcome, root};

use arguments::{Arguments, Name, Places, build_folder};
use cells::Cells;
use cells::gather::Plan;
use install::Packages;
use results::{Measured, Results, failed};
use subjects::{Subject, Tools};
use trace::Trace;

/// The files of what was measured.
const RESULTS: &str = "results.json";
const CELLS: &str = "cells.json";

fn main() -> ExitCode {
    match peers(&Arguments::parse().completed()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("peers: {message}");
            ExitCode::FAILURE
        }
    }
}

fn peers(arguments: &Arguments) -> Outcome {
    let places = arguments.places();
    for folder in [&places.pages, &places.kept] {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    }
    if arguments.page {
        write_peers(&places, &read(&places.kept.join(RESULTS))?)?;
        return write_cells(&places, &read(&places.kept.join(CELLS))?);
    }
    let folder = build_folder();
    let mut traces = trace::find(&arguments.trace_folder(), &arguments.traces)?;
    if arguments.varied > 0 {
        traces = trace::vary(&traces, arguments.varied, &folder.join("varied"))?;
    }
    // Before any page is written, which is a change of the repository.
    let circumstances = circumstances::read(arguments.passes, &arguments.prices);
    let packages = Packages::install(&folder)?;
    let tools = Tools::build(&folder, &packages, &arguments.prices)?;
    if arguments.objects {
        println!("{}", objects::section(&objects::measure(&tools, arguments.smoke)?));
        return Ok(());
    }
    let plan = plan(arguments, &tools, &traces, &places);
    eprintln!("\nCells:");
    let cells = cells::gather::measure(&tools, &plan, circumstances::with_load(&circumstances))?;
    keep(&places.kept.join(CELLS), &cells)?;
    write_cells(&places, &cells)?;
    if arguments.has_times() {
        let results = measure_all(arguments, &tools, &traces, &circumstances)?;
        keep(&places.kept.join(RESULTS), &results)?;
        write_peers(&places, &results)?;
    }
    println!("\n{}", cells::lines::write(&cells));
    Ok(())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read(path).map_err(|error| failed(path, &error))?;
    serde_json::from_slice(&text).map_err(|error| failed(path, &error))
}

fn keep(path: &Path, measured: &impl Serialize) -> Outcome {
    let text = serde_json::to_vec(measured).map_err(|error| failed(path, &error))?;
    std::fs::write(path, text).map_err(|error| failed(path, &error))
}

fn write_peers(places: &Places, results: &Results) -> Outcome {
    chart::draw(&places.pages.join("peers.svg"), results)?;
    write_page(&places.pages.join("peers.md"), &page::write(results))
}

fn write_cells(places: &Places, cells: &Cells) -> Outcome {
    if !cells.cells.is_empty() {
        cells::chart::draw(&places.pages.join("cells.svg"), cells)?;
    }
    write_page(&places.pages.join("cells.md"), &cells::page::write(cells))
}

fn write_page(path: &Path, page: &str) -> Outcome {
    std::fs::write(path, page).map_err(|error| failed(path, &error))?;
    eprintln!("\nThe page is {}", path.display());
    Ok(())
}

/// What the cells are to be.
fn plan<'a>(
    arguments: &Arguments,
    tools: &Tools,
    traces: &'a [Trace],
    places: &Places,
) -> Plan<'a> {
    let names: Vec<&str> = arguments.subjects.iter().copied().map(Name::subject).collect();
    let mut subjects = tools.subjects(&[cells::STRATEGY.to_owned()]);
    subjects.retain(|subject| names.contains(&&*subject.name));
    Plan {
        traces,
        subjects,
        rooms: arguments.rooms(),
        passes: arguments.passes,
        long_passes: arguments.long_passes(),
        // All allocators' are on the other page if that is written too.
        has_smallest: arguments.smallest,
        keeps_peers: arguments.keep_peers,
        kept: places.runs.clone(),
    }
}

fn measure_all(
    arguments: &Arguments,
    tools: &Tools,
    traces: &[Trace],
    circumstances: &[(String, String)],
) -> Result<Results, String> {
    let mut subjects = tools.subjects(&strategies(tools)?);
    subjects.retain(|subject| subject.name != subjects::FINE);
    let circumstances = circumstances::with_load(circumstances);
    let mut measured = measure_times(arguments, tools, traces, &subjects)?;
    eprintln!("\nEight threads:");
    let replays = with_subjects(traces, &subjects, &mut measured);
    measure::many_threads(tools, arguments.passes, replays)?;
    eprintln!("\nInstructions:");
    instructions::count_all(tools, with_subjects(traces, &subjects, &mut measured))?;
    eprintln!("\nSmallest devices:");
    let searches = with_subjects(traces, &subjects, &mut measured);
    measure::smallest_devices(tools, arguments.passes, searches)?;
    let objects = objects::measure(tools, arguments.smoke)?;
    Ok(Results {
        objects,
        circumstances,
        subjects: subjects.into_iter().map(|subject| subject.name).collect(),
        traces: traces.iter().map(|trace| trace.name.clone()).collect(),
        measured,
    })
}

type ByTrace = BTreeMap<String, BTreeMap<String, Measured>>;

fn measure_times(
    arguments: &Arguments,
    tools: &Tools,
    traces: &[Trace],
    subjects: &[Subject],
) -> Result<ByTrace, String> {
    let mut measured = ByTrace::new();
    for trace in traces {
        eprintln!("\n{}, memory and times:", trace.name);
        let by_subject = measured.entry(trace.name.clone()).or_default();
        let able: Vec<_> = subjects.iter().filter(|subject| subject.can_replay(trace)).collect();
        let passes = arguments.timed_passes(trace.calls);
        for _ in 0..arguments.rounds {
            for subject in &able {
                let round = measure::times(tools, trace, subject, passes)?;
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

/// The measurements, each with its trace and its subject.
fn with_subjects<'a>(
    traces: &'a [Trace],
    subjects: &'a [Subject],
    measured: &'a mut ByTrace,
) -> Vec<(&'a Trace, &'a Subject, &'a mut Measured)> {
    let measurements = measured.iter_mut().flat_map(|(name, by_subject)| {
        let trace = traces.iter().find(|trace| trace.name == *name);
        by_subject.iter_mut().filter_map(move |(name, measured)| {
            let subject = subjects.iter().find(|subject| subject.name == *name);
            Some((trace?, subject?, measured))
        })
    });
    measurements.collect()
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
            many: None,
            smallest_device_bytes: Some(5 << 20),
            instructions: Some(results::Instructions { all: 2.5 * ns_per_call, stand_in: 3.0 }),
        }
    }

    #[test]
    fn page_and_chart_show_every_subject_and_leave_out_what_was_not_measured() {
        let by_subject = [(subjects::YARDSTICK, 10.0), ("Genesis Elastic", 5.0)];
        let by_subject = by_subject.map(|(name, ns)| (name.to_owned(), measured(ns)));
        let results = Results {
            circumstances: vec![("date".to_owned(), "today".to_owned())],
            subjects: [subjects::YARDSTICK, "Genesis Elastic", "RMM pool"]
                .map(str::to_owned)
                .into(),
            traces: vec!["t".to_owned()],
            objects: Vec::new(),
            measured: BTreeMap::from([("t".to_owned(), BTreeMap::from(by_subject))]),
        };
        let page = page::write(&results);
        for row in [
            "| t | 1.500 | 1.500 | – |",
            "| t | 2.500 |",
            "| t | 10 (1.00) | 5 (0.50) | – |",
            "| t | 25 (1.00) | 12 (0.50) | – |",
            "| t | 3 (12 %) | 3 (24 %) | – |",
        ] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
        let chart = std::env::temp_dir().join(format!("peers-{}.svg", std::process::id()));
        chart::draw(&chart, &results).unwrap();
        let svg = std::fs::read_to_string(&chart).unwrap();
        assert!(svg.contains("Genesis Elastic") && svg.contains("<circle"), "{svg}");
        std::fs::remove_file(&chart).unwrap();
    }
}
