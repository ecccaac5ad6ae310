//! A number of bytes taken beforehand.

use genesis::base::Status;
use genesis::base::size::{GIB, MIB};
use genesis::config::PoolType;
use simgpu::StoreKind;

use crate::subjects;
use crate::support::{A, B, DEVICE, Subject, status_of};

fn cuts(subject: &Subject) -> bool {
    subject.splits_blocks()
}

#[test]
fn requests_are_served_from_it_without_a_call() {
    for subject in subjects().filter(cuts) {
        let rig = subject.plan().start();
        rig.heap.preallocate(DEVICE, A, 100 * MIB).unwrap();
        assert_eq!(rig.reserved_bytes(), 100 * MIB, "{subject:?}");
        assert_eq!(rig.statistics().free_bytes, 100 * MIB);
        let calls = rig.statistics().driver_memory_calls;
        let blocks = [(); 6].map(|()| rig.allocate_and_touch(16 * MIB, A));
        assert_eq!(rig.statistics().driver_memory_calls, calls, "{subject:?}");
        blocks.into_iter().for_each(|block| rig.free(block));
        rig.finish();
    }
}

#[test]
fn another_stream_may_use_it() {
    for subject in subjects().filter(cuts) {
        let rig = subject.plan().capacity(512 * MIB).start();
        rig.heap.preallocate(DEVICE, A, 300 * MIB).unwrap();
        // More than the rest of the device.
        let block = rig.allocate_and_touch(296 * MIB, B);
        rig.free(block);
        rig.finish();
    }
}

#[test]
fn it_is_there_at_the_first_use_of_a_device() {
    for subject in subjects().filter(cuts) {
        let rig = subject.plan().set(|settings| settings.preallocate_bytes = 64 * MIB).start();
        assert_eq!(rig.calls(), 0);
        let block = rig.allocate_and_touch(48 * MIB, B);
        assert_eq!(rig.reserved_bytes(), 64 * MIB, "{subject:?}");
        rig.free(block);
        rig.finish();
    }
}

#[test]
fn what_there_is_not_is_an_error_and_nothing_is_taken() {
    for subject in subjects().filter(cuts) {
        let rig =
            subject.plan().set(|settings| settings.memory_limit_bytes = Some(64 * MIB)).start();
        let preallocate = |bytes| rig.heap.preallocate(DEVICE, A, bytes);
        assert_eq!(status_of(preallocate(65 * MIB)), Status::OutOfMemory, "{subject:?}");
        assert_eq!(status_of(preallocate(2 * GIB)), Status::OutOfMemory);
        assert_eq!(status_of(preallocate(u64::MAX)), Status::OutOfMemory);
        assert_eq!(rig.reserved_bytes(), 0);
        preallocate(64 * MIB).unwrap();
        preallocate(0).unwrap();
        let block = rig.allocate_and_touch(64 * MIB, A);
        rig.free(block);
        rig.finish();
    }
    let rig = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly)
        .plan()
        .set(|settings| settings.preallocate_bytes = 2 * GIB)
        .start();
    let block = rig.allocate(MIB, A);
    rig.free(block);
    rig.finish();
}

#[test]
fn a_strategy_that_cuts_nothing_refuses() {
    for pool_type in [PoolType::Naive, PoolType::Round, PoolType::Exact] {
        let rig = Subject::new(pool_type, StoreKind::AddressesOnly).plan().start();
        let refused = rig.heap.preallocate(DEVICE, A, 64 * MIB);
        assert_eq!(status_of(refused), Status::NotSupported);
        rig.finish();
    }
}
