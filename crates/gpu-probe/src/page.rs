//! The page: a report in Markdown, for people.

mod assumptions;
mod pytorch_checks;
mod replays;

use std::fmt::Write;

use genesis_profile::units::{bytes, count, time};

use crate::costs::{Costs, Price, Row};
use crate::facts::{Fact, Verdict};
use crate::heap::Trial;
use crate::report::{Check, Machine, Report, Section, Suite, Training};

const NOTHING: &str = "–";

/// The whole page.
pub(crate) fn render(report: &Report) -> String {
    let mut page = String::from("# Genesis on a GPU\n\n");
    page += &head(&report.machine, report.seconds());
    page += &section("Facts", &report.facts, |facts| facts_table(facts));
    page += &section("Assumptions", &report.assumptions, |all| assumptions::render(all));
    page += &section("Conformance", &report.conformance, suite);
    page += &section("Strategies on the driver", &report.heap, |trials| trials_table(trials));
    page += &section("Cost of driver calls", &report.costs, costs);
    page += &section("A statically linked runtime", &report.static_runtime, |all| checks(all));
    page += &section("Recorded programs", &report.replays, |all| replays::render(all));
    page += &section("What PyTorch computes", &report.pytorch_checks, |all| {
        pytorch_checks::render(all)
    });
    page += &section("PyTorch training", &report.training, |all| training(all));
    page
}

fn head(machine: &Machine, seconds: f64) -> String {
    let mut text =
        String::from("Written by `cargo xtask gpu`; the same in [gpu.json](gpu.json).\n\n");
    if machine.simulated {
        let prices = machine.prices.as_deref().unwrap_or("an unknown list");
        let _ = write!(
            text,
            "> **No GPU: this run was made on the simulated driver** (`crates/simcuda`). The \
             times of driver calls are by `simgpu`'s prices of {prices}, and answers about the \
             driver are the simulation's: they show that the probes work and what the \
             simulation claims, and say nothing of a real driver. Kernels do nothing.\n\n"
        );
    }
    text += "| | |\n|---|---|\n";
    let used = bytes(machine.used_bytes);
    let memory = format!("{}, {used} in use at the start", bytes(machine.memory_bytes));
    let driver = match &machine.driver {
        Some(release) => format!("{release}, CUDA {}", machine.cuda),
        None => format!("CUDA {}", machine.cuda),
    };
    for (name, value) in [
        ("GPU", &machine.gpu),
        ("memory", &memory),
        ("driver", &driver),
        ("Genesis", &machine.genesis),
        ("system", &machine.system),
        ("date", &machine.date),
        ("the run took", &format!("{seconds:.0} s")),
    ] {
        let _ = writeln!(text, "| {name} | {} |", cell(value));
    }
    text
}

fn section<T>(title: &str, section: &Section<T>, body: impl Fn(&T) -> String) -> String {
    let mut text = format!("\n## {title}\n\n");
    if let Some(result) = &section.result {
        text += &body(result);
    }
    for note in &section.notes {
        let _ = writeln!(text, "\n*{note}*");
    }
    if !section.made.is_empty() {
        let _ = writeln!(text, "\n*{}.*", section.made);
    }
    text
}

/// `rows` under `heads`; the first column is text, the others are numbers.
fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|---|{}\n", heads.join(" | "), "---:|".repeat(heads.len() - 1));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|value| cell(value)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cell(value: &str) -> String {
    value.replace('|', "\\|").replace('\n', " ")
}

fn facts_table(facts: &[Fact]) -> String {
    let number = |verdict| facts.iter().filter(|fact| fact.verdict == verdict).count();
    let mut text = format!(
        "{} of {} as expected, {} different, {} not observed.\n\n\
         | question | expected | observed | |\n|---|---|---|---|\n",
        number(Verdict::AsExpected),
        facts.len(),
        number(Verdict::Different),
        number(Verdict::NotObserved)
    );
    for fact in facts {
        let [question, expected, observed] =
            [&fact.question, &fact.expected, &fact.observed].map(|value| cell(value));
        let verdict = fact.verdict.text();
        let _ = writeln!(text, "| {question} | {expected} | {observed} | {verdict} |");
    }
    text
}

fn suite(suite: &Suite) -> String {
    let all = suite.passed.len() + suite.failed.len();
    let mut text = format!("{} of {all} cases of the device suite passed.\n", suite.passed.len());
    for case in &suite.failed {
        let _ = writeln!(text, "- **failed**: `{}`: {}", case.name, cell(&case.message));
    }
    text
}

fn trials_table(trials: &[Trial]) -> String {
    let heads = [
        "strategy",
        "allocations",
        "blocks checked",
        "wrong",
        "live peak",
        "reserved peak",
        "driver calls",
        "not given back",
        "hot pair, ns",
        "pause, GiB/s",
        "resume, GiB/s",
    ];
    let intro = "Random sizes on four streams, some blocks used on a second one; every block is \
                 filled with a number of its own and checked before it is freed. Then one MiB \
                 allocated and freed over and over. Pauses and resumes of all that is live, before \
                 it is checked, have page-locked memory that was there before.\n\n";
    let row = |trial: &Trial| {
        vec![
            trial.strategy.clone(),
            trial.allocations.to_string(),
            trial.checked_blocks.to_string(),
            if trial.wrong_blocks == 0 {
                "0".into()
            } else {
                format!("**{}**", trial.wrong_blocks)
            },
            bytes(trial.live_peak_bytes),
            bytes(trial.reserved_peak_bytes),
            trial.driver_calls.to_string(),
            bytes(trial.missing_bytes),
            format!("{:.0}", trial.hot_pair_ns),
            rate(trial.sleep.map(|sleep| (sleep.bytes, sleep.pause_ns))),
            rate(trial.sleep.map(|sleep| (sleep.bytes, sleep.resume_ns))),
        ]
    };
    intro.to_owned() + &table(&heads, trials.iter().map(row))
}

/// Bytes in so many nanoseconds, in GiB/s.
fn rate(measured: Option<(u64, f64)>) -> String {
    let per_second = |(bytes, ns): (u64, f64)| bytes as f64 / ns * 1e9 / (1 << 30) as f64;
    measured.map_or(NOTHING.to_owned(), |measured| format!("{:.1}", per_second(measured)))
}

fn costs(costs: &Costs) -> String {
    let heads = ["call", "size", "mappings", "median", "p99", "least", "samples"];
    let number = |value: u64| if value == 0 { NOTHING.to_owned() } else { value.to_string() };
    let row = |row: &Row| {
        let remark = row.remark.as_ref().map_or(String::new(), |remark| format!(", {remark}"));
        vec![
            format!("{}{remark}", row.driver_call),
            if row.bytes == 0 { NOTHING.to_owned() } else { bytes(row.bytes) },
            number(row.mappings),
            time(row.median_ns),
            time(row.p99_ns),
            time(row.least_ns),
            row.samples.to_string(),
        ]
    };
    let mut text = table(&heads, costs.rows.iter().map(row));
    for left_out in &costs.left_out {
        let _ = writeln!(text, "\n*Left out: {left_out}.*");
    }
    text += "\nAs a column of `crates/simgpu/src/prices.rs`: medians in nanoseconds at sizes in \
             bytes, and what each mapping after the first adds. Tails stand in the column p99.\n\n\
             ```rust\n";
    for price in &costs.prices {
        text += &table_entry(price);
    }
    text + "```\n"
}

/// An entry as `prices.rs` has it.
fn table_entry(price: &Price) -> String {
    let Price { call, points, further } = price;
    let points = list(points);
    if further.is_empty() {
        return format!("(Call::{call}, Cost::by_size({points})),\n");
    }
    format!(
        "(Call::{call}, Cost {{ points: {points}, further: {}, tail: None }}),\n",
        list(further)
    )
}

/// Points as `prices.rs` has them.
fn list(points: &[(u64, u64)]) -> String {
    let point = |(size, ns): &(u64, u64)| {
        let size = match size {
            0 => "0".to_owned(),
            size if size % (1 << 20) == 0 => format!("{} * MIB", size >> 20),
            size => grouped(*size),
        };
        format!("({size}, {})", grouped(*ns))
    };
    format!("&[{}]", points.iter().map(point).collect::<Vec<_>>().join(", "))
}

fn checks(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let verdict = if check.passed { "passed" } else { "**failed**" };
        format!("| {} | {verdict} | {} |\n", cell(&check.name), cell(&check.detail))
    };
    let rows: String = checks.iter().map(row).collect();
    format!("| check | | |\n|---|---|---|\n{rows}")
}

fn training(runs: &[Training]) -> String {
    let heads = [
        "model and allocator",
        "batch",
        "step, one length",
        "step, lengths vary",
        "the slowest",
        "of steps",
        "steps from an empty cache",
        "of it, the driver",
        "the same again",
        "peak allocated",
        "peak reserved",
        "largest batch",
    ];
    let row = |run: &Training| {
        let of = &run.outcome;
        let milliseconds =
            |value: Option<f64>| value.map_or(NOTHING.into(), |ms| format!("{ms:.1} ms"));
        let memory = |value: Option<u64>| value.map_or(NOTHING.into(), bytes);
        let largest = match (of.largest_batch, of.smallest_too_large) {
            (None, _) => NOTHING.to_owned(),
            (Some(fits), Some(too_large)) if too_large == fits + 1 => fits.to_string(),
            (Some(fits), Some(too_large)) => format!("{fits} (not {too_large})"),
            (Some(fits), None) => format!("{fits} or more"),
        };
        vec![
            format!("{}, {}", run.model, run.allocator),
            of.batch.map_or(NOTHING.into(), |batch| batch.to_string()),
            milliseconds(of.fixed_step_ms),
            milliseconds(of.varied_step_ms),
            milliseconds(of.slowest_varied_step_ms),
            of.varied_steps.map_or(NOTHING.into(), |steps| steps.to_string()),
            match (of.first_steps, of.first_steps_ms) {
                (Some(steps), Some(ms)) => format!("{steps}: {ms:.0} ms"),
                _ => NOTHING.into(),
            },
            milliseconds(of.first_steps_driver_ms),
            of.same_steps_again_ms.map_or(NOTHING.into(), |ms| format!("{ms:.0} ms")),
            memory(of.peak_allocated_bytes),
            memory(of.peak_reserved_bytes),
            largest,
        ]
    };
    let mut text = table(&heads, runs.iter().map(row));
    if let Some(limit_bytes) = runs.iter().find_map(|run| run.outcome.limit_bytes) {
        let _ = writeln!(text, "\nMemory was limited to {} for all.", bytes(limit_bytes));
    }
    if let Some(version) = runs.iter().find_map(|run| run.outcome.pytorch.as_ref()) {
        let _ = writeln!(text, "\nPyTorch {version}.");
    }
    for run in runs {
        if let Some(error) = &run.outcome.error {
            let _ = writeln!(text, "\n*{}, {}: {error}*", run.model, run.allocator);
        }
    }
    text
}

/// A number as Rust source has it, in groups of three digits.
fn grouped(number: u64) -> String {
    count(number).replace(',', "_")
}

#[cfg(test)]
mod tests;
