//! A program that never comes to rest gets more memory, and a new layout, instead of moving memory for
//! ever.

use std::{mem, slice};

use genesis::base::size::{GIB, MIB};
use genesis::config::LogLevel;
use simgpu::{Call, Code, StoreKind, Target, Times};

use crate::support::{A, DEVICE, Plan, Random, Rig, is_filled};
use crate::{ADDRESSES, REAL};

const DEVICE_BYTES: u64 = 64 * GIB;
/// The keys and values of so many layers are kept.
const LAYERS: usize = 24;
const WEIGHT_BYTES: u64 = 64 * MIB;
/// An answer is made in so many steps.
const STEPS: u64 = 20;
/// After so many answers the program is known to be restless.
const KNOWN: usize = 40;
const ANSWERS: usize = 20;
/// The most calls of the driver for memory in each of those, on average. Without more memory there are 522.
const MOST_CALLS: u64 = 8;
/// The most that may be held over the most that was live, in hundredths: by a program, and by several threads
/// at once, each of which may find room for the same request.
const MOST_HELD: u64 = 125;
const MOST_HELD_AT_ONCE: u64 = 135;
/// A device that the program fills, and the most calls there. With finer extents there would be 444.
const LITTLE_BYTES: u64 = 7100 * MIB;
const MOST_CALLS_WITH_LITTLE: u64 = 100;
/// A queue, and a device that it fills.
const QUEUE_ENTRIES: usize = 16;
const QUEUE_STEPS: u32 = 2000;
const QUEUE_DEVICE_BYTES: u64 = 124 * MIB;

/// A model that answers one request after another.
struct Model {
    rig: Rig,
    random: Random,
    refused: usize,
}

impl Model {
    fn new() -> Self {
        Self::on(ADDRESSES.plan())
    }

    fn on(plan: Plan) -> Self {
        Self::on_device(plan, DEVICE_BYTES)
    }

    fn on_device(plan: Plan, bytes: u64) -> Self {
        let rig = plan.capacity(bytes).start();
        for _ in 0..LAYERS {
            rig.allocate(WEIGHT_BYTES, A);
        }
        Self { rig, random: Random(1), refused: 0 }
    }

    /// A block, or 0 if it is refused.
    fn allocate(&mut self, bytes: u64) -> u64 {
        self.rig.heap.allocate(bytes, DEVICE, A).unwrap_or_else(|_| {
            self.refused += 1;
            0
        })
    }

    /// An answer: in each step the keys and values of each layer grow by a copy. Each layer keeps other
    /// parts of them in each answer.
    fn answer(&mut self) {
        let largest: Vec<u64> = (0..LAYERS).map(|_| (8 + self.random.below(320)) * MIB).collect();
        let mut caches = [0; LAYERS];
        for step in 1..=STEPS {
            for (cache, largest) in caches.iter_mut().zip(&largest) {
                let longer = self.allocate(largest * step / STEPS);
                self.rig.free(mem::replace(cache, longer));
            }
            let logits = self.allocate(largest[0]);
            self.rig.free(logits);
        }
        caches.into_iter().for_each(|cache| self.rig.free(cache));
    }

    /// The calls of the driver for memory in each of so many answers, on average.
    fn calls_in(&mut self, answers: usize) -> u64 {
        let before = self.rig.statistics().driver_memory_calls;
        (0..answers).for_each(|_| self.answer());
        (self.rig.statistics().driver_memory_calls - before) / answers as u64
    }
}

#[track_caller]
fn expect_little_held(rig: &Rig, most: u64) {
    let statistics = rig.statistics();
    let (held, live) = (statistics.reserved_bytes.peak, statistics.allocated_bytes.peak);
    assert!(held * 100 <= live * most, "{held} bytes are held for {live}");
}

#[test]
fn a_restless_program_gets_more_memory() {
    let mut model = Model::new();
    model.calls_in(KNOWN);
    let calls = model.calls_in(ANSWERS);
    assert!(calls <= MOST_CALLS, "{calls} calls in each answer");
    assert_eq!(model.refused, 0);
    expect_little_held(&model.rig, MOST_HELD);
    model.rig.finish();
}

/// On a device that it fills, such a program moves memory as long as it runs. Finer extents, which others
/// get there, would make that dearer.
#[test]
fn a_restless_program_keeps_its_extents_where_memory_is_scarce() {
    let mut plan = ADDRESSES.plan();
    plan.settings.log = LogLevel::Info;
    let mut model = Model::on_device(plan, LITTLE_BYTES);
    model.calls_in(KNOWN);
    let calls = model.calls_in(ANSWERS);
    assert!(calls <= MOST_CALLS_WITH_LITTLE, "{calls} calls in each answer");
    assert_eq!(model.refused, 0);
    assert!(model.rig.lines().iter().any(|line| line.contains("memory is scarce")));
    model.rig.finish();
}

/// The first call that maps memory in an answer fails. Once that is the one for the new layout, and no
/// request is refused for it.
#[test]
fn a_new_layout_that_the_driver_refuses_changes_nothing() {
    for call in [Call::Map, Call::SetAccess] {
        let mut model = Model::new();
        let mut failed_for_the_layout = 0;
        for _ in 0..KNOWN {
            let (refused, made) = (model.refused, model.rig.usage().count(call));
            model.rig.machine.faults().fail(Target::call(call), 1, Times::Once, Code(12345));
            model.answer();
            model.rig.machine.faults().clear();
            model.rig.check();
            let has_failed = model.rig.usage().count(call) > made;
            failed_for_the_layout += usize::from(has_failed && model.refused == refused);
        }
        assert_eq!(failed_for_the_layout, 1, "{call:?}");
        model.rig.finish();
    }
}

/// While a stream is captured the new layout is not made, but afterwards.
#[test]
fn a_new_layout_waits_for_the_end_of_a_capture() {
    let mut model = Model::new();
    model.rig.heap.begin_capture(DEVICE).unwrap();
    model.calls_in(KNOWN);
    let in_the_capture = model.calls_in(ANSWERS);
    model.rig.heap.end_capture(DEVICE).unwrap();
    model.calls_in(1);
    let after = model.calls_in(ANSWERS);
    assert!(in_the_capture > after && after <= MOST_CALLS, "{in_the_capture}, then {after}");
    model.rig.finish();
}

/// A queue whose entries come and go at random, beside a larger block in each step, has no cycles. On a
/// device that it fills its memory is packed, and no byte of an entry is lost.
#[test]
fn entries_of_a_queue_that_is_packed_keep_their_bytes() {
    for subject in [ADDRESSES, REAL] {
        let mut plan = subject.plan().capacity(QUEUE_DEVICE_BYTES);
        plan.machine.detect_races = true;
        let rig = plan.start();
        let has_bytes = subject.store == StoreKind::RealBytes;
        let mut random = Random(1);
        let mut entries: Vec<(u64, u64, u8)> = Vec::new();
        for step in 0..QUEUE_STEPS {
            let passing = rig.allocate_and_touch(24 * MIB + random.below(8 * MIB), A);
            let (bytes, mark) = (3 * MIB + random.below(2 * MIB), step as u8);
            let entry = rig.allocate_and_touch(bytes, A);
            if has_bytes {
                // SAFETY: a live block of so many bytes, which nobody else knows.
                unsafe { std::ptr::write_bytes(entry as *mut u8, mark, bytes as usize) };
            }
            entries.push((entry, bytes, mark));
            rig.free(passing);
            if entries.len() == QUEUE_ENTRIES {
                let index = random.below(QUEUE_ENTRIES as u64) as usize;
                let (entry, bytes, mark) = entries.swap_remove(index);
                if has_bytes {
                    // SAFETY: a live block of so many bytes.
                    let bytes =
                        unsafe { slice::from_raw_parts(entry as *const u8, bytes as usize) };
                    assert!(is_filled(bytes, mark), "step {step}");
                }
                rig.free(entry);
            }
            rig.run(A);
        }
        entries.into_iter().for_each(|(entry, ..)| rig.free(entry));
        rig.finish();
    }
}

/// Threads that share a stream ask for memory, also while the new layout is made. Calls take time, so each
/// finds that the other has taken what it was about to move.
#[test]
fn threads_on_one_stream_are_served_meanwhile() {
    let mut plan = ADDRESSES.plan();
    plan.machine.takes_time = true;
    plan.machine.detect_races = false;
    let Model { rig, .. } = Model::on(plan);
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let mut model = Model { rig: rig.clone(), random: Random(seed), refused: 0 };
            scope.spawn(move || {
                (0..KNOWN).for_each(|_| model.answer());
                assert_eq!(model.refused, 0);
            });
        }
    });
    expect_little_held(&rig, MOST_HELD_AT_ONCE);
    rig.finish();
}
