//! Where the contents of paused memory are kept: the kinds, what stays for the next pause, and how
//! long it takes beside the bus.

use genesis::base::size::{GIB, KIB, MIB};
use genesis::base::{Backup, Status};
use genesis::heap::Keeping;
use simgpu::{Call, CostTable, Prices, StoreKind};

use crate::support::{A, B, DEVICE, Rig, is_filled, tier};
use crate::{CACHE, Held, Scene, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    every_kind_keeps_the_contents
    allocations_say_what_is_kept_of_them
    all_tags_at_once
    a_version_is_saved_once
    memory_that_came_or_went_is_saved_again
    kept_host_memory_is_used_again
    what_is_kept_goes_with_its_blocks
    saved_bytes_can_be_read
    the_nameless_tag_is_none
    threads_without_a_tag_may_have_one
    requests_under_tags_leave_a_margin
}

const KINDS: [Backup; 3] = [Backup::Pinned, Backup::Pageable, Backup::Disk];

fn kept(backup: Backup) -> Keeping {
    Keeping { backup: Some(backup), version: None }
}

fn version(version: u64) -> Keeping {
    Keeping { backup: Some(Backup::Pinned), version: Some(version) }
}

impl Rig {
    #[track_caller]
    fn pause_kept(&self, tag: Option<&str>, keeping: Keeping) {
        self.heap.pause_tags(tag, keeping).unwrap();
        self.check();
    }

    /// How often a pause or resume made each of these calls.
    fn calls_of(&self, calls: [Call; 2], operation: impl FnOnce()) -> [u64; 2] {
        let before = calls.map(|call| self.usage().count(call));
        operation();
        let after = calls.map(|call| self.usage().count(call));
        [after[0] - before[0], after[1] - before[1]]
    }
}

fn every_kind_keeps_the_contents(store: StoreKind) {
    let scene = Scene::new(store);
    for backup in KINDS.into_iter().chain(KINDS) {
        scene.rig.pause_kept(Some(WEIGHTS), kept(backup));
        scene.check_others();
        let is_pinned = scene.rig.host_bytes() > 0;
        assert_eq!(is_pinned, backup == Backup::Pinned, "{backup:?}");
        scene.rig.resume(WEIGHTS);
        assert_eq!(scene.rig.host_bytes(), 0);
        scene.check_all();
    }
    scene.finish();
}

/// Of memory in several chunks, other threads prepare the next while one is copied.
#[test]
fn memory_in_many_chunks_comes_back() {
    let rig = subject(StoreKind::RealBytes).plan().capacity(GIB).start();
    let held: Vec<Held> = [(300 * MIB, 1), (70 * MIB, 2), (5 * KIB, 3)]
        .map(|(bytes, pattern)| rig.hold(Some(WEIGHTS), bytes, A, pattern))
        .into();
    for &backup in tier::some_or_all(&[Backup::Disk][..], &KINDS) {
        rig.pause_kept(Some(WEIGHTS), kept(backup));
        assert_eq!(rig.reserved_bytes(), 0);
        rig.resume(WEIGHTS);
        held.iter().for_each(|held| rig.check_held(held));
    }
    rig.finish_without_host_memory();
}

fn allocations_say_what_is_kept_of_them(store: StoreKind) {
    let rig = subject(store).plan().start();
    let hold = |backup, pattern| {
        rig.heap.begin_tag_with(WEIGHTS, backup).unwrap();
        let held = rig.hold(None, 24 * MIB, A, pattern);
        rig.heap.end_tag().unwrap();
        held
    };
    let held: Vec<Held> = KINDS.iter().zip(1..).map(|(&kind, byte)| hold(kind, byte)).collect();
    let dropped = hold(Backup::None, 9);
    rig.pause_kept(Some(WEIGHTS), Keeping::default());
    assert_eq!((rig.reserved_bytes(), rig.host_bytes()), (0, 24 * MIB), "one is pinned");
    rig.resume(WEIGHTS);
    held.iter().for_each(|held| rig.check_held(held));
    rig.touch(dropped.address, A);
    rig.finish_without_host_memory();
}

fn all_tags_at_once(store: StoreKind) {
    let scene = Scene::new(store);
    scene.rig.pause(CACHE, true);
    scene.rig.pause_kept(None, kept(Backup::Pinned));
    let untagged_bytes: u64 = scene.untagged.iter().map(|held| held.bytes).sum();
    assert!(scene.rig.reserved_bytes() < 2 * untagged_bytes);
    scene.rig.heap.resume_tags(None).unwrap();
    for tag in [WEIGHTS, CACHE] {
        assert_eq!(scene.rig.heap.generation(tag), Ok(1));
    }
    scene.finish();
}

fn a_version_is_saved_once(store: StoreKind) {
    let scene = Scene::new(store);
    let calls = [Call::CopyToHost, Call::HostRegister];
    let pause = |number| {
        let copied = scene.rig.calls_of(calls, || {
            scene.rig.pause_kept(Some(WEIGHTS), version(number));
        });
        scene.rig.resume(WEIGHTS);
        for held in &scene.weights {
            scene.rig.check_held(held);
        }
        copied
    };
    assert!(pause(1).iter().all(|&count| count > 0));
    assert_eq!([pause(1), pause(1)], [[0, 0]; 2], "nothing is copied, and nothing locked");
    let [copies, locked] = pause(2);
    assert!(copies > 0 && locked == 0, "other contents, in the same host memory");
    assert_eq!(pause(2), [0, 0]);
    let bytes = scene.rig.host_bytes();
    scene.rig.pause(WEIGHTS, true);
    assert_eq!(scene.rig.host_bytes(), bytes);
    scene.rig.resume(WEIGHTS);
    assert_eq!(scene.rig.host_bytes(), 0, "without a version nothing stays");
    scene.finish();
}

fn memory_that_came_or_went_is_saved_again(store: StoreKind) {
    let mut scene = Scene::new(store);
    scene.rig.pause_kept(Some(WEIGHTS), version(1));
    scene.rig.resume(WEIGHTS);
    // The same addresses, and something else there.
    let old = scene.weights.remove(3);
    scene.rig.free(old.address);
    scene.weights.push(scene.rig.hold(Some(WEIGHTS), old.bytes, old.stream, 250));
    scene.rig.pause_kept(Some(WEIGHTS), version(1));
    scene.rig.resume(WEIGHTS);
    scene.check_all();
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn kept_host_memory_is_used_again(store: StoreKind) {
    let scene = Scene::new(store);
    scene.rig.heap.set_retains_backups(true);
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    let bytes = scene.rig.host_bytes();
    assert!(bytes > 0 && scene.rig.heap.retains_backups());
    let calls = [Call::CopyToHost, Call::HostRegister];
    for _ in 0..3 {
        let [copies, locked] = scene.rig.calls_of(calls, || scene.rig.pause(WEIGHTS, true));
        assert!(copies > 0 && locked == 0);
        scene.rig.resume(WEIGHTS);
        assert_eq!(scene.rig.host_bytes(), bytes);
    }
    scene.rig.heap.set_retains_backups(false);
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    assert_eq!(scene.rig.host_bytes(), 0);
    scene.finish();
}

fn what_is_kept_goes_with_its_blocks(store: StoreKind) {
    let mut scene = Scene::new(store);
    scene.rig.pause_kept(Some(WEIGHTS), version(1));
    scene.rig.resume(WEIGHTS);
    assert!(scene.rig.host_bytes() > 0);
    for held in std::mem::take(&mut scene.weights) {
        scene.rig.free(held.address);
    }
    scene.rig.pause(CACHE, true);
    scene.rig.resume(CACHE);
    assert_eq!(scene.rig.host_bytes(), 0);
    scene.finish();
}

fn saved_bytes_can_be_read(store: StoreKind) {
    let scene = Scene::new(store);
    let backup_of = |held: &Held, offset: u64| {
        let (address, bytes) = (held.address + offset, held.bytes - offset);
        scene.rig.heap.backup_of(address, bytes).unwrap()
    };
    let is_saved = |held: &Held, offset: u64| {
        let Some(at) = backup_of(held, offset) else { return false };
        // SAFETY: so many bytes of the backup, which nobody writes.
        let bytes =
            unsafe { std::slice::from_raw_parts(at as *const u8, (held.bytes - offset) as usize) };
        assert!(store == StoreKind::AddressesOnly || is_filled(bytes, held.pattern));
        true
    };
    assert!(!is_saved(&scene.weights[0], 0), "it is not paused");
    for backup in [Backup::Pinned, Backup::Pageable] {
        scene.rig.pause_kept(Some(WEIGHTS), kept(backup));
        for held in &scene.weights {
            assert!(is_saved(held, 0) && is_saved(held, held.bytes / 2), "{held:?}");
            assert_eq!(scene.rig.heap.backup_of(held.address, 1 << 40), Ok(None), "too many");
        }
        assert!(!is_saved(&scene.cache[0], 0));
        scene.rig.resume(WEIGHTS);
    }
    for backup in [Backup::Disk, Backup::None] {
        scene.rig.pause_kept(Some(CACHE), kept(backup));
        assert_eq!(backup_of(&scene.cache[0], 0), None, "{backup:?}");
        scene.rig.resume(CACHE);
    }
    let Scene { rig, .. } = scene;
    rig.finish_without_host_memory();
}

fn the_nameless_tag_is_none(store: StoreKind) {
    let rig = subject(store).plan().start();
    rig.heap.begin_tag(WEIGHTS).unwrap();
    rig.heap.begin_tag_with("", Backup::None).unwrap();
    let outside = rig.hold(None, 24 * MIB, A, 1);
    rig.heap.begin_tag(CACHE).unwrap();
    let within = rig.hold(None, 24 * MIB, A, 2);
    (0..3).for_each(|_| rig.heap.end_tag().unwrap());
    rig.pause(CACHE, true);
    rig.pause(WEIGHTS, true);
    rig.check_held(&outside);
    assert_eq!(rig.host_bytes(), within.bytes);
    rig.resume(CACHE);
    rig.check_held(&within);
    rig.finish_without_host_memory();
}

fn threads_without_a_tag_may_have_one(store: StoreKind) {
    let rig = subject(store).plan().start();
    rig.heap.set_default_tag(WEIGHTS, Backup::Pinned);
    let mine = rig.hold(None, 24 * MIB, A, 1);
    let other =
        std::thread::scope(|scope| scope.spawn(|| rig.hold(None, 24 * MIB, B, 2)).join().unwrap());
    rig.heap.begin_tag_with("", Backup::None).unwrap();
    let outside = rig.hold(None, 24 * MIB, A, 3);
    rig.heap.end_tag().unwrap();
    rig.pause_kept(None, Keeping::default());
    rig.check_held(&outside);
    assert_eq!(rig.host_bytes(), mine.bytes + other.bytes);
    rig.heap.resume_tags(None).unwrap();
    [mine, other].iter().for_each(|held| rig.check_held(held));
    rig.heap.set_default_tag("", Backup::None);
    let untagged = rig.hold(None, 24 * MIB, A, 4);
    rig.pause(WEIGHTS, true);
    rig.check_held(&untagged);
    rig.resume(WEIGHTS);
    rig.finish_without_host_memory();
}

fn requests_under_tags_leave_a_margin(store: StoreKind) {
    let rig = subject(store).plan().capacity(256 * MIB).start();
    rig.heap.set_tag_margin(100 * MIB);
    rig.heap.begin_tag(WEIGHTS).unwrap();
    let first = rig.hold(None, 100 * MIB, A, 1);
    let error = rig.heap.allocate(100 * MIB, DEVICE, A).unwrap_err();
    assert_eq!(error.status, Status::LimitReached);
    assert_eq!(rig.statistics().out_of_memory_events, 1);
    rig.heap.begin_tag_with("", Backup::None).unwrap();
    let outside = rig.hold(None, 100 * MIB, A, 2);
    rig.heap.end_tag().unwrap();
    // What is cached counts as free.
    rig.free(outside.address);
    rig.free(first.address);
    rig.hold(None, 120 * MIB, A, 3);
    rig.heap.end_tag().unwrap();
    rig.heap.set_tag_margin(0);
    rig.finish_without_host_memory();
}

/// A backup in host memory that is there already takes what the bus takes; for one in new memory,
/// most of the time goes to locking it.
#[test]
fn a_backup_is_as_fast_as_the_bus() {
    let mut plan = subject(StoreKind::AddressesOnly).plan().capacity(16 * GIB);
    let mut costs = CostTable::free_of_charge();
    for call in [Call::CopyToHost, Call::CopyToDevice, Call::HostRegister, Call::HostUnregister] {
        costs.set(call, Prices::default().table().get(call));
    }
    plan.machine.costs = costs;
    let rig = plan.start();
    for (bytes, stream) in [(6 * GIB, A), (GIB, B), (500 * MIB, A), (30 * MIB, B)] {
        rig.hold(Some(WEIGHTS), bytes, stream, 0);
    }
    rig.heap.set_retains_backups(true);
    let live_bytes = rig.statistics().allocated_bytes.current;
    let spent_ns = |operation: &dyn Fn()| {
        let before = rig.usage().driver_nanoseconds;
        operation();
        rig.usage().driver_nanoseconds - before
    };
    let price_ns = |call| rig.machine.config().costs.get(call).price_ns(live_bytes, 0);
    let first_ns = spent_ns(&|| rig.pause(WEIGHTS, true));
    let price_of_locking_ns = price_ns(Call::HostRegister);
    assert!(first_ns <= (price_ns(Call::CopyToHost) + price_of_locking_ns) * 10 / 9);
    for _ in 0..2 {
        let back_ns = spent_ns(&|| rig.resume(WEIGHTS));
        assert!(back_ns * 9 <= price_ns(Call::CopyToDevice) * 10, "{back_ns}");
        let out_ns = spent_ns(&|| rig.pause(WEIGHTS, true));
        assert!(out_ns * 9 <= price_ns(Call::CopyToHost) * 10, "{out_ns}");
    }
    rig.resume(WEIGHTS);
    rig.heap.set_retains_backups(false);
    rig.pause(WEIGHTS, true);
    rig.resume(WEIGHTS);
    rig.finish_without_host_memory();
}
