//! Private pools for NCCL and RDMA: what their memory is made of, who may reach it, that it stays,
//! the same order for every process, and who is told of it; under the race detector.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use genesis::base::size::MIB;
use genesis::base::{Backup, DeviceOrdinal, Result, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::driver::Shareable;
use genesis::heap::{Keeping, PoolId, PoolOptions, Registrar};
use simgpu::{Call, Code, HandleProperties, Machine, StoreKind, Target, Times, Work};

use support::tier::some_or_all;
use support::{A, B, C, DEVICE, Plan, Random, Rig, Subject, status_of};

const POOL: PoolId = PoolId(0, 3);
const TAG: &str = "nccl";
const GRANULE: u64 = 2 * MIB;

/// With whom memory is registered: what is, and whether any more may be.
#[derive(Debug)]
struct Book {
    machine: Arc<Machine>,
    entries: Mutex<BTreeMap<u64, u64>>,
    refuses: AtomicBool,
    registrations: Mutex<u64>,
}

impl Registrar for Book {
    fn register(&self, address: u64, bytes: u64) -> bool {
        self.reach(address, bytes);
        if self.refuses.load(SeqCst) {
            return false;
        }
        *self.registrations.lock().unwrap() += 1;
        let before = self.entries.lock().unwrap().insert(address, bytes);
        assert_eq!(before, None, "{address:#x} is registered twice");
        true
    }

    fn deregister(&self, address: u64, bytes: u64) {
        let before = self.entries.lock().unwrap().remove(&address);
        assert_eq!(before, Some(bytes), "{address:#x} is not registered");
        self.reach(address, bytes);
    }
}

impl Book {
    /// The memory is mapped, and its device can reach it: another stream's work, which is over.
    fn reach(&self, address: u64, bytes: u64) {
        self.machine.touch(0, C.0, Work::read(address, bytes, "the registrar")).unwrap();
        self.machine.synchronize(0).unwrap();
        let found = self.machine.take_violations();
        assert!(found.iter().all(|found| !found.to_string().contains("mapped")), "{found:?}");
    }

    fn addresses(&self) -> Vec<u64> {
        self.entries.lock().unwrap().keys().copied().collect()
    }
}

fn plan() -> Plan {
    Subject::new(PoolType::Elastic, StoreKind::AddressesOnly).plan()
}

impl Rig {
    fn create_pool(&self) -> Arc<Book> {
        let book = Arc::new(Book {
            machine: Arc::clone(&self.machine),
            entries: Mutex::default(),
            refuses: AtomicBool::new(false),
            registrations: Mutex::default(),
        });
        let registrar: Arc<dyn Registrar> = book.clone();
        self.try_pool(Some(registrar)).unwrap();
        book
    }

    fn try_pool(&self, registrar: Option<Arc<dyn Registrar>>) -> Result<()> {
        let options = PoolOptions { communicates: true, registrar, ..PoolOptions::default() };
        self.heap.create_pool(DEVICE, POOL, options)
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        self.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
        let result = act();
        self.heap.end_pool(DEVICE, POOL).unwrap();
        self.heap.release_pool(DEVICE, POOL).unwrap();
        result
    }

    fn in_pool(&self, bytes: u64, stream: StreamHandle) -> u64 {
        self.within(|| self.allocate_and_touch(bytes, stream))
    }

    fn creations(&self) -> u64 {
        self.machine.usage(0).unwrap().count(Call::Create)
    }

    #[track_caller]
    fn finish_pool(self, book: &Book) {
        self.heap.release_pool(DEVICE, POOL).unwrap();
        self.finish();
        assert_eq!(book.addresses(), [0; 0]);
    }
}

#[test]
fn each_block_is_one_handle_that_all_peers_reach() {
    let mut plan = plan().devices(3, 1 << 30);
    plan.machine.devices[0].handles = HandleProperties { posix: true, fabric: true, rdma: true };
    let rig = plan.start();
    let book = rig.create_pool();
    for (count, bytes) in [(1, 100), (2, GRANULE), (3, 5 * MIB), (4, 70 * MIB)] {
        let address = rig.in_pool(bytes, A);
        assert_eq!(rig.creations(), count);
        assert_eq!(book.entries.lock().unwrap()[&address], bytes.next_multiple_of(GRANULE));
        rig.machine.synchronize(0).unwrap();
        for device in [1, 2] {
            rig.machine.touch(device, A.0, Work::read(address, bytes, "a peer")).unwrap();
            rig.machine.synchronize(device).unwrap();
        }
    }
    let made = rig.heap.pool_communication(DEVICE, POOL).unwrap().unwrap();
    let options = made.handles().options();
    assert_eq!((options.shareable, options.rdma), (Shareable::PosixFdOrFabric, true));
    assert_eq!(made.peers(), [1, 2].map(DeviceOrdinal));
    rig.finish_pool(&book);
}

#[test]
fn a_fabric_without_a_channel_is_left_out_as_nccl_does() {
    for code in [Code::NOT_PERMITTED, Code::NOT_SUPPORTED] {
        let mut plan = plan();
        plan.machine.devices[0].handles =
            HandleProperties { posix: true, fabric: true, rdma: true };
        let rig = plan.start();
        let book = rig.create_pool();
        rig.machine.faults().fail(Target::call(Call::Create), 1, Times::Once, code);
        rig.in_pool(MIB, A);
        rig.in_pool(MIB, A);
        assert_eq!(rig.creations(), 3, "refused once, and not asked for again");
        let made = rig.heap.pool_communication(DEVICE, POOL).unwrap().unwrap();
        assert_eq!(made.handles().options().shareable, Shareable::PosixFd);
        rig.finish_pool(&book);
    }
}

#[test]
fn a_block_stays_and_nobody_else_gets_it() {
    let rig = plan().capacity(256 * MIB).start();
    let book = rig.create_pool();
    let other = rig.allocate_and_touch(100 * MIB, A);
    rig.free(other);
    let held = rig.in_pool(100 * MIB, A);
    let registered = book.addresses();
    assert_eq!(registered, [held], "no memory of others' serves");
    rig.free(held);
    assert_eq!(rig.refusal(200 * MIB, A), Status::OutOfMemory);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(book.addresses(), registered);
    let calls = rig.creations();
    assert_eq!(rig.in_pool(99 * MIB, A), held);
    assert_eq!(rig.creations(), calls);
    rig.check();
    rig.finish_pool(&book);
}

/// The addresses that a program gets, from the pool's first on. `history` is what was different
/// before it began, and when other streams are done.
fn offsets(history: u64) -> Vec<u64> {
    let rig = plan().start();
    let mut before = Random(history);
    for _ in 0..before.below(8) {
        rig.allocate_and_touch(before.below(40 * MIB) + 1, [A, B][before.below(2) as usize]);
    }
    let book = rig.create_pool();
    let (mut addresses, mut live) = (Vec::new(), Vec::new());
    let mut program = Random(1);
    // Begun once: the release of a use may wait for the device, and nothing would be pending.
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    for step in 0..120 {
        if live.len() > 6 || program.below(3) == 0 && !live.is_empty() {
            let address = live.swap_remove(program.below(live.len() as u64) as usize);
            if program.below(2) == 0 {
                rig.record(address, B);
                rig.touch(address, B);
            }
            rig.free(address);
            // When another stream is done is not the same on every rank.
            if before.below(2) == 0 {
                rig.run(B);
            }
        } else {
            let address = rig.allocate_and_touch((1 + program.below(4)) * GRANULE, A);
            live.push(address);
            addresses.push(address);
        }
        if step == 60 {
            rig.heap.empty_cache(DEVICE).unwrap();
        }
    }
    live.into_iter().for_each(|address| rig.free(address));
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish_pool(&book);
    addresses.iter().map(|address| address - addresses[0]).collect()
}

#[test]
fn every_process_gets_blocks_at_the_same_offsets() {
    let first = offsets(7);
    for history in 8..some_or_all(14, 200) {
        assert_eq!(offsets(history), first, "{history}");
    }
}

/// A request waits for other streams, so that it finds what every rank's finds.
#[test]
fn what_other_streams_use_is_waited_for_and_used_again() {
    let rig = plan().start();
    let book = rig.create_pool();
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    let first = rig.allocate(GRANULE, A);
    for _ in 0..8 {
        rig.record(first, B);
        rig.touch(first, B);
        rig.free(first);
        assert_eq!(rig.allocate(GRANULE, A), first);
    }
    assert_eq!(rig.creations(), 1);
    rig.free(first);
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish_pool(&book);
}

#[test]
fn what_cannot_be_registered_is_not_handed_out() {
    let rig = plan().start();
    let book = rig.create_pool();
    book.refuses.store(true, SeqCst);
    let refused = rig.within(|| rig.heap.allocate(MIB, DEVICE, A));
    assert_eq!(status_of(refused), Status::DriverFailed);
    assert_eq!(rig.reserved_bytes(), 0);
    rig.check();
    book.refuses.store(false, SeqCst);
    rig.in_pool(MIB, A);
    rig.finish_pool(&book);
}

#[test]
fn a_paused_pool_is_registered_anew_where_it_was() {
    let rig = plan().devices(2, 1 << 30).start();
    let book = rig.create_pool();
    rig.heap.set_pool_tag(DEVICE, POOL, TAG, Backup::Pinned).unwrap();
    let held = [3 * MIB, 40 * MIB].map(|bytes| rig.in_pool(bytes, A));
    rig.machine.synchronize(0).unwrap();
    let registered = book.entries.lock().unwrap().clone();
    rig.heap.pause_tags(Some(TAG), Keeping::default()).unwrap();
    assert_eq!((book.addresses(), rig.reserved_bytes()), (Vec::new(), 0));
    rig.heap.resume_tags(Some(TAG)).unwrap();
    assert_eq!(rig.heap.generation(TAG), Ok(1));
    assert_eq!(*book.entries.lock().unwrap(), registered);
    assert_eq!(rig.creations(), 4);
    rig.machine.touch(1, A.0, Work::read(held[1], 40 * MIB, "a peer")).unwrap();
    rig.machine.synchronize(1).unwrap();
    // A resume that cannot register is undone.
    rig.heap.pause_tags(Some(TAG), Keeping::default()).unwrap();
    book.refuses.store(true, SeqCst);
    assert_eq!(status_of(rig.heap.resume_tags(Some(TAG))), Status::DriverFailed);
    assert_eq!((book.addresses(), rig.reserved_bytes()), (Vec::new(), 0));
    book.refuses.store(false, SeqCst);
    rig.heap.resume_tags(Some(TAG)).unwrap();
    assert_eq!(*book.entries.lock().unwrap(), registered);
    rig.check();
    rig.finish_pool(&book);
}

/// Every driver call of a pool's life failed in turn: what is registered is what is mapped.
#[test]
fn faults_leave_registered_what_is_mapped() {
    let calls =
        [Call::Reserve, Call::Create, Call::Map, Call::SetAccess, Call::Unmap, Call::Release];
    let all = some_or_all(&calls[..4], &calls[..]);
    for &call in all {
        for nth in 1..40 {
            let rig = plan().start();
            let book = rig.create_pool();
            rig.heap.set_pool_tag(DEVICE, POOL, TAG, Backup::None).unwrap();
            rig.machine.faults().fail(Target::call(call), nth, Times::Once, Code(12345));
            let mut live = Vec::new();
            for bytes in [MIB, 6 * MIB, 30 * MIB] {
                live.extend(rig.within(|| rig.heap.allocate(bytes, DEVICE, A)));
            }
            let paused = rig.heap.pause_tags(Some(TAG), Keeping::default());
            if paused.is_ok() {
                assert_eq!(book.addresses(), [0; 0]);
                if rig.heap.resume_tags(Some(TAG)).is_err() {
                    rig.heap.resume_tags(Some(TAG)).unwrap();
                }
            }
            rig.check();
            live.sort_unstable();
            assert_eq!(book.addresses(), live, "{call:?} {nth}");
            let has_struck = rig.machine.usage(0).unwrap().count(call) >= nth;
            rig.machine.faults().clear();
            rig.finish_pool(&book);
            if !has_struck {
                break;
            }
        }
    }
}

#[test]
fn only_elastic_has_such_pools() {
    for pool_type in [PoolType::Caching, PoolType::Naive, PoolType::Arena] {
        let rig = Subject::new(pool_type, StoreKind::AddressesOnly).plan().start();
        assert_eq!(status_of(rig.try_pool(None)), Status::NotSupported);
        assert_eq!(rig.heap.pool_uses(DEVICE, POOL), Ok(0));
        rig.finish();
    }
    let rig = plan().start();
    rig.try_pool(None).unwrap();
    assert_eq!(status_of(rig.try_pool(None)), Status::InvalidArgument, "it is held");
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

/// What another pool has of its own is known as long as its blocks live.
#[test]
fn another_pools_memory_goes_back_to_where_it_came_from() {
    const OTHER: PoolId = PoolId(0, 4);
    let rig = plan().start();
    let options = PoolOptions { keeps_whole: true, ..PoolOptions::default() };
    rig.heap.create_pool(DEVICE, OTHER, options).unwrap();
    rig.heap.begin_pool_of_thread(DEVICE, OTHER).unwrap();
    let block = rig.allocate_and_touch(3 * MIB, A);
    rig.heap.end_pool(DEVICE, OTHER).unwrap();
    (0..2).for_each(|_| rig.heap.release_pool(DEVICE, OTHER).unwrap());
    let book = rig.create_pool();
    rig.free(block);
    rig.finish_pool(&book);
}
