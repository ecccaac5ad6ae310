//! The largest batch that a device can hold, from recordings of a few.
//!
//! The program is predicted at other batches ([`crate::prediction`]), and the prediction replayed
//! on the device under each strategy; bisection finds the largest batch that completes. A
//! prediction is tested on what it was not made of: with three recordings or more each is left out
//! in turn, and predicted from the others. The largest error so found is kept free on the device.
//! With two, the error is not known. What was replayed as recorded counts more than what is
//! predicted: a batch that failed is never said to fit, and one that completed always is.
//!
//! Live bytes alone give a bound: the batch at which they no longer fit, whatever the allocator.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::forecast::{MOST_DEVICE_BYTES, PAGE_BYTES};
use crate::prediction::{Prediction, Recording, SiteCurve};
use crate::record::Record;
use crate::trial::Trial;

/// No larger batch is tried.
const MOST_BATCH: u64 = 1 << 40;
/// At so many batches the live peak is told.
const COURSE_STEPS: u64 = 48;

/// A recording, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Its batch.
    pub batch: u64,
    /// The program's name.
    pub trace: String,
    /// Calls in one pass.
    pub calls: u64,
    /// Its iterations.
    pub iterations: u64,
    /// The most bytes live on one device, each request rounded up to 512 bytes.
    pub live_peak_bytes: u64,
}

/// A peak that was predicted from the other recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The batch.
    pub batch: u64,
    /// Whose reserved memory; `None` for live bytes.
    pub strategy: Option<String>,
    /// The peak as predicted.
    pub predicted_bytes: u64,
    /// As recorded, or as replayed from the recording.
    pub recorded_bytes: u64,
    /// Their difference / as recorded.
    pub error_ratio: f64,
}

/// The largest batch of one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// The strategy.
    pub strategy: String,
    /// The largest batch found to fit, 0 if none does; `None` if memory does not grow with the
    /// batch.
    pub predicted: Option<u64>,
    /// The most that one device held in the replay of it; `None` if it is not a prediction.
    pub reserved_peak_bytes: Option<u64>,
    /// The largest error of live and of reserved bytes, which is kept free on the device; `None`
    /// with two recordings.
    pub error_ratio: Option<f64>,
    /// The largest recorded batch that completed on the device; `None` if none did.
    pub replayed: Option<u64>,
    /// The smallest recorded batch that failed.
    pub failed: Option<u64>,
    /// How many replays said so.
    pub replays: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// The device asked about, in bytes.
    pub device_bytes: u64,
    /// The recordings, by batch.
    pub recorded: Vec<Batch>,
    /// Each recording against its prediction from the others; none with two recordings.
    pub held_out: Vec<HeldOut>,
    /// What is live at the peak of the largest recording: all of it.
    pub live: SiteCurve,
    /// The same by call site, those with most bytes first.
    pub sites: Vec<SiteCurve>,
    /// The largest batch whose live peak the device can hold; `None` if the peak does not grow.
    pub bound: Option<u64>,
    /// The live peak over the batch: some batches, and bytes.
    pub course: Vec<(u64, u64)>,
    /// The largest batch of each strategy.
    pub largest: Vec<Largest>,
    /// What limits these answers.
    pub remarks: Vec<String>,
}

/// What is replayed.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The recording of this batch.
    Recorded(u64),
    /// A prediction.
    Predicted(&'a [Record]),
}

/// Replays a subject under the strategy of this index, on a device of so many bytes.
type TryOn<'a> = &'a mut dyn FnMut(Subject<'_>, usize, u64) -> Result<Trial>;

impl Batches {
    /// What follows from `recordings`, of which `try_on` makes replays under `strategies`.
    pub fn new(
        mut recordings: Vec<Recording<'_>>,
        device_bytes: u64,
        strategies: usize,
        try_on: TryOn<'_>,
    ) -> Result<Self> {
        recordings.sort_by_key(|recording| recording.batch);
        let is_repeated = recordings.windows(2).any(|pair| pair[0].batch == pair[1].batch);
        if recordings.len() < 2 || is_repeated {
            return Err(Error::usage("--batch: give a recording of each of two batches at least"));
        }
        let prediction = Prediction::new(&recordings)?;
        let bound = bound(&prediction, recordings[recordings.len() - 1].batch, device_bytes);
        let others = held_out(&recordings)?;
        let mut held_out = held_out_live(&others);
        let search = Search {
            recordings: &recordings,
            held_out: &others,
            prediction: &prediction,
            device_bytes,
            bound,
        };
        let mut largest = Vec::with_capacity(strategies);
        for row in 0..strategies {
            let mut replays = Replays { row, count: 0, try_on };
            let reserved = search.held_out_reserved(&mut replays)?;
            let errors = held_out.iter().filter(|one| one.strategy.is_none()).chain(&reserved);
            let error_ratio = errors.map(|one| one.error_ratio.abs()).reduce(f64::max);
            largest.push(search.largest(&mut replays, error_ratio)?);
            held_out.extend(reserved);
        }
        let (sites, live) = prediction.sites();
        Ok(Self {
            device_bytes,
            held_out,
            live,
            sites,
            bound,
            course: course(&prediction, &recordings, bound),
            largest,
            recorded: recordings.iter().map(Batch::of).collect(),
            remarks: Vec::new(),
        })
    }

    /// The largest batch recorded.
    pub fn largest_recorded(&self) -> u64 {
        self.recorded.iter().map(|batch| batch.batch).max().unwrap_or(0)
    }
}

impl Batch {
    fn of(recording: &Recording<'_>) -> Self {
        let program = recording.program;
        Self {
            batch: recording.batch,
            trace: recording.name.to_owned(),
            calls: program.calls.len() as u64,
            iterations: program.iteration_ends.len() as u64,
            live_peak_bytes: program.largest_device_peak_bytes,
        }
    }
}

impl HeldOut {
    fn new(batch: u64, strategy: Option<String>, predicted: u64, recorded: u64) -> Self {
        let error_ratio = (predicted as f64 - recorded as f64) / recorded.max(1) as f64;
        let (predicted_bytes, recorded_bytes) = (predicted, recorded);
        Self { batch, strategy, predicted_bytes, recorded_bytes, error_ratio }
    }
}

/// Each of `recordings` with the prediction from all others; none of fewer than three.
fn held_out<'a>(recordings: &[Recording<'a>]) -> Result<Vec<(Recording<'a>, Prediction<'a>)>> {
    let others = |out: usize| {
        let kept = recordings.iter().enumerate().filter(move |(number, _)| *number != out);
        kept.map(|(_, recording)| *recording).collect::<Vec<_>>()
    };
    let pair = |(number, recording): (usize, &Recording<'a>)| {
        Ok((*recording, Prediction::new(&others(number))?))
    };
    let count = if recordings.len() < 3 { 0 } else { recordings.len() };
    recordings.iter().enumerate().take(count).map(pair).collect()
}

fn held_out_live(held_out: &[(Recording<'_>, Prediction<'_>)]) -> Vec<HeldOut> {
    let live = |(recording, prediction): &(Recording<'_>, Prediction<'_>)| {
        let predicted_bytes = prediction.live_peak_bytes(recording.batch).unwrap_or(u64::MAX);
        let recorded_bytes = recording.program.largest_device_peak_bytes;
        HeldOut::new(recording.batch, None, predicted_bytes, recorded_bytes)
    };
    held_out.iter().map(live).collect()
}

/// The largest batch whose live peak is at most `device_bytes`; `None` if the peak does not grow.
fn bound(prediction: &Prediction<'_>, recorded: u64, device_bytes: u64) -> Option<u64> {
    let fits = |batch: u64| {
        prediction.live_peak_bytes(batch).is_some_and(|live_bytes| live_bytes <= device_bytes)
    };
    let (mut enough, mut too_large) = (0, recorded);
    while fits(too_large) {
        (enough, too_large) = (too_large, too_large * 2);
        if too_large > MOST_BATCH {
            return None;
        }
    }
    while too_large - enough > 1 {
        let middle = enough + (too_large - enough) / 2;
        if fits(middle) { enough = middle } else { too_large = middle }
    }
    Some(enough)
}

/// The live peak at some batches, beyond the bound and the recordings.
fn course(
    prediction: &Prediction<'_>,
    recordings: &[Recording<'_>],
    bound: Option<u64>,
) -> Vec<(u64, u64)> {
    let recorded = recordings.iter().map(|recording| recording.batch).max().unwrap_or(1);
    let end = bound.unwrap_or(0).max(recorded).saturating_mul(9) / 8 + 1;
    let batches = (0..=COURSE_STEPS).map(|step| (end * step / COURSE_STEPS).max(1));
    let mut course: Vec<(u64, u64)> =
        batches.filter_map(|batch| Some((batch, prediction.live_peak_bytes(batch)?))).collect();
    course.dedup();
    course
}

/// Replays under one strategy.
struct Replays<'a, 'b> {
    row: usize,
    count: u64,
    try_on: &'a mut (dyn FnMut(Subject<'_>, usize, u64) -> Result<Trial> + 'b),
}

impl Replays<'_, '_> {
    fn on(&mut self, subject: Subject<'_>, device_bytes: u64) -> Result<Trial> {
        self.count += 1;
        (self.try_on)(subject, self.row, device_bytes)
    }
}

/// The search for the largest batch.
struct Search<'a> {
    recordings: &'a [Recording<'a>],
    /// Each recording with the prediction from all others.
    held_out: &'a [(Recording<'a>, Prediction<'a>)],
    prediction: &'a Prediction<'a>,
    device_bytes: u64,
    bound: Option<u64>,
}

impl Search<'_> {
    /// The reserved memory of each recording, against that of its prediction from the others.
    fn held_out_reserved(&self, replays: &mut Replays<'_, '_>) -> Result<Vec<HeldOut>> {
        let mut found = Vec::new();
        for (recording, prediction) in self.held_out {
            let batch = recording.batch;
            let predicted = prediction.records(batch);
            let predicted = replays.on(Subject::Predicted(&predicted), MOST_DEVICE_BYTES)?;
            let recorded = replays.on(Subject::Recorded(batch), MOST_DEVICE_BYTES)?;
            let (predicted, recorded_bytes) =
                (predicted.reserved_peak_bytes, recorded.reserved_peak_bytes);
            found.push(HeldOut::new(batch, Some(recorded.strategy), predicted, recorded_bytes));
        }
        Ok(found)
    }

    fn largest(&self, replays: &mut Replays<'_, '_>, error_ratio: Option<f64>) -> Result<Largest> {
        let (mut strategy, mut replayed, mut failed) = (String::new(), None, None);
        for recording in self.recordings {
            let trial = replays.on(Subject::Recorded(recording.batch), self.device_bytes)?;
            strategy = trial.strategy;
            match trial.failed {
                None => replayed = Some(recording.batch),
                Some(_) => failed = failed.or(Some(recording.batch)),
            }
        }
        let room = (self.device_bytes as f64 / (1.0 + error_ratio.unwrap_or(0.0))) as u64;
        let room_bytes = room.max(PAGE_BYTES);
        let (mut predicted, mut reserved_peak_bytes) = (None, None);
        if let Some(bound) = self.bound {
            let mut enough = replayed.unwrap_or(0);
            let mut too_large = failed.unwrap_or(u64::MAX).min(bound + 1).max(enough + 1);
            while too_large - enough > 1 {
                let middle = enough + (too_large - enough) / 2;
                let records = self.prediction.records(middle);
                let trial = replays.on(Subject::Predicted(&records), room_bytes)?;
                match trial.failed {
                    None => {
                        enough = middle;
                        reserved_peak_bytes = Some(trial.reserved_peak_bytes);
                    }
                    Some(_) => too_large = middle,
                }
            }
            predicted = Some(enough);
        }
        let replays = replays.count;
        Ok(Largest {
            strategy,
            predicted,
            reserved_peak_bytes,
            error_ratio,
            replayed,
            failed,
            replays,
        })
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
