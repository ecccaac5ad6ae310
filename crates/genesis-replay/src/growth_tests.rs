//! Tests of programs whose number of requests grows with the batch: each is predicted from smaller
//! batches, and held against what it does.

use std::rc::Rc;

use crate::prediction::{Prediction, Recording};
use crate::program::Program;
use crate::record::{Action, Record};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The batches recorded, and two that are not.
const RECORDED: [u64; 4] = [8, 16, 32, 64];
const PREDICTED: [u64; 2] = [24, 200];

/// A program, as it is written.
#[derive(Default)]
struct Written {
    records: Vec<Record>,
    sites: Vec<Rc<str>>,
    next: u32,
}

impl Written {
    fn allocate(&mut self, site: &str, requested_bytes: u64) -> u32 {
        self.next += 1;
        self.add(Action::Allocate, self.next, site, requested_bytes);
        self.next
    }

    fn free(&mut self, id: u32) {
        self.add(Action::Free, id, "free", 0);
    }

    fn add(&mut self, action: Action, id: u32, site: &str, requested_bytes: u64) {
        self.records.push(Record { action, device: 0, stream: 0, id, requested_bytes });
        self.sites.push(site.into());
    }
}

/// Weights, three steps of `step`, and what they leave.
fn written(batch: u64, step: fn(&mut Written, u64)) -> Written {
    let mut program = Written::default();
    program.allocate("weights", 30 * MIB);
    (0..3).for_each(|_| step(&mut program, batch));
    program
}

/// The live peak of `step` at batches that were not recorded, as predicted / as it is; with call
/// sites and without. Also the part of what is live that lies on confirmed curves.
fn predicted(step: fn(&mut Written, u64)) -> Vec<(u64, f64, f64)> {
    let all = RECORDED.map(|batch| written(batch, step));
    let programs = all.each_ref().map(|one| Program::prepare(&one.records).unwrap());
    let mut found = Vec::new();
    for has_sites in [true, false] {
        let recordings: Vec<_> = (0..all.len())
            .map(|number| Recording {
                batch: RECORDED[number],
                name: "t",
                program: &programs[number],
                sites: if has_sites { &all[number].sites } else { &[] },
                stacks: if has_sites { &all[number].sites } else { &[] },
            })
            .collect();
        let prediction = Prediction::new(&recordings).unwrap();
        let live = prediction.sites().1;
        let confirmed = live.confirmed_bytes as f64 / live.live_bytes as f64;
        for batch in PREDICTED.into_iter().chain(RECORDED) {
            let is = Program::prepare(&written(batch, step).records).unwrap();
            let is_bytes = is.largest_device_peak_bytes as f64;
            let bytes = prediction.live_peak_bytes(batch).unwrap() as f64;
            found.push((batch, bytes / is_bytes, confirmed));
        }
    }
    found
}

/// Holds that `step` is predicted to `most_error`, never too small, and on confirmed curves.
fn check(step: fn(&mut Written, u64), most_error: f64) {
    for (batch, ratio, confirmed) in predicted(step) {
        let is_right = (1.0 - 1e-9..1.0 + most_error + 1e-9).contains(&ratio);
        assert!(is_right && confirmed > 0.999, "batch {batch}: {ratio}, confirmed {confirmed}");
    }
}

#[test]
fn scratch_memory_of_each_sample_does_not_add_up() {
    // Convolutions as PyTorch makes them without cuDNN: one call site for all of a layer.
    check(
        |program, batch| {
            let layers = [1, 2, 3].map(|layer| {
                let output = program.allocate("forward", batch * layer * MIB);
                let columns = program.allocate("forward", 3 * layer * MIB);
                for _ in 0..batch {
                    let workspace = program.allocate("forward", 32 * MIB);
                    program.free(workspace);
                }
                program.free(columns);
                output
            });
            layers.into_iter().rev().for_each(|output| program.free(output));
        },
        0.0,
    );
}

#[test]
fn results_of_each_sample_add_up() {
    check(
        |program, batch| {
            let mask = program.allocate("mask", batch * KIB);
            let results: Vec<u32> = (0..batch)
                .map(|_| {
                    let scratch = program.allocate("scratch", 5 * MIB);
                    let result = program.allocate("result", 700 * KIB);
                    program.free(scratch);
                    result
                })
                .collect();
            let joined = program.allocate("join", batch * 700 * KIB);
            results.into_iter().for_each(|result| program.free(result));
            program.free(joined);
            program.free(mask);
        },
        0.0,
    );
}

#[test]
fn a_state_that_each_sample_replaces_does_not_add_up() {
    check(
        |program, batch| {
            let mut state = program.allocate("first", 9 * MIB);
            for _ in 0..batch {
                let next = program.allocate("next", 9 * MIB);
                program.free(state);
                state = next;
            }
            program.free(state);
        },
        0.0,
    );
}

#[test]
fn micro_batches_keep_gradients_and_losses() {
    check(
        |program, batch| {
            let (mut gradients, mut losses) = (Vec::new(), Vec::new());
            for micro_batch in 0..batch / 4 {
                let outputs: Vec<u32> =
                    (0..12).map(|layer| program.allocate("forward", (1 + layer) * MIB)).collect();
                losses.push(program.allocate("loss", 4));
                for output in outputs.into_iter().rev() {
                    let gradient = program.allocate("backward", 2 * MIB);
                    match micro_batch {
                        0 => gradients.push(gradient),
                        _ => program.free(gradient),
                    }
                    program.free(output);
                }
            }
            let update = program.allocate("update", 50 * MIB);
            program.free(update);
            gradients.into_iter().chain(losses).for_each(|block| program.free(block));
        },
        0.0,
    );
}

#[test]
fn tiles_grow_by_steps() {
    check(
        |program, batch| {
            let tiles: Vec<u32> = (0..batch.div_ceil(32))
                .flat_map(|_| {
                    let workspace = program.allocate("workspace", 64 * MIB);
                    program.free(workspace);
                    [1, 2, 3].map(|part| program.allocate("tile", part * 8 * MIB))
                })
                .collect();
            tiles.into_iter().for_each(|tile| program.free(tile));
        },
        0.0,
    );
}

#[test]
fn loops_in_loops_add_up_together() {
    check(
        |program, batch| {
            let mut kept = Vec::new();
            for _ in 0..batch / 4 {
                kept.push(program.allocate("group", 3 * MIB));
                for _ in 0..5 {
                    kept.push(program.allocate("head", MIB));
                    let scratch = program.allocate("scratch", 2 * MIB);
                    program.free(scratch);
                }
            }
            kept.into_iter().for_each(|block| program.free(block));
        },
        0.0,
    );
}

#[test]
fn samples_of_different_sizes_add_up_on_average() {
    let step: fn(&mut Written, u64) = |program, batch| {
        let length = |sample: u64| 600 + sample * 7919 % 100;
        let samples: Vec<u32> = (0..batch)
            .map(|sample| {
                let scratch = program.allocate("scratch", length(sample) * KIB);
                program.free(scratch);
                program.allocate("sample", length(sample) * 4 * KIB)
            })
            .collect();
        samples.into_iter().for_each(|sample| program.free(sample));
    };
    for (batch, ratio, _) in predicted(step) {
        assert!((ratio - 1.0).abs() < 0.02, "batch {batch}: {ratio}");
    }
}

#[test]
fn what_saturates_is_not_confirmed_and_not_too_small() {
    let step: fn(&mut Written, u64) = |program, batch| {
        let output = program.allocate("output", batch * MIB);
        let workspace = program.allocate("workspace", (batch * 20).min(500) * MIB);
        program.free(workspace);
        program.free(output);
    };
    for (batch, ratio, confirmed) in predicted(step) {
        assert!(batch < 64 || ratio > 0.999, "batch {batch}: {ratio}");
        assert!(confirmed < 0.5, "{confirmed}");
    }
}

#[test]
fn a_batch_beyond_all_memory_takes_neither_time_nor_memory() {
    let step: fn(&mut Written, u64) = |program, batch| {
        for _ in 0..batch {
            let scratch = program.allocate("scratch", 5 * MIB);
            program.allocate("result", 4);
            program.free(scratch);
        }
    };
    let all = RECORDED.map(|batch| written(batch, step));
    let programs = all.each_ref().map(|one| Program::prepare(&one.records).unwrap());
    let recordings: Vec<_> = (0..all.len())
        .map(|number| Recording {
            batch: RECORDED[number],
            name: "t",
            program: &programs[number],
            sites: &[],
            stacks: &[],
        })
        .collect();
    let prediction = Prediction::new(&recordings).unwrap();
    let batch = 1 << 30;
    assert!(prediction.records(batch).len() < 3 << 20);
    let ratio = prediction.live_peak_bytes(batch).unwrap() as f64 / (3 * 512 * batch) as f64;
    assert!((1.0..1.001).contains(&ratio), "{ratio}");
}
