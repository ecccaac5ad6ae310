//! Guard pages: a touch past the end of a block, or of one that was freed, is one of unmapped
//! memory.

use genesis::base::Status;
use genesis::base::size::{GIB, MIB};
use genesis::config::{DebugModes, LogLevel, PoolType};
use simgpu::{CaptureMode, StoreKind, Violation, Work};

use crate::support::{A, B, C, DEVICE, Rig};
use crate::{FRESH, GUARD, POISON, SIZES_BYTES, everywhere, plan};

/// Whether a touch of `bytes` at `address` is of memory that is not mapped.
fn faults(rig: &Rig, address: u64, bytes: u64) -> bool {
    rig.machine.touch(0, A.0, Work::write(address, bytes, "overrun")).unwrap();
    match &rig.machine.take_violations()[..] {
        [] => false,
        [Violation::TouchUnmapped { .. }] => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn overruns_fault_where_they_happen() {
    everywhere(GUARD, |rig| {
        for bytes in SIZES_BYTES {
            let address = rig.allocate(bytes, A);
            assert!(!faults(&rig, address, bytes), "{bytes}");
            let end = address + bytes.next_multiple_of(512);
            assert!(faults(&rig, address, end - address + 1), "{bytes}");
            assert!(faults(&rig, end, 1), "{bytes}");
        }
        rig.finish();
    });
}

#[test]
fn uses_after_the_free_fault() {
    everywhere(GUARD, |rig| {
        let freed = SIZES_BYTES.map(|bytes| {
            let address = rig.allocate_and_touch(bytes, A);
            rig.free(address);
            address
        });
        for _ in 0..50 {
            let address = rig.allocate_and_touch(MIB, A);
            rig.free(address);
            for &address in &freed {
                assert!(faults(&rig, address, 1));
            }
        }
        assert_eq!(rig.reserved_bytes(), 0, "and nothing is kept");
        rig.finish();
    });
}

/// Limits and statistics are of physical memory.
#[test]
fn what_guarded_blocks_take_is_counted() {
    everywhere(GUARD, |rig| {
        rig.heap.set_memory_limit(DEVICE, Some(7 * MIB)).unwrap();
        let [_, second, _] = [(); 3].map(|()| rig.allocate(1, A));
        assert_eq!(rig.statistics().requested_bytes.current, 3);
        assert_eq!(rig.reserved_bytes(), 6 * MIB);
        assert_eq!(rig.machine.census().used_bytes, 6 * MIB);
        assert_eq!(rig.refusal(1, A), Status::OutOfMemory);
        rig.free(second);
        let two_pages = rig.heap.allocate(2 * MIB + 1, DEVICE, A);
        assert_eq!(two_pages.unwrap_err().status, Status::OutOfMemory);
        rig.allocate(2 * MIB, A);
        rig.check();
        rig.heap.set_memory_limit(DEVICE, None).unwrap();
        assert_eq!(rig.refusal(GIB, A), Status::OutOfMemory);
        rig.finish();
    });
}

#[test]
fn guard_and_poison_see_the_bytes_in_between() {
    for pool_type in PoolType::ALL {
        let modes = DebugModes { guard: true, ..POISON };
        let rig = plan(*pool_type, StoreKind::RealBytes, modes).start();
        let address = rig.allocate(1, A);
        rig.free(address);
        assert!(rig.lines().is_empty());
        // Naive has blocks of the size that was asked for.
        let address = rig.allocate(700, A);
        assert!(rig.is_filled(address, 700, FRESH));
        rig.free(address);
        rig.finish();
    }
}

#[test]
fn frees_beside_a_capture_wait_for_its_end() {
    everywhere(GUARD, |rig| {
        let pool = genesis::heap::PoolId(4, 2);
        let kept = rig.allocate_and_touch(MIB, B);
        rig.heap.begin_pool(DEVICE, pool, std::sync::Arc::new(|stream| stream == A)).unwrap();
        rig.machine.begin_capture(0, A.0, CaptureMode::Global).unwrap();
        let captured = rig.allocate_and_touch(MIB, A);
        rig.free(kept);
        rig.check();
        let graph = rig.machine.end_capture(0, A.0).expect("the capture is whole");
        rig.heap.end_pool(DEVICE, pool).unwrap();
        assert_eq!(rig.reserved_bytes(), 4 * MIB, "held back");
        rig.free(rig.allocate(1, C));
        assert_eq!(rig.reserved_bytes(), 2 * MIB, "the graph's");
        rig.machine.graph_launch(0, C.0, &graph).unwrap();
        rig.free(captured);
        rig.heap.release_pool(DEVICE, pool).unwrap();
        assert_eq!(rig.reserved_bytes(), 0);
        rig.finish();
    });
}

#[test]
fn a_device_that_cannot_have_them_says_so() {
    let mut plan = plan(PoolType::Caching, StoreKind::AddressesOnly, GUARD);
    plan.machine.devices[0].virtual_memory = false;
    let rig = plan.set(|settings| settings.log = LogLevel::Warn).start();
    let address = rig.allocate(MIB, A);
    assert_eq!(
        rig.lines(),
        ["device 0: no guard pages: cuMemCreate failed with code 801 (not supported)"]
    );
    rig.free(address);
    rig.finish();
}
