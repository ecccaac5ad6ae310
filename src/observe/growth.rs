//! Whether a program's memory grows from step to step, and when it will be used up.
//!
//! At the end of each step two levels are noted: the bytes live then, and the most that were ever
//! live. A leak raises the first, a growing sequence the second. Of each the *running maximum* is
//! followed, so memory that only comes back to where it was is no growth, however long it rises.
//!
//! **Is it growth?** In a program whose steps differ by chance alone, the i-th step has the highest
//! level so far with probability 1/i. So the second half of n steps has ln 2 records on average,
//! however the levels are spread, and nearly never [`LEAST_RECORDS`]. That many are growth, unless
//! it slows down: the second half must rise at least half as fast as the whole.
//!
//! **How fast?** The median of the slopes between all pairs of steps (Theil and Sen): a few steps
//! that are far from the others do not change it.
//!
//! Two windows are looked at: the latest steps, and the whole run thinned to as many, in which a slow
//! leak stands out.

use std::collections::VecDeque;

/// The most steps in a window.
const MOST_STEPS: usize = 64;
/// The latest steps.
const LATEST_STEPS: usize = 32;
/// Fewer steps show nothing.
const LEAST_STEPS: usize = 16;
/// So many records in the second half of a window are no chance: the probability is below 0.0001.
const LEAST_RECORDS: u32 = 6;
/// The part of the slopes between pairs that are below the steep one.
const STEEP_PART: f64 = 0.9;
/// Of two ends one is sooner if it comes within this part of the time to the other.
const SOONER_PART: f64 = 0.9;

/// What is live at the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLevels {
    /// Live then, in bytes.
    pub live_bytes: u64,
    /// The most that were ever live, in bytes.
    pub peak_bytes: u64,
}

/// How much could be live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Possible {
    /// If nothing is lost to fragmentation, in bytes.
    pub most_bytes: u64,
    /// If as much is as so far, in bytes.
    pub fewest_bytes: u64,
}

/// The steps of a program.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    steps: u64,
    /// The running maxima.
    highest: StepLevels,
    /// At which step the peak last rose.
    peaked_at: u64,
    latest: VecDeque<(u64, StepLevels)>,
    /// Of every `stride`-th step.
    all: Vec<(u64, StepLevels)>,
    stride: u64,
}

/// How memory grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// More bytes in each step.
    pub bytes_per_step: f64,
    /// After so many more steps the memory is used up.
    pub steps_left: f64,
    /// The same if memory grows as fast as it sometimes did, and is as fragmented as so far, and the
    /// next step is as high as the highest.
    pub fewest_steps_left: f64,
    /// How sure it is that memory grows: 1 − the probability that chance alone does the same.
    pub confidence: f64,
    /// True if what stays live at the end of a step grows, false if only the peak within a step.
    pub is_leak: bool,
}

impl Growth {
    /// Notes the end of a step.
    pub fn add(&mut self, levels: StepLevels) {
        let StepLevels { live_bytes, peak_bytes } = levels;
        self.highest.live_bytes = self.highest.live_bytes.max(live_bytes);
        let peak_bytes = peak_bytes.max(live_bytes);
        if peak_bytes > self.highest.peak_bytes {
            (self.highest.peak_bytes, self.peaked_at) = (peak_bytes, self.steps);
        }
        let point = (self.steps, self.highest);
        if self.latest.len() == LATEST_STEPS {
            self.latest.pop_front();
        }
        self.latest.push_back(point);
        self.stride = self.stride.max(1);
        if self.steps.is_multiple_of(self.stride) {
            self.all.push(point);
        }
        if self.all.len() == MOST_STEPS {
            self.stride *= 2;
            self.all.retain(|&(step, _)| step.is_multiple_of(self.stride));
        }
        self.steps += 1;
    }

    /// Steps noted.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// When what is `possible` will be used up; `None` if memory does not grow.
    pub fn outlook(&self, possible: Possible) -> Option<Outlook> {
        let left = |bytes: u64| bytes.saturating_sub(self.highest.peak_bytes) as f64;
        let (most_bytes, fewest_bytes) = (left(possible.most_bytes), left(possible.fewest_bytes));
        // Only some steps are high. What grew since the last one adds to the next, whenever that is.
        let steps_since = self.steps.saturating_sub(self.peaked_at + 1) as f64;
        let latest: Vec<_> = self.latest.iter().copied().collect();
        let levels: [(Level, bool); 2] =
            [(|levels| levels.live_bytes, true), (|levels| levels.peak_bytes, false)];
        let outlooks = [&latest[..], &self.all].into_iter().flat_map(|window| {
            levels.iter().filter_map(move |&(level, is_leak)| {
                let points: Vec<_> =
                    window.iter().map(|(step, levels)| (*step, level(levels))).collect();
                let trend = Trend::of(&points)?;
                Some(Outlook {
                    bytes_per_step: trend.slope,
                    steps_left: most_bytes / trend.slope,
                    fewest_steps_left: (fewest_bytes / trend.steep - steps_since).max(0.0),
                    confidence: trend.confidence,
                    is_leak,
                })
            })
        });
        // Of two that grow about as fast, the first: a leak raises the peak as well.
        let is_sooner =
            |other: &Outlook, one: &Outlook| other.steps_left < one.steps_left * SOONER_PART;
        outlooks.reduce(|one, other| if is_sooner(&other, &one) { other } else { one })
    }
}

/// One of a step's levels.
type Level = fn(&StepLevels) -> u64;

/// How a running maximum rises, in bytes a step.
#[derive(Clone, Copy, Debug)]
struct Trend {
    slope: f64,
    steep: f64,
    confidence: f64,
}

impl Trend {
    fn of(points: &[(u64, u64)]) -> Option<Self> {
        if points.len() < LEAST_STEPS {
            return None;
        }
        let second = &points[points.len() / 2..];
        let before = &points[points.len() / 2 - 1..];
        let records = before.windows(2).filter(|pair| pair[1].1 > pair[0].1).count() as u32;
        if records < LEAST_RECORDS {
            return None;
        }
        let (whole, late) = (slopes(points), slopes(second));
        let slope = at(&late, 0.5);
        (slope > 0.0 && slope >= at(&whole, 0.5) / 2.0).then(|| Self {
            slope,
            steep: at(&late, STEEP_PART).max(at(&whole, STEEP_PART)),
            confidence: 1.0 - chance(records),
        })
    }
}

/// The slopes between all pairs of points, rising.
fn slopes(points: &[(u64, u64)]) -> Vec<f64> {
    let pairs = points.iter().enumerate().flat_map(|(n, one)| {
        points[..n]
            .iter()
            .map(move |before| (one.1 as f64 - before.1 as f64) / (one.0 - before.0) as f64)
    });
    let mut slopes: Vec<f64> = pairs.collect();
    slopes.sort_unstable_by(f64::total_cmp);
    slopes
}

/// The value above `part` of `sorted`, which is not empty.
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

/// The probability of so many records or more by chance: of a Poisson distribution of mean ln 2.
fn chance(records: u32) -> f64 {
    let mean = std::f64::consts::LN_2;
    let mut term = (-mean).exp();
    let mut fewer = 0.0;
    for count in 0..records {
        fewer += term;
        term *= mean / f64::from(count + 1);
    }
    1.0 - fewer
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Random numbers below `below`, the same in every run.
    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        }
    }

    /// Steps that each leave `left(step)` live and need `more(step)` while they run.
    fn run(
        steps: u64,
        mut left: impl FnMut(u64) -> u64,
        mut more: impl FnMut(u64) -> u64,
    ) -> Vec<Growth> {
        let (mut growth, mut peak_bytes) = (Growth::default(), 0);
        let step = |step| {
            let live_bytes = left(step);
            peak_bytes = (live_bytes + more(step)).max(peak_bytes);
            growth.add(StepLevels { live_bytes, peak_bytes });
            growth.clone()
        };
        (0..steps).map(step).collect()
    }

    /// Without fragmentation.
    fn all(bytes: u64) -> Possible {
        Possible { most_bytes: bytes, fewest_bytes: bytes }
    }

    fn first_alarm(run: &[Growth], usable_bytes: u64) -> Option<(u64, Outlook)> {
        run.iter().find_map(|growth| Some((growth.steps(), growth.outlook(all(usable_bytes))?)))
    }

    #[test]
    fn a_leak_is_seen_early_and_its_end_is_foretold() {
        for (bytes, every) in [(MIB, 1), (30 * MIB, 1), (5 * MIB, 7), (MIB, 50)] {
            let mut noise = random(bytes + every);
            let left = |step| 1000 * MIB + step / every * bytes + noise(1000);
            let run = run(4000, left, |_| 500 * MIB);
            // It is used up after 3000 steps.
            let usable_bytes = 1500 * MIB + 3000 / every * bytes;
            let (step, outlook) = first_alarm(&run, usable_bytes).unwrap();
            assert!(step <= 16 * every.max(2), "{bytes} every {every}: only after {step}");
            assert!(outlook.is_leak && outlook.confidence > 0.999, "{outlook:?}");
            for seen in [2000, 2900] {
                let outlook = run[seen].outlook(all(usable_bytes)).unwrap();
                let left = 3000.0 - seen as f64;
                let error = (outlook.steps_left - left).abs() / left;
                assert!(error < 0.3, "{bytes} every {every}, {left} before: {outlook:?}");
                assert!(outlook.fewest_steps_left <= outlook.steps_left);
            }
        }
    }

    /// What has leaked since the last high step adds to the next one.
    #[test]
    fn the_earliest_end_is_foretold_though_few_steps_are_high() {
        let more = |step| if step % 30 == 0 { 500 * MIB } else { 100 * MIB };
        let run = run(3000, |step| step * 5 * MIB, more);
        // It is used up by step 3000, a high one.
        let usable_bytes = 3000 * 5 * MIB + 500 * MIB;
        for seen in [1999, 2939, 2969] {
            let outlook = run[seen].outlook(all(usable_bytes)).unwrap();
            let left = 3000.0 - seen as f64;
            let error = (outlook.fewest_steps_left - left).abs();
            assert!(outlook.is_leak && error < 0.01 * left + 1.0, "{left} before: {outlook:?}");
        }
    }

    #[test]
    fn a_growing_sequence_is_seen_though_nothing_stays() {
        let mut noise = random(3);
        let run = run(600, |_| 1000 * MIB, |step| step * 2 * MIB + noise(20 * MIB));
        let (step, outlook) = first_alarm(&run, 2200 * MIB).unwrap();
        assert!(step < 64 && !outlook.is_leak, "{step}: {outlook:?}");
        let outlook = run[500].outlook(all(2200 * MIB)).unwrap();
        assert!((60.0..140.0).contains(&outlook.steps_left), "{outlook:?}");
    }

    #[test]
    fn steps_that_differ_by_chance_are_no_growth() {
        let mut alarms = 0;
        for seed in 0..200 {
            let (mut left, mut more) = (random(seed), random(seed + 1000));
            let run = run(400, |_| 1000 * MIB + left(MIB), |_| more(900 * MIB));
            alarms += u32::from(first_alarm(&run, 1950 * MIB).is_some());
        }
        assert!(alarms <= 2, "{alarms} of 200");
    }

    #[test]
    fn what_comes_back_and_what_ends_is_no_growth() {
        // A start that grows, and then nothing more does.
        let start = run(500, |step| step.min(12) * 100 * MIB, |_| 10 * MIB);
        assert_eq!(first_alarm(&start[..], 5000 * MIB), None);
        // Epochs: each grows to where the one before had been.
        let epochs = run(2000, |step| step % 100 * MIB, |_| 10 * MIB);
        assert!(epochs[150..].iter().all(|growth| growth.outlook(all(120 * MIB)).is_none()));
        // Growth that slows down ends far ahead, if at all.
        let slowing = run(500, |step| 1000 * MIB - 1000 * MIB / (step * step + 1), |_| 0);
        let is_far = |growth: &Growth| {
            growth.outlook(all(1100 * MIB)).is_none_or(|outlook| outlook.steps_left > 10_000.0)
        };
        assert!(slowing[100..].iter().all(is_far));
    }
}
