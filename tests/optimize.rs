//! `Heap::optimize`, and the order in which cached memory goes back, on both stores.

mod support;

use genesis::base::size::MIB;
use genesis::config::PoolType;
use simgpu::{Call, CaptureMode, StoreKind};
use support::{A, B, DEVICE, Rig, Subject};

const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];

fn rigs() -> impl Iterator<Item = (PoolType, Rig)> {
    let strategies = PoolType::ALL.iter().copied().filter(|one| *one != PoolType::Naive);
    let on_both = |pool_type| STORES.map(|store| (pool_type, Subject::new(pool_type, store)));
    strategies.flat_map(on_both).map(|(pool_type, subject)| (pool_type, subject.plan().start()))
}

/// A gigabyte that was freed last goes before many small pieces, each of which costs a call: the
/// program gets as much memory back for less driver time.
#[test]
fn what_lay_idle_most_for_its_price_goes_first() {
    for pool_type in [PoolType::Exact, PoolType::Round] {
        for store in STORES {
            let rig = Subject::new(pool_type, store).plan().start();
            let small: Vec<u64> = (0..64).map(|_| rig.allocate_and_touch(2 * MIB, A)).collect();
            let large = rig.allocate_and_touch(256 * MIB, A);
            rig.run(A);
            small.into_iter().for_each(|block| rig.free(block));
            rig.free(large);
            let (reserved_bytes, before) = (rig.reserved_bytes(), rig.usage().count(Call::Free));
            rig.heap.trim(DEVICE, reserved_bytes - 100 * MIB).unwrap();
            assert_eq!(rig.usage().count(Call::Free) - before, 1, "{pool_type:?}");
            // Of equal sizes the oldest goes.
            rig.heap.trim(DEVICE, rig.reserved_bytes() - 2 * MIB).unwrap();
            assert_eq!(rig.usage().count(Call::Free) - before, 2, "{pool_type:?}");
            rig.finish();
        }
    }
}

#[test]
fn what_is_not_used_between_two_calls_goes() {
    for (pool_type, rig) in rigs() {
        let use_memory = || {
            let blocks: Vec<u64> = (0..10).map(|_| rig.allocate_and_touch(20 * MIB, A)).collect();
            rig.run(A);
            blocks.into_iter().for_each(|block| rig.free(block));
        };
        use_memory();
        let first = rig.heap.optimize(DEVICE).unwrap();
        assert_eq!(first.reserved_bytes, rig.reserved_bytes() + first.released_bytes);
        use_memory();
        let kept = rig.reserved_bytes();
        let second = rig.heap.optimize(DEVICE).unwrap();
        assert_eq!(second.released_bytes, 0, "{pool_type:?}: it was used");
        let third = rig.heap.optimize(DEVICE).unwrap();
        assert_eq!((third.reserved_bytes, third.released_bytes), (kept, kept), "{pool_type:?}");
        assert!(third.driver_calls > 0 && third.driver_nanoseconds > 0, "{third:?}");
        assert!(third.nanoseconds > 0);
        rig.finish();
    }
}

#[test]
fn what_is_beyond_the_peak_goes_at_once() {
    for store in STORES {
        let rig = Subject::new(PoolType::Exact, store).plan().start();
        for pages in 1..20 {
            let block = rig.allocate_and_touch(pages * 2 * MIB, A);
            rig.run(A);
            rig.free(block);
        }
        assert!(rig.reserved_bytes() > 300 * MIB);
        let done = rig.heap.optimize(DEVICE).unwrap();
        // The largest was 38 MiB.
        assert!(rig.reserved_bytes() <= 39 * MIB, "{done:?}");
        assert_eq!(done.released_bytes, done.reserved_bytes - rig.reserved_bytes());
        rig.finish();
    }
}

#[test]
fn what_other_streams_have_finished_with_is_compacted() {
    for (pool_type, rig) in rigs() {
        let block = rig.allocate_and_touch(4 * MIB, A);
        rig.record(block, B);
        rig.free(block);
        rig.run(A);
        rig.run(B);
        let done = rig.heap.optimize(DEVICE).unwrap();
        assert!(done.compacted_bytes >= 4 * MIB, "{pool_type:?}: {done:?}");
        rig.finish();
    }
}

#[test]
fn a_capture_is_left_alone() {
    for (pool_type, rig) in rigs() {
        let block = rig.allocate_and_touch(20 * MIB, A);
        rig.run(A);
        rig.free(block);
        rig.heap.begin_capture(DEVICE).unwrap();
        rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
        for _ in 0..2 {
            assert_eq!(rig.heap.optimize(DEVICE).unwrap().released_bytes, 0, "{pool_type:?}");
        }
        rig.machine.end_capture(0, B.0).expect("it is valid");
        rig.heap.end_capture(DEVICE).unwrap();
        rig.finish();
    }
}
