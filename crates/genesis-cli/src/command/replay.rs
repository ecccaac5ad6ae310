//! `genesis replay`: one trace under one strategy.

use std::path::PathBuf;

use clap::Args;
use genesis::base::size::Bytes;
use genesis_replay::Result;
use genesis_replay::report::{Pass, Report};
use genesis_replay::table::{Table, duration, grouped};

use super::{Answer, JOB_COMMAND, ReplayArguments};

/// Replay a recorded trace and report time, memory and driver calls
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A trace of format GTR1, plain or Zstandard-compressed, or a log of RMM's (CSV)
    trace: PathBuf,
    /// The strategy [default: $GENESIS_POOL_TYPE, or the library's]
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// With --json: how many samples of live and reserved memory to include
    #[arg(long, value_name = "N", default_value_t = 0)]
    samples: usize,
    #[command(flatten)]
    replay: ReplayArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let Arguments { trace, strategy, samples, replay } = arguments;
    let report = replay.job(trace, strategy.as_deref(), *samples)?.run_apart(&[JOB_COMMAND])?;
    let text =
        if replay.json { format!("{}\n", serde_json::json!(report)) } else { describe(&report) };
    Ok(Answer { text, is_failure: report.failures() > 0 })
}

fn describe(report: &Report) -> String {
    let mut text = format!(
        "{} under {} on backend {}: {} calls, {} iterations, {}\n\n",
        report.trace,
        report.strategy,
        report.backend,
        grouped(report.calls),
        report.iterations,
        match report.threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads at once"),
        },
    );
    text += &passes(report).to_string();
    text += &format!(
        "\nlive peak {} ({} in multiples of 512 B)",
        Bytes(report.live_peak_bytes),
        Bytes(report.live_peak_rounded_bytes),
    );
    if let Some(ratio) = report.reserved_over_live() {
        text += &format!("; reserved {ratio:.3} times as much");
    }
    if let Some(ratio) = report.fragmentation_ratio {
        text += &format!("; fragmentation {ratio:.3} when most was live");
    }
    text += &format!(
        "\nof each ns/op {:.1} are the replay's own loop; {}\n",
        report.loop_ns_per_call,
        report.driver_time_source(),
    );
    if let Some(damage) = &report.damage {
        text += &format!("replayed to where the trace is damaged only: {damage}\n");
    }
    if report.unknown_records > 0 {
        text += &format!("{} records of unknown operations skipped\n", report.unknown_records);
    }
    if report.failures() > 0 {
        text += &format!("{} requests failed: out of memory\n", grouped(report.failures()));
    }
    text
}

fn passes(report: &Report) -> Table {
    let mut table = Table::new(&[
        "pass",
        "ns/op",
        "reserved peak",
        "driver calls",
        "for memory",
        "driver time",
        "failures",
    ]);
    let mut add = |name: String, pass: &Pass| {
        table.add(vec![
            name,
            format!("{:.1}", pass.ns_per_call),
            Bytes(pass.reserved_peak_bytes).to_string(),
            grouped(pass.driver_calls),
            grouped(pass.driver_memory_calls),
            duration(pass.driver_ns),
            grouped(pass.failures),
        ]);
    };
    add("cold".to_owned(), &report.cold);
    for (number, pass) in (1..).zip(&report.warm) {
        add(format!("warm {number}"), pass);
    }
    table
}
