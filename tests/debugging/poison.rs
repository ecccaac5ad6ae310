//! Patterns in fresh and in freed memory, and what they show.

use genesis::base::size::MIB;
use genesis::config::{DebugModes, PoolType};
use simgpu::{CaptureMode, StoreKind, Work};

use crate::support::{A, B, C, DEVICE};
use crate::{FREED, FRESH, POISON, SIZES_BYTES, at, everywhere, plan, with_bytes};

#[test]
fn fresh_memory_and_freed_memory_are_filled() {
    with_bytes(POISON, |rig| {
        for bytes in SIZES_BYTES {
            for _ in 0..2 {
                let address = rig.allocate(bytes, A);
                let block = rig.heap.block_containing(address).unwrap();
                assert!(rig.is_filled(address, block.allocated_bytes, FRESH), "{bytes}");
                rig.write(address, A);
                rig.free(address);
                if rig.machine.is_accessible(address, block.allocated_bytes) {
                    assert!(rig.is_filled(address, block.allocated_bytes, FREED), "{bytes}");
                }
            }
        }
        assert!(rig.lines().is_empty());
        rig.finish();
    });
}

/// Whichever stream uses the memory next, and whatever was queued before, on streams that may be
/// gone: nothing races.
#[test]
fn fills_are_in_order_with_all_work() {
    everywhere(POISON, |rig| {
        let doomed = genesis::base::StreamHandle(rig.machine.stream_create(0, false).unwrap());
        for bytes in SIZES_BYTES {
            let shared = rig.allocate_and_touch(bytes, A);
            let event = rig.machine.event_create(0, false).unwrap();
            rig.machine.event_record(0, event, A.0).unwrap();
            rig.machine.stream_wait(0, B.0, event).unwrap();
            rig.machine.event_destroy(0, event).unwrap();
            rig.record(shared, B);
            rig.machine.touch(0, B.0, Work::read(shared, bytes, "reader")).unwrap();
            let short_lived = rig.allocate_and_touch(bytes, doomed);
            rig.free(shared);
            for stream in [A, B, C] {
                let next = rig.allocate_and_touch(bytes, stream);
                rig.free(next);
                rig.check();
            }
            let _ = short_lived;
        }
        rig.machine.stream_destroy(0, doomed.0).unwrap();
        for block in rig.heap.largest_allocations(DEVICE, 0).unwrap() {
            rig.free(block.address);
        }
        for stream in [A, B, C] {
            rig.allocate_and_touch(MIB, stream);
        }
        rig.finish();
    });
}

#[test]
fn what_is_written_past_the_end_is_seen_at_the_free() {
    with_bytes(POISON, |rig| {
        at(7);
        let address = rig.allocate(1000, A);
        let allocated_bytes = rig.heap.block_containing(address).unwrap().allocated_bytes;
        rig.machine.fill(0, A.0, address, 1000, 0).unwrap();
        if allocated_bytes > 1000 {
            rig.write(address + 1003, A);
        }
        at(8);
        rig.free(address);
        if allocated_bytes > 1000 {
            assert_eq!(
                rig.only_line(),
                "device 0: the block of 1000 bytes at A was written past its end: byte 1003; 1000 \
                 bytes allocated at program.c:7 (main) (T s ago), freed at program.c:8 (main) \
                 (T s ago)"
            );
        }
        rig.finish();
    });
}

/// What is captured is neither filled nor waited for, and the capture stays whole.
#[test]
fn captures_are_left_alone() {
    everywhere(DebugModes::ALL, |rig| {
        let pool = genesis::heap::PoolId(1, 2);
        let kept = rig.allocate(MIB, B);
        rig.heap.begin_pool(DEVICE, pool, std::sync::Arc::new(|stream| stream == A)).unwrap();
        rig.machine.begin_capture(0, A.0, CaptureMode::Global).unwrap();
        let captured = rig.allocate_and_touch(MIB, A);
        let freed = rig.allocate_and_touch(MIB, A);
        rig.free(freed);
        rig.free(kept);
        rig.heap.trim(DEVICE, 0).unwrap();
        rig.heap.empty_cache(DEVICE).unwrap();
        let beside = rig.allocate(MIB, B);
        rig.free(beside);
        let graph = rig.machine.end_capture(0, A.0).expect("the capture is whole");
        assert_eq!(graph.touch_count(), 2, "only the program's own");
        rig.heap.end_pool(DEVICE, pool).unwrap();
        // The graph writes to what was freed in its capture, as it may.
        rig.machine.graph_launch(0, C.0, &graph).unwrap();
        rig.free(captured);
        rig.machine.graph_launch(0, C.0, &graph).unwrap();
        rig.machine.run_to_idle(0, C.0).unwrap();
        rig.machine.synchronize(0).unwrap();
        rig.heap.release_pool(DEVICE, pool).unwrap();
        rig.heap.empty_cache(DEVICE).unwrap();
        assert!(rig.lines().is_empty(), "{:?}", rig.lines());
        rig.finish();
    });
}

#[test]
fn poison_is_switched_while_the_program_runs() {
    let rig = plan(PoolType::Elastic, StoreKind::RealBytes, DebugModes::OFF).start();
    let before = rig.allocate(MIB, A);
    rig.machine.fill(0, A.0, before, MIB, 0).unwrap();
    let mut settings = rig.heap.settings();
    settings.debug = DebugModes::ALL;
    rig.heap.apply(&settings);
    let during = rig.allocate(MIB, A);
    assert!(rig.is_filled(during, MIB, FRESH));
    rig.free(before);
    rig.free(during);
    assert!(rig.is_filled(before, MIB, FREED));
    assert_eq!(rig.statistics().active_bytes.current, 2 * MIB, "held back");
    rig.check();
    settings.debug = DebugModes::OFF;
    rig.heap.apply(&settings);
    assert_eq!(rig.statistics().active_bytes.current, 0);
    let calls = rig.calls();
    rig.free(rig.allocate(MIB, A));
    assert_eq!(rig.calls(), calls, "off, nothing is asked of the driver");
    rig.finish();
}

/// A block that a captured stream uses is neither waited for nor filled.
#[test]
fn a_capture_outside_of_pools_keeps_the_blocks_recorded_for_it() {
    everywhere(DebugModes::ALL, |rig| {
        let block = rig.allocate_and_touch(MIB, A);
        rig.record(block, C);
        rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
        rig.machine.touch(0, C.0, Work::read(block, 512, "captured")).unwrap();
        if rig.heap.settings().strategy.pool_type != PoolType::Naive {
            rig.free(block);
        }
        rig.machine.end_capture(0, C.0).expect("the capture is whole");
        rig.finish();
    });
}
