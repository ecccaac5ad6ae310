//! What larger batches would need, from recordings of a few.
//!
//! The live peak is fitted as a line over the batch, by least squares. What a strategy needs above
//! the live peak is not fitted: the highest ratio that was measured is taken. With three recordings
//! or more, the line through all but the largest batch is compared with that one, and its error
//! widens every prediction; a line through two points has no error that could be known. What was
//! replayed counts more than what is predicted.

use serde::{Deserialize, Serialize};

use crate::forecast::Plan;

/// One recorded batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its size.
    pub batch: u64,
    /// What is known of it.
    pub plan: Plan,
}

/// Live bytes over the batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Bytes without a batch.
    pub fixed_bytes: f64,
    /// Bytes for each one of the batch.
    pub bytes_per_one: f64,
}

/// The line's error on a batch that it was not made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The batch.
    pub batch: u64,
    /// Its live peak as predicted.
    pub predicted_bytes: f64,
    /// As recorded.
    pub recorded_bytes: u64,
    /// Their difference / as recorded.
    pub error_ratio: f64,
}

/// The largest batch of one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// The strategy.
    pub strategy: String,
    /// The most it needed above the live peak: smallest device / live peak of any recording; `None`
    /// if it completes on no device.
    pub device_over_live: Option<f64>,
    /// The largest recorded batch that completed on the device; `None` if none did.
    pub replayed: Option<u64>,
    /// The smallest recorded batch that failed.
    pub failed: Option<u64>,
    /// The largest batch that is predicted to fit: at least `replayed`, else less than `failed`; `None`
    /// if nothing can be said.
    pub predicted: Option<u64>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// The recordings, by batch.
    pub recorded: Vec<Batch>,
    /// The line through all of them.
    pub line: Line,
    /// Its error; `None` with two recordings.
    pub held_out: Option<HeldOut>,
    /// The largest batch of each strategy.
    pub largest: Vec<Largest>,
}

impl Line {
    /// The line of least squares through `points`, at least two of them with distinct batches.
    fn through(points: &[(u64, u64)]) -> Self {
        let count = points.len() as f64;
        let mean_of = |value: fn(&(u64, u64)) -> u64| {
            points.iter().map(|point| value(point) as f64).sum::<f64>() / count
        };
        let (batch, bytes) = (mean_of(|point| point.0), mean_of(|point| point.1));
        let apart = |point: &(u64, u64)| (point.0 as f64 - batch, point.1 as f64 - bytes);
        let products = points.iter().map(apart).map(|(x, y)| x * y).sum::<f64>();
        let squares = points.iter().map(apart).map(|(x, _)| x * x).sum::<f64>();
        let bytes_per_one = products / squares;
        Self { fixed_bytes: bytes - bytes_per_one * batch, bytes_per_one }
    }

    /// The live peak of `batch`.
    pub fn at(&self, batch: u64) -> f64 {
        self.fixed_bytes + self.bytes_per_one * batch as f64
    }
}

impl Batches {
    /// What follows from `recorded`, at least two with distinct batches, on one device and under the
    /// same strategies.
    pub fn new(mut recorded: Vec<Batch>) -> Self {
        recorded.sort_by_key(|batch| batch.batch);
        let points: Vec<(u64, u64)> =
            recorded.iter().map(|batch| (batch.batch, batch.plan.lower_bound_bytes)).collect();
        let line = Line::through(&points);
        let held_out = held_out(&points);
        let error_ratio = held_out.map_or(0.0, |held_out| held_out.error_ratio.abs());
        let strategies = 0..recorded[0].plan.strategies.len();
        let largest = strategies.map(|row| largest(&recorded, row, line, error_ratio)).collect();
        Self { recorded, line, held_out, largest }
    }

    /// The largest batch recorded.
    pub fn largest_recorded(&self) -> u64 {
        self.recorded.iter().map(|batch| batch.batch).max().unwrap_or(0)
    }
}

fn held_out(points: &[(u64, u64)]) -> Option<HeldOut> {
    let (&(batch, recorded_bytes), others) = points.split_last()?;
    if others.len() < 2 {
        return None;
    }
    let predicted_bytes = Line::through(others).at(batch);
    let error_ratio = (predicted_bytes - recorded_bytes as f64) / recorded_bytes as f64;
    Some(HeldOut { batch, predicted_bytes, recorded_bytes, error_ratio })
}

/// The largest batch of the strategy in row `row` of every recording.
fn largest(recorded: &[Batch], row: usize, line: Line, error_ratio: f64) -> Largest {
    let of = |batch: &Batch| batch.plan.strategies[row].clone();
    let ratio = |batch: &Batch| {
        let smallest_bytes = of(batch).smallest_device_bytes?;
        Some(smallest_bytes as f64 / batch.plan.lower_bound_bytes as f64)
    };
    let ratios: Option<Vec<f64>> = recorded.iter().map(ratio).collect();
    let device_over_live = ratios.and_then(|ratios| ratios.into_iter().reduce(f64::max));
    let fitting = recorded.iter().filter(|batch| of(batch).fits).map(|batch| batch.batch);
    let failing = recorded.iter().filter(|batch| !of(batch).fits).map(|batch| batch.batch);
    let (replayed, failed) = (fitting.max(), failing.min());
    let live_bytes = device_over_live
        .map(|over_live| recorded[0].plan.device_bytes as f64 / (over_live * (1.0 + error_ratio)));
    let predicted = live_bytes.filter(|_| line.bytes_per_one > 0.0).map(|live_bytes| {
        let batch = ((live_bytes - line.fixed_bytes) / line.bytes_per_one).max(0.0) as u64;
        let below_failed = failed.map_or(batch, |failed| batch.min(failed - 1));
        below_failed.max(replayed.unwrap_or(0))
    });
    let strategy = of(&recorded[0]).strategy;
    Largest { strategy, device_over_live, replayed, failed, predicted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Forecast;

    fn batch(batch: u64, live_bytes: u64, smallest_bytes: u64) -> Batch {
        let device_bytes = 10_000;
        let forecast = Forecast {
            strategy: "S".to_owned(),
            fits: device_bytes >= smallest_bytes,
            failure: None,
            smallest_device_bytes: Some(smallest_bytes),
            failing_device_bytes: None,
            margin_bytes: None,
            margin_ratio: None,
            replays: 0,
        };
        let plan = Plan {
            trace: String::new(),
            calls: 0,
            iterations: 0,
            passes: 3,
            device_bytes,
            lower_bound_bytes: live_bytes,
            strategies: vec![forecast],
            remarks: Vec::new(),
        };
        Batch { batch, plan }
    }

    #[test]
    fn two_recordings_give_a_line_whose_error_is_unknown() {
        let batches = Batches::new(vec![batch(16, 2600, 2860), batch(8, 1800, 1800)]);
        let line = Line { fixed_bytes: 1000.0, bytes_per_one: 100.0 };
        assert_eq!((batches.line, batches.held_out), (line, None));
        // 10,000 / 1.1 = 9,090, of which 1,000 are fixed.
        let largest = &batches.largest[0];
        assert_eq!(
            (largest.predicted, largest.replayed, largest.failed),
            (Some(80), Some(16), None)
        );
    }

    #[test]
    fn the_error_of_three_makes_the_prediction_smaller() {
        let exact = [batch(8, 1800, 1800), batch(16, 2600, 2600), batch(32, 4200, 4200)];
        let batches = Batches::new(exact.to_vec());
        assert_eq!(batches.held_out.unwrap().error_ratio, 0.0);
        assert_eq!(batches.largest[0].predicted, Some(90));
        let bent = [exact[0].clone(), exact[1].clone(), batch(32, 5250, 5250)];
        let batches = Batches::new(bent.to_vec());
        let held_out = batches.held_out.unwrap();
        assert_eq!((held_out.predicted_bytes, held_out.error_ratio), (4200.0, -0.2));
        let without_error = (10_000.0 - batches.line.fixed_bytes) / batches.line.bytes_per_one;
        assert!((batches.largest[0].predicted.unwrap() as f64) < without_error * 0.85);
    }

    #[test]
    fn what_was_replayed_counts_more_than_what_is_predicted() {
        // The larger needs twice its live peak and fails; the line alone would promise more.
        let batches = Batches::new(vec![batch(10, 1000, 1000), batch(60, 6000, 12_000)]);
        let largest = &batches.largest[0];
        assert_eq!(
            (largest.replayed, largest.failed, largest.predicted),
            (Some(10), Some(60), Some(50))
        );
        let flat = Batches::new(vec![batch(10, 1000, 1000), batch(60, 1000, 1000)]);
        assert_eq!(flat.largest[0].predicted, None, "memory does not depend on the batch");
    }
}
