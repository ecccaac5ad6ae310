//! `genesis plan INPUT --device-memory`: whether a program fits, under which strategy.

use std::path::Path;

use genesis::config::PoolType;
use genesis_replay::forecast::{Forecast, Plan, Recorded, forecast};
use genesis_replay::job::Job;
use genesis_replay::trial::TrialJob;
use genesis_replay::{Error, Result};

use super::super::{Answer, JOB_COMMAND};
use super::recording::Recording;
use super::{Arguments, text};
use crate::{picture, progress};

/// Runs the command.
pub(super) fn run(input: &Path, arguments: &Arguments) -> Result<Answer> {
    let plan = plan(input, arguments)?;
    if let Some(path) = &arguments.picture {
        picture::plan::draw(path, &plan)?;
    }
    let text = if arguments.json {
        format!("{}\n", serde_json::json!(plan))
    } else {
        text::of_plan(&plan)
    };
    Ok(Answer { text, is_failure: !plan.fits() })
}

/// The strategies asked about.
pub(super) fn strategies(arguments: &Arguments) -> Vec<String> {
    let all = || PoolType::ALL.iter().map(|pool_type| pool_type.name().to_owned()).collect();
    if arguments.strategy.is_empty() { all() } else { arguments.strategy.clone() }
}

/// The replay of `trace` under `strategy`.
pub(super) fn job(arguments: &Arguments, trace: &Path, strategy: &str) -> Result<Job> {
    let job = arguments.replay.job(trace, Some(strategy), &[])?;
    Ok(Job { warm_passes: arguments.warm.into(), ..job })
}

/// What each strategy needs for the program in `input`.
fn plan(input: &Path, arguments: &Arguments) -> Result<Plan> {
    let device_bytes = arguments.device_bytes()?;
    let recording = Recording::load(input, &arguments.replay)?;
    let strategies = strategies(arguments);
    // All jobs first, so that a mistake in one is found before any runs.
    let job = |strategy: &String| job(arguments, &recording.trace, strategy);
    let jobs: Vec<Job> = strategies.iter().map(job).collect::<Result<_>>()?;
    let bar = progress::replays(jobs.len());
    let strategies = jobs.iter().zip(&strategies).map(|(job, strategy)| {
        bar.set_message(format!("{} under {strategy}", recording.name));
        let found = one(&recording, device_bytes, job).map_err(|error| Error {
            message: format!("{} under {strategy}: {error}", recording.name),
            ..error
        });
        bar.inc(1);
        found
    });
    let strategies = strategies.collect::<Result<_>>();
    bar.finish_and_clear();
    Ok(Plan {
        trace: recording.name,
        calls: recording.program.calls.len() as u64,
        iterations: recording.program.iteration_ends.len() as u64,
        passes: u64::from(arguments.warm) + 1,
        device_bytes,
        lower_bound_bytes: recording.program.largest_device_peak_bytes,
        strategies: strategies?,
        remarks: recording.remarks,
    })
}

fn one(recording: &Recording, device_bytes: u64, job: &Job) -> Result<Forecast> {
    let recorded = Recorded { program: &recording.program, sites: &recording.sites };
    forecast(recorded, device_bytes, |device_bytes| {
        TrialJob { job: job.clone(), device_bytes }.run_apart(&[JOB_COMMAND])
    })
}
