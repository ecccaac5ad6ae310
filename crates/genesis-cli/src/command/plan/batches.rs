//! `genesis plan --batch`: the largest batch that a device can hold.

use std::path::{Path, PathBuf};

use genesis_replay::batch::{Batches, Subject};
use genesis_replay::gtr;
use genesis_replay::job::Job;
use genesis_replay::prediction;
use genesis_replay::trial::{Trial, TrialJob};
use genesis_replay::{Error, Result};

use super::super::profile::Folder;
use super::super::{Answer, JOB_COMMAND};
use super::recording::Recording;
use super::{Arguments, batches_text, fits};
use crate::{picture, progress};

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> Result<Answer> {
    let batches = batches(arguments)?;
    if let Some(path) = &arguments.picture {
        picture::batches::draw(path, &batches)?;
    }
    let text = if arguments.json {
        format!("{}\n", serde_json::json!(batches))
    } else {
        batches_text::of_batches(&batches)
    };
    let is_failure = batches.largest.iter().all(|one| one.predicted.unwrap_or(0) == 0);
    Ok(Answer { text, is_failure })
}

fn batches(arguments: &Arguments) -> Result<Batches> {
    let device_bytes = arguments.device_bytes()?;
    let load = |(batch, input): &(Option<u64>, PathBuf)| recording(*batch, input, arguments);
    let recordings: Vec<_> = arguments.batch.iter().map(load).collect::<Result<_>>()?;
    let strategies = fits::strategies(arguments);
    // All jobs first, so that a mistake in one is found before any runs.
    let job = |trace: &Path, strategy: &String| fits::job(arguments, trace, strategy);
    let jobs: Vec<Job> = strategies
        .iter()
        .map(|strategy| job(&recordings[0].1.trace, strategy))
        .collect::<Result<_>>()?;
    let failed = |error| Error::failed(format!("cannot write a predicted trace: {error}"));
    let folder = Folder::make().map_err(failed)?;
    let predicted = folder.0.join("predicted.gtr");
    let bar = progress::replays(strategies.len());
    let mut try_on = |subject: Subject<'_>, row: usize, device_bytes| -> Result<Trial> {
        bar.set_position(row as u64);
        bar.set_message(format!("under {}", strategies[row]));
        let trace = match subject {
            Subject::Recorded(batch) => {
                let of_batch = recordings.iter().find(|(recorded, _)| *recorded == batch);
                of_batch.map_or(&predicted, |(_, recording)| &recording.trace)
            }
            Subject::Predicted(records) => {
                gtr::write_file(&predicted, records).map_err(failed)?;
                &predicted
            }
        };
        let job = Job { trace: trace.clone(), ..jobs[row].clone() };
        TrialJob { job, device_bytes }.run_apart(&[JOB_COMMAND]).map_err(|error| Error {
            message: format!("under {}: {error}", strategies[row]),
            ..error
        })
    };
    let recorded = recordings.iter().map(|(batch, recording)| prediction::Recording {
        batch: *batch,
        name: &recording.name,
        program: &recording.program,
        sites: &recording.sites,
        stacks: &recording.stacks,
    });
    let batches = Batches::new(recorded.collect(), device_bytes, strategies.len(), &mut try_on);
    bar.finish_and_clear();
    let remark = |recording: &Recording| {
        let name = recording.name.clone();
        recording.remarks.iter().map(move |remark| format!("{name}: {remark}")).collect::<Vec<_>>()
    };
    let remarks = recordings.iter().flat_map(|(_, recording)| remark(recording)).collect();
    Ok(Batches { remarks, ..batches? })
}

/// The recording in `input`, and its batch.
fn recording(batch: Option<u64>, input: &Path, arguments: &Arguments) -> Result<(u64, Recording)> {
    let recording = Recording::load(input, &arguments.replay)?;
    let batch = batch.or(recording.batch).ok_or_else(|| {
        let input = input.display();
        let line = format!("--batch={input}: no mark batch=N in it; --batch=N={input} says it");
        Error::usage(line)
    })?;
    Ok((batch, recording))
}
