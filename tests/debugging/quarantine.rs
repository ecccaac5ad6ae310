//! Freed blocks that are kept from being used again.

use genesis::base::Status;
use genesis::base::size::MIB;
use genesis::config::{DebugModes, PoolType};
use simgpu::StoreKind;

use crate::support::{A, B, C, DEVICE, Rig, status_of};
use crate::{POISON, QUARANTINE, at, everywhere, plan, with_bytes};

#[test]
fn what_was_freed_is_not_used_again_for_a_while() {
    everywhere(QUARANTINE, |rig| {
        let first = rig.allocate(MIB, A);
        rig.free(first);
        let others = [(); 20].map(|()| {
            let address = rig.allocate(MIB, A);
            rig.free(address);
            address
        });
        assert!(!others.contains(&first), "{}", rig.heap.settings().strategy.pool_type.name());
        let statistics = rig.statistics();
        assert_eq!(statistics.allocated_bytes.current, 0);
        assert!(statistics.active_bytes.current >= 21 * MIB, "{statistics:?}");
        rig.check();
        rig.heap.empty_cache(DEVICE).unwrap();
        assert_eq!(rig.reserved_bytes(), 0);
        rig.finish();
    });
}

#[test]
fn so_much_is_held_back_and_no_more() {
    for pool_type in PoolType::ALL {
        let plan = plan(*pool_type, StoreKind::AddressesOnly, QUARANTINE);
        let rig = plan.set(|settings| settings.quarantine_size_bytes = 8 * MIB).start();
        for _ in 0..100 {
            rig.free(rig.allocate_and_touch(MIB, A));
            assert!(rig.statistics().active_bytes.current <= 8 * MIB);
        }
        assert_eq!(rig.statistics().active_bytes.current, 8 * MIB);
        let mut settings = rig.heap.settings();
        settings.quarantine_size_bytes = 3 * MIB;
        rig.heap.apply(&settings);
        assert_eq!(rig.statistics().active_bytes.current, 3 * MIB);
        rig.finish();
    }
}

/// Most of a small device, so that there is room for one such block.
const LARGE_BYTES: u64 = 88 * MIB;

/// Runs `case` for each strategy and store on a device of which every byte is filled in little
/// time.
fn on_small_devices(modes: DebugModes, case: impl Fn(Rig)) {
    for pool_type in PoolType::ALL {
        for store in [StoreKind::RealBytes, StoreKind::AddressesOnly] {
            let plan = plan(*pool_type, store, modes).capacity(128 * MIB);
            case(plan.set(|settings| settings.quarantine_size_bytes = 32 * MIB).start());
        }
    }
}

#[test]
fn a_request_gets_what_is_held_back_before_it_fails() {
    for modes in [QUARANTINE, DebugModes::ALL] {
        on_small_devices(modes, |rig| {
            for _ in 0..3 {
                let address = rig.allocate_and_touch(LARGE_BYTES, A);
                rig.free(address);
            }
            let address = rig.allocate_and_touch(LARGE_BYTES, B);
            assert_eq!(rig.refusal(LARGE_BYTES, C), Status::OutOfMemory);
            rig.free(address);
            rig.finish();
        });
    }
}

#[test]
fn streams_that_were_recorded_are_waited_for_as_well() {
    everywhere(QUARANTINE, |rig| {
        let address = rig.allocate_and_touch(MIB, A);
        rig.run(A);
        rig.record(address, B);
        rig.machine
            .event_synchronize(0, {
                let event = rig.machine.event_create(0, false).unwrap();
                rig.machine.event_record(0, event, A.0).unwrap();
                event
            })
            .unwrap();
        rig.touch(address, B);
        rig.free(address);
        rig.check();
        // It leaves quarantine, and waits for B.
        let mut settings = rig.heap.settings();
        settings.debug = DebugModes::OFF;
        rig.heap.apply(&settings);
        rig.check();
        rig.allocate_and_touch(MIB, A);
        rig.allocate_and_touch(MIB, A);
        rig.finish();
    });
}

#[test]
fn a_write_after_the_free_is_reported() {
    let modes = DebugModes { quarantine: true, ..POISON };
    with_bytes(modes, |rig| {
        at(3);
        let address = rig.allocate(3 * MIB, A);
        at(4);
        rig.free(address);
        rig.write(address + MIB + 5, A);
        rig.run(A);
        assert!(rig.lines().is_empty(), "it is looked at when it leaves");
        rig.heap.empty_cache(DEVICE).unwrap();
        assert_eq!(
            rig.only_line(),
            "device 0: the block of 3145728 bytes at A was written to after it was freed: byte \
             1048581; 3145728 bytes allocated at program.c:3 (main) (T s ago), freed at \
             program.c:4 (main) (T s ago)"
        );
        rig.machine.take_violations();
        rig.finish();
    });
}

/// Also what is queued and has not run when the block leaves.
#[test]
fn a_write_that_is_queued_is_seen_on_the_way_out() {
    let plan = plan(PoolType::Elastic, StoreKind::RealBytes, DebugModes::ALL);
    let rig = plan.set(|settings| settings.quarantine_size_bytes = MIB).start();
    let address = rig.allocate(MIB, A);
    rig.free(address);
    rig.write(address, B);
    rig.free(rig.allocate(MIB, A));
    assert_eq!(rig.lines().len(), 1);
    rig.finish();
}

#[test]
fn a_tag_is_paused_with_blocks_held_back() {
    let rig = plan(PoolType::Elastic, StoreKind::RealBytes, DebugModes::ALL).start();
    rig.heap.begin_tag("cache").unwrap();
    let kept = rig.allocate(1000, A);
    let freed = rig.allocate(5 * MIB, A);
    rig.heap.end_tag().unwrap();
    rig.free(freed);
    rig.heap.pause("cache", false).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    assert_eq!(status_of(rig.heap.free(freed)), Status::DoubleFree);
    rig.heap.resume("cache").unwrap();
    rig.check();
    // What is behind its end is not what it was, which is not reported.
    rig.free(kept);
    rig.heap.begin_tag("cache").unwrap();
    let paused = rig.allocate(1000, A);
    rig.heap.end_tag().unwrap();
    rig.heap.pause("cache", true).unwrap();
    rig.free(paused);
    assert_eq!(status_of(rig.heap.free(paused)), Status::DoubleFree);
    rig.heap.resume("cache").unwrap();
    assert_eq!(rig.lines().len(), 2, "{:?}", rig.lines());
    rig.finish();
}

/// What the callbacks free before a request fails is held back no more than the rest.
#[test]
fn what_a_callback_frees_serves_the_request() {
    on_small_devices(DebugModes::ALL, |rig| {
        let held = rig.allocate(LARGE_BYTES, A);
        let heap = std::sync::Arc::downgrade(&rig.heap);
        rig.heap.add_out_of_memory_callback(std::sync::Arc::new(move |_, _| {
            heap.upgrade().is_some_and(|heap| heap.free(held).is_ok())
        }));
        rig.allocate_and_touch(LARGE_BYTES, A);
        rig.finish();
    });
}
