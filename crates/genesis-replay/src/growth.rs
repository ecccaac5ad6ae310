//! How many blocks there are of a request in a loop, at a batch at which it was not recorded.
//!
//! The number of a loop's iterations is a curve over the batch ([`crate::curve`]). Most blocks of a
//! loop are freed in it: they need as much memory however often it is gone through. Those that live
//! beyond its end add up, and a request for one stands for as many as there are iterations more. With
//! k iterations recorded and k' predicted, the first k − 1 have k' − 1 between them, as evenly as it
//! goes, and the last has one: so all others are live when it begins.

use std::collections::HashMap;
use std::rc::Rc;

use crate::alignment::ends_of_blocks;
use crate::curve::Curve;
use crate::loops::Place;
use crate::program::{ALIGNMENT_BYTES, Program};

/// A request stands for so many blocks at most, and all of them for so many; each is as large as
/// several where there would be more.
const MOST_BLOCKS: u64 = 4096;
const MOST_BLOCKS_OF_ALL: u64 = 1 << 20;
/// Curves are through counts times this, as they allow for an error of a few units.
const UNIT: f64 = (1 << 20) as f64;

/// What is known so far of the loops of a recording.
pub(crate) struct Counts {
    /// The call that frees the block of each request.
    ends: HashMap<usize, usize>,
    /// How often each loop around a place is gone through, by batch; by the place's first call.
    counts: HashMap<usize, Vec<(u64, Vec<usize>)>>,
}

/// The requests of a recording that loops hold, and of which there are more at a larger batch.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// The loops that hold the block, by the request's call.
    held: HashMap<usize, Vec<Held>>,
    most_blocks: u64,
}

/// A loop that holds a block.
#[derive(Debug)]
struct Held {
    /// The iteration that requests it, and how many were recorded.
    iteration: usize,
    count: usize,
    /// The iterations over the batch, in [`UNIT`]s.
    curve: Rc<Curve>,
}

impl Counts {
    /// Of a recording of `program`.
    pub(crate) fn new(program: &Program) -> Self {
        Self { ends: ends_of_blocks(program), counts: HashMap::new() }
    }

    /// Adds what `there`, the place of another recording, says of the loops around `here`.
    pub(crate) fn add(&mut self, here: &Place, there: &Place, batch: u64) {
        // In other loops there: all of them are taken for the loop that holds a block.
        let of_all = || {
            let of = |count: usize| (count * there.calls.len()).div_ceil(here.calls.len());
            here.loops.iter().map(|each| of(each.count)).collect()
        };
        if !here.loops.is_empty() {
            let counts = here.counts_in(there).unwrap_or_else(of_all);
            self.counts.entry(here.calls[0]).or_default().push((batch, counts));
        }
    }

    /// What follows for all `places` of the recording, which is of `batch`.
    pub(crate) fn growth<'a>(&self, batch: u64, places: impl Iterator<Item = &'a Place>) -> Growth {
        let mut held: HashMap<usize, Vec<Held>> = HashMap::new();
        for place in places {
            let Some(others) = self.counts.get(&place.calls[0]) else {
                continue;
            };
            for (level, each) in place.loops.iter().enumerate() {
                if others.iter().all(|(_, counts)| counts[level] == each.count) {
                    continue;
                }
                let others = others.iter().map(|(batch, counts)| (*batch, counts[level]));
                let points: Vec<_> = others
                    .chain([(batch, each.count)])
                    .map(|(batch, count)| (batch, count as u64 * UNIT as u64))
                    .collect();
                let curve = Rc::new(Curve::through(&points));
                for (at, call) in place.calls.iter().enumerate() {
                    let first = place.first(at, level);
                    if self.is_held(place, at, level) && self.is_held(place, first, level) {
                        let iteration = place.iteration(at, level);
                        let one = Held { iteration, count: each.count, curve: curve.clone() };
                        held.entry(*call).or_default().push(one);
                    }
                }
            }
        }
        let most_blocks = MOST_BLOCKS_OF_ALL / held.len().max(1) as u64;
        Growth { held, most_blocks: most_blocks.clamp(1, MOST_BLOCKS) }
    }

    /// Whether the block requested at `at` lives beyond the end of the loop `level`.
    fn is_held(&self, place: &Place, at: usize, level: usize) -> bool {
        self.ends.get(&place.calls[at]).is_none_or(|end| *end >= place.end(at, level))
    }
}

impl Growth {
    /// For how many blocks the request of `call`, of `bytes`, stands at `batch`, and the bytes of
    /// each.
    pub(crate) fn blocks(&self, call: usize, batch: u64, bytes: u64) -> (u64, u64) {
        let Some(held) = self.held.get(&call) else {
            return (1, bytes);
        };
        let blocks = held.iter().map(|one| one.blocks(batch)).fold(1, u64::saturating_mul);
        if blocks <= self.most_blocks {
            return (blocks, bytes);
        }
        // What is handed out is rounded up, for each of them.
        let all_bytes = u128::from(bytes.next_multiple_of(ALIGNMENT_BYTES)) * u128::from(blocks);
        let each_bytes = all_bytes.div_ceil(u128::from(self.most_blocks));
        (self.most_blocks, each_bytes.try_into().unwrap_or(u64::MAX))
    }

    /// The bytes of all blocks that the request of `call` stands for, whose own are `curve`: through
    /// what that is at `batches`.
    pub(crate) fn curve(&self, call: usize, curve: &Rc<Curve>, batches: &[u64]) -> Rc<Curve> {
        let Some(held) = self.held.get(&call) else {
            return curve.clone();
        };
        let share =
            |batch| held.iter().map(|one| one.count_at(batch) / one.count as f64).product::<f64>();
        let bytes = |batch| (curve.at(batch) * share(batch)).round() as u64;
        let points: Vec<_> = batches.iter().map(|batch| (*batch, bytes(*batch))).collect();
        let mut all = Curve::through(&points);
        all.is_confirmed &= curve.is_confirmed && held.iter().all(|one| one.curve.is_confirmed);
        Rc::new(all)
    }
}

impl Held {
    fn count_at(&self, batch: u64) -> f64 {
        (self.curve.at(batch) / UNIT).round().max(0.0)
    }

    /// How many of the iterations at `batch` this one stands for.
    fn blocks(&self, batch: u64) -> u64 {
        let all = self.count_at(batch) as u64;
        let last = self.count - 1;
        if self.iteration == last {
            return all.min(1);
        }
        let before =
            |iteration: usize| u128::from(all.saturating_sub(1)) * iteration as u128 / last as u128;
        (before(self.iteration + 1) - before(self.iteration)) as u64
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
