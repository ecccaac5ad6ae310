//! `genesis plan --batch`: the largest batch that a device can hold.

use std::collections::BTreeSet;

use genesis_replay::batch::{Batch, Batches};
use genesis_replay::{Error, Result};

use super::super::Answer;
use super::{Arguments, fits, text};

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> Result<Answer> {
    let distinct: BTreeSet<u64> = arguments.batch.iter().map(|(batch, _)| *batch).collect();
    if distinct.len() < 2 || distinct.len() < arguments.batch.len() {
        return Err(Error::usage("--batch: a line needs recordings of at least two batch sizes"));
    }
    let recorded = arguments
        .batch
        .iter()
        .map(|(batch, input)| Ok(Batch { batch: *batch, plan: fits::plan(input, arguments)? }));
    let batches = Batches::new(recorded.collect::<Result<_>>()?);
    let is_failure = batches.largest.iter().all(|one| one.predicted.unwrap_or(0) == 0);
    let text = if arguments.json {
        format!("{}\n", serde_json::json!(batches))
    } else {
        text::of_batches(&batches)
    };
    Ok(Answer { text, is_failure })
}
