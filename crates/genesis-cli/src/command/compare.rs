//! `genesis compare`: traces under every strategy, side by side.
//!
//! Each replay has a process of its own, and they run one after the other, because their times are
//! compared. A replay that fails becomes a line of its own and does not stop the others.

use std::path::PathBuf;

use clap::Args;
use genesis::base::size::Bytes;
use genesis::config::PoolType;
use genesis_replay::job::{Job, trace_name};
use genesis_replay::report::Report;
use genesis_replay::table::{Table, duration, grouped};
use genesis_replay::{Error, Result};

use super::{Answer, JOB_COMMAND, ReplayArguments};
use crate::{picture, progress};

/// Points of a line in the picture.
const SAMPLE_COUNT: usize = 2000;

/// Replay traces under every strategy and show them side by side
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Traces of format GTR1, plain or Zstandard-compressed, or logs of RMM's (CSV)
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// The strategies, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Draw live and reserved memory over time into this SVG file (one thread only)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    replay: ReplayArguments,
}

/// The report of one strategy, or why there is none.
type Outcome = std::result::Result<Report, String>;

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let Arguments { traces: _, strategies, output, replay } = arguments;
    if output.is_some() && replay.threads > 1 {
        return Err(Error::usage("a picture can be drawn of one thread only"));
    }
    let strategies: Vec<&str> = if strategies.is_empty() {
        PoolType::ALL.iter().map(|pool_type| pool_type.name()).collect()
    } else {
        strategies.iter().map(String::as_str).collect()
    };
    let outcomes = replay_all(arguments, &strategies)?;
    let reports: Vec<Vec<&Report>> =
        outcomes.iter().map(|outcomes| outcomes.iter().flatten().collect()).collect();
    // If every replay failed, there is nothing to draw, and the text says why.
    let is_drawable = reports.iter().any(|reports| !reports.is_empty());
    if let Some(path) = output.as_ref().filter(|_| is_drawable) {
        picture::draw(path, &reports)?;
    }
    let text = if replay.json {
        format!("{}\n", serde_json::json!(reports.concat()))
    } else {
        outcomes.iter().map(|outcomes| describe(outcomes)).collect::<Vec<_>>().join("\n")
    };
    let is_failure = outcomes.iter().flatten().any(Outcome::is_err);
    if is_failure && replay.json {
        for message in outcomes.iter().flatten().filter_map(|outcome| outcome.as_ref().err()) {
            eprintln!("genesis: {message}");
        }
    }
    Ok(Answer { text, is_failure })
}

/// Every trace under every strategy; outcomes by trace. A mistake of the user's ends it.
fn replay_all(arguments: &Arguments, strategies: &[&str]) -> Result<Vec<Vec<Outcome>>> {
    let sample_count = if arguments.output.is_some() { SAMPLE_COUNT } else { 0 };
    let job = |trace: &PathBuf, strategy: &&str| {
        arguments.replay.job(trace, Some(strategy), sample_count)
    };
    // All jobs first, so that a mistake in one is found before any runs.
    let jobs = arguments
        .traces
        .iter()
        .map(|trace| strategies.iter().map(|strategy| job(trace, strategy)).collect())
        .collect::<Result<Vec<Vec<Job>>>>()?;
    let bar = progress::replays(jobs.iter().map(Vec::len).sum());
    let replay = |job: &Job, strategy: &&str| {
        let name = format!("{} under {strategy}", trace_name(&job.trace));
        bar.set_message(name.clone());
        let outcome = job.run_apart(&[JOB_COMMAND]);
        bar.inc(1);
        match outcome {
            Err(error) if error.is_usage => Err(error),
            outcome => Ok(outcome.map_err(|error| format!("{name}: {error}"))),
        }
    };
    let outcomes = jobs
        .iter()
        .map(|jobs| jobs.iter().zip(strategies).map(|(job, name)| replay(job, name)).collect())
        .collect();
    bar.finish_and_clear();
    outcomes
}

fn describe(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut table = Table::new(&[
        "strategy",
        "reserved peak",
        "live peak",
        "reserved/live",
        "fragmentation",
        "ns/op warm",
        "driver calls cold",
        "warm",
        "driver time cold",
        "warm",
        "failures",
    ]);
    for report in outcomes.iter().flatten() {
        if text.is_empty() {
            text = heading(report);
        }
        table.add(row(report));
    }
    text += &table.to_string();
    for message in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        text += &format!("failed: {message}\n");
    }
    text
}

fn heading(report: &Report) -> String {
    let threads = match report.threads {
        1 => String::new(),
        threads => format!(" on each of {threads} threads"),
    };
    format!(
        "{}: {} calls{threads}, backend {}, of each ns/op {:.1} are the replay's own loop; {}\n",
        report.trace,
        grouped(report.calls),
        report.backend,
        report.loop_ns_per_call,
        report.driver_time_source(),
    )
}

fn row(report: &Report) -> Vec<String> {
    let warm = report.warm.last();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    vec![
        report.strategy.clone(),
        Bytes(report.cold.reserved_peak_bytes).to_string(),
        Bytes(report.live_peak_bytes).to_string(),
        or_dash(report.reserved_over_live().map(|ratio| format!("{ratio:.3}"))),
        or_dash(report.fragmentation_ratio.map(|ratio| format!("{ratio:.3}"))),
        or_dash(report.warm_ns_per_call().map(|ns| format!("{ns:.1}"))),
        grouped(report.cold.driver_calls),
        or_dash(warm.map(|pass| grouped(pass.driver_calls))),
        duration(report.cold.driver_ns),
        or_dash(warm.map(|pass| duration(pass.driver_ns))),
        grouped(report.failures()),
    ]
}
