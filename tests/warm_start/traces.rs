//! Recorded programs: the first pass of a run whose memory was made ready makes no driver call for
//! memory, and holds no more than the run before.

use genesis::base::Status;
use genesis::base::size::MIB;
use genesis::config::PoolType;

use crate::make_ready;
use crate::support::replay::{RECORDED, Replay, recorded};
use crate::support::{Rig, tier};

/// After so many passes a run has found its layout.
const PASSES: usize = 3;
/// At most this part of a cold first pass's driver calls for memory may be left.
const MOST_LEFT: f64 = 0.01;
/// … or this part, of a run whose plan is of a run of one pass.
const MOST_LEFT_IN_SECOND: f64 = 0.05;
/// At most this part more may be held than by one run that has come to rest: a creep is more.
const MOST_MORE: f64 = 0.003;
/// … or so many bytes, an extent of a small program.
const FEW_BYTES: f64 = (8 * MIB) as f64;

#[test]
fn elastic() {
    first_passes(PoolType::Elastic, &RECORDED);
}

#[test]
fn segments() {
    let kept = [PoolType::Caching, PoolType::Arena, PoolType::Round, PoolType::Exact];
    for pool_type in tier::some_or_all(&kept[..1], &kept[..]) {
        first_passes(*pool_type, tier::some_or_all(&RECORDED[..3], &RECORDED[..]));
    }
}

/// A run of one pass has not found its layout. The next one's first step needs hardly a call all the
/// same; what later steps need is in the plans to come. A program comes to rest in its third or fourth pass,
/// so the fourth run needs none at all.
#[test]
fn runs_after_a_single_pass() {
    for name in RECORDED {
        let program = recorded(name);
        let mut cold = Replay::new(&program, PoolType::Elastic);
        let cold_calls = calls_of_first_step(&mut cold);
        let mut second = after(&cold);
        let second_calls = calls_of_first_step(&mut second);
        let mut third = after(&second);
        let third_calls = calls_of_first_step(&mut third);
        let mut fourth = after(&third);
        let before = fourth.rig.statistics().driver_memory_calls;
        fourth.pass().unwrap();
        let fourth_calls = fourth.rig.statistics().driver_memory_calls - before;
        println!(
            "{name}: {cold_calls} calls, {second_calls} and {third_calls} in the first steps of the \
             next runs, {fourth_calls} in the fourth"
        );
        let most = cold_calls as f64 * MOST_LEFT;
        let most_second = cold_calls as f64 * MOST_LEFT_IN_SECOND;
        assert!(second_calls as f64 <= most_second, "{name}: {second_calls} of {cold_calls}");
        assert!(third_calls as f64 <= most, "{name}: {third_calls} of {cold_calls}");
        assert!(fourth_calls as f64 <= most, "{name}: {fourth_calls} of {cold_calls}");
        let mut rested = Replay::new(&program, PoolType::Elastic);
        rested.passes(4);
        let rested_bytes = held_bytes(&rested);
        let most_bytes = rested_bytes + FEW_BYTES.max(rested_bytes * MOST_MORE);
        for next in [&second, &third, &fourth] {
            let held = held_bytes(next);
            assert!(held <= most_bytes, "{name}: {held} of {most_bytes}");
        }
        [cold, second, third, fourth, rested].into_iter().for_each(|replay| replay.rig.finish());
    }
}

/// A device that would have room for a program, if no memory were lost in pieces between live blocks. The
/// run that is refused memory leaves a plan by which the next one has finer extents, and fits. The third
/// one finds those ready.
#[test]
fn a_program_that_was_refused_memory_fits_the_next_time() {
    for name in ["diffusion_buckets", "llama1b_full_var", "opt13_recompute_var"] {
        let program = recorded(name);
        let device_bytes = (program.live_peak_bytes as f64 * 1.008) as u64;
        let on_device = || Replay::on(&program, PoolType::Elastic, device_bytes);
        let mut first = on_device();
        let refused = (0..PASSES).find_map(|_| first.pass().err());
        let status = refused.expect("it is refused memory").status;
        assert_eq!(status, Status::OutOfMemory, "{name}");
        let needs_finer = |replay: &Replay<'_>| replay.rig.heap.plan()[0].needs_finer;
        assert!(needs_finer(&first), "{name}");

        let mut second = made_ready(on_device(), &first);
        second.passes(PASSES);
        let cold_calls = second.rig.statistics().driver_memory_calls;
        let mut third = made_ready(on_device(), &second);
        let before = third.rig.statistics().driver_memory_calls;
        third.passes(PASSES);
        let calls = third.rig.statistics().driver_memory_calls - before;
        println!("{name}: {cold_calls} calls in the second run, {calls} in the third");
        assert!(calls as f64 <= cold_calls as f64 * MOST_LEFT_IN_SECOND, "{name}: {calls}");
        assert!(needs_finer(&second) && needs_finer(&third), "{name}");
        [second, third].into_iter().for_each(|replay| replay.rig.finish());
    }
}

/// A run whose memory is made ready by the plan of another.
fn after<'a>(replay: &Replay<'a>) -> Replay<'a> {
    made_ready(Replay::new(replay.program, PoolType::Elastic), replay)
}

/// `next`, whose memory is made ready by the plan of `replay`.
fn made_ready<'a>(next: Replay<'a>, replay: &Replay<'_>) -> Replay<'a> {
    for plan in replay.rig.heap.plan() {
        make_ready(&next.rig, &plan).unwrap();
    }
    next
}

/// The most bytes that were held.
fn held_bytes(replay: &Replay<'_>) -> f64 {
    replay.rig.statistics().reserved_bytes.peak as f64
}

/// Makes a pass; returns the driver calls for memory until the end of its first step.
fn calls_of_first_step(replay: &mut Replay<'_>) -> u64 {
    let before = replay.rig.statistics().driver_memory_calls;
    let mut calls = None;
    let end_step = |rig: &Rig| {
        calls.get_or_insert_with(|| rig.statistics().driver_memory_calls - before);
    };
    replay.pass_in_steps(end_step).unwrap();
    calls.unwrap()
}

fn first_passes(pool_type: PoolType, traces: &[&str]) {
    for name in traces {
        let program = recorded(name);
        let mut cold = Replay::new(&program, pool_type);
        cold.pass().unwrap();
        let cold_calls = cold.rig.statistics().driver_memory_calls;
        cold.passes(PASSES - 1);
        let mut warm = Replay::new(&program, pool_type);
        for plan in cold.rig.heap.plan() {
            make_ready(&warm.rig, &plan).unwrap();
        }
        let before = warm.rig.statistics();
        warm.pass().unwrap();
        let after = warm.rig.statistics();
        let calls = after.driver_memory_calls - before.driver_memory_calls;
        println!("{name}, {pool_type:?}: {cold_calls} calls cold, {calls} warm");
        assert!(calls as f64 <= cold_calls as f64 * MOST_LEFT, "{name}: {calls} of {cold_calls}");
        assert!(after.reserved_bytes.peak <= cold.rig.statistics().reserved_bytes.peak, "{name}");
        cold.rig.finish();
        warm.rig.finish();
    }
}
