//! The fragmentation watch (`GENESIS_COMPACT_ABOVE`): for each strategy on both stores.

mod support;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use genesis::base::size::MIB;
use genesis::config::{LogLevel, PoolType};
use genesis::heap::Compaction;
use simgpu::StoreKind;
use support::replay::{Replay, recorded};
use support::{A, DEVICE, Rig, Subject, tier};

const ABOVE: f64 = 0.3;

fn subjects() -> impl Iterator<Item = Subject> {
    let kept = PoolType::ALL.iter().filter(|pool_type| **pool_type != PoolType::Naive);
    kept.flat_map(|&pool_type| {
        [StoreKind::RealBytes, StoreKind::AddressesOnly].map(|store| Subject::new(pool_type, store))
    })
}

fn start(subject: Subject, above: Option<f64>) -> (Rig, Arc<Mutex<Vec<Compaction>>>) {
    let plan = subject.plan().set(|settings| {
        settings.compact_above = above;
        settings.log = LogLevel::Info;
    });
    let rig = plan.start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    rig.heap.set_compaction_callback(Some(Arc::new(move |device, compaction: &Compaction| {
        assert_eq!(device, DEVICE);
        noted.lock().unwrap().push(*compaction);
    })));
    (rig, told)
}

/// Leaves 320 MiB free in pieces, and then asks for more than any of them.
fn scatter(rig: &Rig) -> Vec<u64> {
    let blocks: Vec<u64> = (0..16).map(|_| rig.allocate_and_touch(32 * MIB, A)).collect();
    let (freed, kept): (Vec<_>, Vec<_>) = (0..16).partition(|index| index % 3 != 0);
    freed.iter().for_each(|&index| rig.free(blocks[index]));
    let mut live: Vec<u64> = kept.iter().map(|&index| blocks[index]).collect();
    live.push(rig.allocate_and_touch(130 * MIB, A));
    live
}

#[test]
fn a_miss_with_much_free_memory_returns_the_longest_unused() {
    for subject in subjects().filter(|subject| subject.pool_type != PoolType::Elastic) {
        let (rig, told) = start(subject, Some(ABOVE));
        let live = scatter(&rig);
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 1, "{subject:?}: {told:?}");
        let part = |free: u64, of: u64| free as f64 / of as f64;
        assert!(part(told[0].free_bytes, told[0].reserved_bytes) > ABOVE, "{told:?}");
        let statistics = rig.statistics();
        assert_eq!(rig.reserved_bytes(), told[0].reserved_bytes - told[0].released_bytes);
        assert!(statistics.fragmentation_ratio < ABOVE, "{subject:?}: {statistics:?}");
        let said = rig.lines().iter().any(|line| line.contains("compacted: "));
        assert!(said, "{:?}", rig.lines());
        live.into_iter().for_each(|block| rig.free(block));
        rig.finish();
    }
}

#[test]
fn off_it_does_nothing() {
    for subject in subjects() {
        let (rig, told) = start(subject, None);
        let live = scatter(&rig);
        assert!(told.lock().unwrap().is_empty());
        live.into_iter().for_each(|block| rig.free(block));
        rig.finish();
    }
}

/// A callback may call the heap, and a program that needs its memory back is not starved of time.
#[test]
fn a_program_that_needs_it_back_is_left_alone() {
    for subject in subjects() {
        let driver_calls = |above| {
            let (rig, told) = start(subject, above);
            let heap_calls = Arc::new(AtomicU64::new(0));
            for _ in 0..60 {
                let live = scatter(&rig);
                rig.run(A);
                live.into_iter().for_each(|block| rig.free(block));
                heap_calls.fetch_add(1, SeqCst);
            }
            let (calls, count) = (rig.calls(), told.lock().unwrap().len());
            rig.finish();
            (calls, count)
        };
        let ((off, _), (on, compactions)) = (driver_calls(None), driver_calls(Some(ABOVE)));
        println!("{subject:?}: {off} driver calls, {on} with {compactions} compactions");
        assert!(compactions <= 12, "{subject:?}: {compactions} in 60 cycles");
    }
}

/// What it saves and costs on the recorded programs.
#[test]
fn recorded_programs_hold_less() {
    for name in
        tier::some_or_all(&["opt13_recompute_var"][..], &["opt13_recompute_var", "alternating"])
    {
        let program = recorded(name);
        let held = |above| {
            let mut replay = Replay::new(&program, PoolType::Caching);
            let mut settings = replay.rig.heap.settings();
            settings.compact_above = above;
            replay.rig.heap.apply(&settings);
            replay.passes(3);
            let (statistics, calls) = (replay.rig.statistics(), replay.rig.calls());
            replay.rig.finish();
            (statistics.reserved_bytes.peak, calls)
        };
        let ((plain, calls), (compact, more)) = (held(None), held(Some(ABOVE)));
        println!(
            "{name}: {} MiB by {calls} driver calls, {} MiB by {more} above {ABOVE}",
            plain / MIB,
            compact / MIB
        );
        assert!(compact <= plain);
    }
}
