//! The tiers of a memory manager that would have served a recorded run: sizes of blocks, how many of
//! each, and the size of the arena behind them.
//!
//! 1. **Classes.** Small requests are counted in classes, eight for each doubling: how many of each
//!    were live at one time at most.
//! 2. **Sizes.** Of all ways to divide the classes into at most so many tiers, each with blocks of its
//!    largest class, the one that reserves least is chosen, by dynamic programming. The peak of a
//!    tier is taken as the sum of its classes' peaks, which is no less.
//! 3. **Counts.** Another walk counts the peak of each tier itself, and plays the arena: it is filled
//!    from its start, and empty again when nothing of it is live.
//!
//! So a manager of these tiers serves the same run without an error. If the arena would need more than
//! four times what is live in it at most, because it is rarely empty, there is none: such requests are
//! better left to the heap.

use std::collections::BTreeMap;

use crate::model::{Action, Profile};

/// Sizes are multiples of this, in bytes.
const UNIT_BYTES: u64 = 16;
/// Classes from one power of two to the next.
const CLASSES_PER_DOUBLING: u64 = 8;
/// What requests in the arena of device memory are aligned to, in bytes.
const ARENA_ALIGNMENT_BYTES: u64 = 256;

/// An arena is worth it up to so many times what is live in it at most.
const MOST_ARENA_PARTS: u64 = 4;

/// What is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct TierOptions {
    /// The device.
    pub device: u32,
    /// The most tiers.
    pub most_tiers: usize,
    /// Requests above this go to the arena, in bytes.
    pub largest_bytes: u64,
}

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The size of its blocks, in bytes.
    pub block_bytes: u64,
    /// How many were live at one time at most.
    pub count: u64,
    /// How many requests it serves.
    pub requests: u64,
}

/// Tiers for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierPlan {
    /// By size, rising.
    pub tiers: Vec<Tier>,
    /// The size of the arena, in bytes; 0 if there is none.
    pub arena_bytes: u64,
    /// How many requests no tier serves: the arena does, or the heap if there is none.
    pub other_requests: u64,
    /// The most bytes that were requested and live at one time.
    pub peak_requested_bytes: u64,
}

impl TierPlan {
    /// What the manager reserves, in bytes.
    pub fn reserved_bytes(&self) -> u64 {
        let pools = self.tiers.iter().map(|tier| tier.block_bytes.saturating_mul(tier.count));
        pools.fold(self.arena_bytes, u64::saturating_add)
    }
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It was live when the history begins.
    Begin,
    Allocate,
    Free,
}

/// Live things and the most at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    now: u64,
    peak: u64,
    total: u64,
}

impl Level {
    fn take(&mut self, step: Step) {
        match step {
            Step::Free => self.now = self.now.saturating_sub(1),
            Step::Begin | Step::Allocate => {
                self.now += 1;
                self.peak = self.peak.max(self.now);
                self.total += u64::from(step == Step::Allocate);
            }
        }
    }
}

/// The tiers for the history of `profile`.
pub fn plan(profile: &Profile, options: TierOptions) -> TierPlan {
    let mut classes: BTreeMap<u64, Level> = BTreeMap::new();
    walk(profile, options.device, |step, bytes| {
        if bytes <= options.largest_bytes {
            classes.entry(class_bytes(bytes)).or_default().take(step);
        }
    });
    let peaks: Vec<(u64, u64)> =
        classes.iter().map(|(&bytes, level)| (bytes, level.peak)).collect();
    let sizes = choose(&peaks, options.most_tiers);
    play(profile, options.device, &sizes)
}

/// Plays the run on tiers of these sizes.
fn play(profile: &Profile, device: u32, sizes: &[u64]) -> TierPlan {
    let mut levels = vec![Level::default(); sizes.len()];
    let (mut in_arena, mut used_bytes, mut requested_bytes) = (Level::default(), 0u64, 0u64);
    let (mut other_bytes, mut most_other_bytes) = (0u64, 0u64);
    let mut plan = TierPlan::default();
    walk(profile, device, |step, bytes| {
        requested_bytes = match step {
            Step::Free => requested_bytes.saturating_sub(bytes),
            Step::Begin | Step::Allocate => requested_bytes.saturating_add(bytes),
        };
        plan.peak_requested_bytes = plan.peak_requested_bytes.max(requested_bytes);
        let tier = sizes.partition_point(|&block_bytes| block_bytes < bytes);
        if let Some(level) = levels.get_mut(tier) {
            return level.take(step);
        }
        in_arena.take(step);
        let aligned = bytes.checked_next_multiple_of(ARENA_ALIGNMENT_BYTES).unwrap_or(bytes);
        if step != Step::Free {
            used_bytes = used_bytes.saturating_add(aligned);
            plan.arena_bytes = plan.arena_bytes.max(used_bytes);
            other_bytes = other_bytes.saturating_add(aligned);
            most_other_bytes = most_other_bytes.max(other_bytes);
        } else {
            other_bytes = other_bytes.saturating_sub(aligned);
            used_bytes = if in_arena.now == 0 { 0 } else { used_bytes };
        }
    });
    plan.other_requests = in_arena.total;
    if plan.arena_bytes > most_other_bytes.saturating_mul(MOST_ARENA_PARTS) {
        plan.arena_bytes = 0;
    }
    let tier = |(&block_bytes, level): (&u64, &Level)| Tier {
        block_bytes,
        count: level.peak,
        requests: level.total,
    };
    plan.tiers = sizes.iter().zip(&levels).map(tier).collect();
    plan
}

/// Calls `visit` with each request of `device` that begins or ends, and its size.
fn walk(profile: &Profile, device: u32, mut visit: impl FnMut(Step, u64)) {
    let history = &profile.history;
    for block in history.start_live.iter().filter(|block| block.device == device) {
        visit(Step::Begin, block.requested_bytes);
    }
    for event in history.events.iter().filter(|event| event.device == device) {
        match event.action {
            Action::Allocate | Action::AllocateMiss if event.requested_bytes > 0 => {
                visit(Step::Allocate, event.requested_bytes);
            }
            Action::Free if event.requested_bytes > 0 => visit(Step::Free, event.requested_bytes),
            _ => {}
        }
    }
}

/// The class of a request, in bytes.
fn class_bytes(bytes: u64) -> u64 {
    let doubling = 1u64 << ((bytes.max(1) - 1) | 1).ilog2();
    let step = UNIT_BYTES.max(doubling / CLASSES_PER_DOUBLING);
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Of `classes` (size and peak, by size), those whose sizes are the tiers', at most `most`, so that
/// least is reserved.
fn choose(classes: &[(u64, u64)], most: usize) -> Vec<u64> {
    if classes.is_empty() || most == 0 {
        return Vec::new();
    }
    // least[k][n]: what the first n classes reserve in k tiers at least, and where the last begins.
    let mut least = vec![vec![(u64::MAX, 0usize); classes.len() + 1]; most + 1];
    least[0][0] = (0, 0);
    for tiers in 1..=most {
        for end in 1..=classes.len() {
            let mut count = 0u64;
            for start in (0..end).rev() {
                count = count.saturating_add(classes[start].1);
                let own_bytes = count.saturating_mul(classes[end - 1].0);
                let bytes = least[tiers - 1][start].0.saturating_add(own_bytes);
                if bytes < least[tiers][end].0 {
                    least[tiers][end] = (bytes, start);
                }
            }
        }
    }
    let best = (1..=most).min_by_key(|&tiers| (least[tiers][classes.len()].0, tiers));
    let (mut sizes, mut end) = (Vec::new(), classes.len());
    for tiers in (1..=best.unwrap_or(1)).rev() {
        sizes.push(classes[end - 1].0);
        end = least[tiers][end].1;
    }
    sizes.reverse();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Event, History};

    const OPTIONS: TierOptions = TierOptions { device: 0, most_tiers: 3, largest_bytes: 4096 };

    fn profile(steps: &[(Action, u64)]) -> Profile {
        let event = |&(action, requested_bytes): &(Action, u64)| Event {
            action,
            requested_bytes,
            block_bytes: requested_bytes,
            ..Event::default()
        };
        let events = steps.iter().map(event).collect();
        Profile { history: History { events, ..History::default() }, ..Profile::default() }
    }

    #[test]
    fn counts_are_peaks_and_the_arena_is_played() {
        use Action::{Allocate, Free};
        let mut steps = vec![(Allocate, 64); 10];
        steps.extend([(Allocate, 100), (Allocate, 100), (Free, 100)]);
        steps.extend([(Allocate, 100_000), (Allocate, 50_000), (Free, 100_000), (Free, 50_000)]);
        steps.extend([(Allocate, 120_000), (Free, 120_000)]);
        let plan = plan(&profile(&steps), OPTIONS);
        let tier = |block_bytes, count, requests| Tier { block_bytes, count, requests };
        assert_eq!(plan.tiers, [tier(64, 10, 10), tier(112, 2, 2)]);
        assert_eq!(plan.other_requests, 3);
        assert_eq!(plan.arena_bytes, 100_096 + 50_176);
        assert_eq!(plan.peak_requested_bytes, 640 + 100 + 150_000);
        assert_eq!(plan.reserved_bytes(), 640 + 224 + plan.arena_bytes);
    }

    #[test]
    fn an_arena_that_is_never_empty_is_none() {
        use Action::{Allocate, Free};
        let mut steps = vec![(Allocate, 100_000)];
        (0..10).for_each(|_| steps.extend([(Allocate, 100_000), (Free, 100_000)]));
        let plan = plan(&profile(&steps), OPTIONS);
        assert_eq!((plan.arena_bytes, plan.other_requests), (0, 11));
    }

    #[test]
    fn tiers_are_the_division_that_reserves_least() {
        let classes = [(64, 1000), (80, 1), (96, 1), (1024, 10), (1152, 1)];
        assert_eq!(choose(&classes, 1), [1152]);
        assert_eq!(choose(&classes, 2), [64, 1152]);
        assert_eq!(choose(&classes, 9), [64, 80, 96, 1024, 1152]);
        assert_eq!(choose(&[], 3), [0u64; 0]);
        // Every division into three, by hand.
        let cost = |ends: &[usize]| {
            let mut start = 0;
            let tier = |&end: &usize| {
                let count: u64 = classes[start..end].iter().map(|class| class.1).sum();
                start = end;
                count * classes[end - 1].0
            };
            ends.iter().map(tier).sum::<u64>()
        };
        let all = (1..4).flat_map(|a| (a + 1..5).map(move |b| [a, b, 5]));
        let best = all.min_by_key(|ends| cost(ends)).unwrap();
        assert_eq!(choose(&classes, 3), best.map(|end| classes[end - 1].0));
    }

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for bytes in 1..100_000 {
            let class = class_bytes(bytes);
            assert!(class >= bytes && class - bytes < UNIT_BYTES.max(bytes / 4), "{bytes} {class}");
            assert_eq!(class_bytes(class), class);
        }
    }
}
