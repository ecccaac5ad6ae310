//! Pausing while memory moves between lanes, and beside other threads and other devices.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Status, StreamHandle};
use simgpu::{Call, Progress, StoreKind, Violation, Work};

use crate::support::{A, B, C, DEVICE, Random, Rig, status_of, tier};
use crate::{CACHE, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    memory_moves_between_tags_and_the_rest
    other_threads_go_on
    the_tags_own_threads_go_on
    every_device_is_paused
    a_peer_has_access_from_then_on
    a_peer_that_cannot_be_is_refused
    a_peer_is_enabled_wholly_or_not
}

/// Free memory has no tag: a tag takes what is free elsewhere, and others take what it has freed. Its
/// extents are then seen from other lanes as well, and pausing unmaps them there, too.
fn memory_moves_between_tags_and_the_rest(store: StoreKind) {
    let rig = subject(store).plan().capacity(96 * MIB).start();
    let first = rig.hold(None, 60 * MIB, A, 1);
    rig.free(first.address);
    let tagged = rig.hold(Some(WEIGHTS), 40 * MIB, A, 2);
    assert!(rig.reserved_bytes() < 96 * MIB, "it was not new");
    let mappings = rig.machine.census().mappings;
    let handles = rig.machine.census().handles;
    rig.pause(WEIGHTS, true);
    if mappings > handles {
        assert!(rig.usage().count(Call::Unmap) >= 2);
    }
    let second = rig.hold(None, 60 * MIB, A, 3);
    assert_eq!(status_of(rig.heap.resume(WEIGHTS)), Status::OutOfMemory);
    rig.check_held(&second);
    rig.free(second.address);
    rig.resume(WEIGHTS);
    rig.check_held(&tagged);
    rig.free(tagged.address);
    let last = rig.hold(Some(CACHE), 80 * MIB, B, 4);
    rig.pause(CACHE, true);
    rig.resume(CACHE);
    rig.check_held(&last);
    rig.finish_without_host_memory();
}

fn pick_bytes(random: &mut Random) -> u64 {
    let most_bytes = if random.below(4) == 0 { 12 * MIB } else { MIB };
    1 + random.below(most_bytes)
}

/// Stops the others at its end, which may be a panic.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Blocks that come and go on one stream, until `stop`.
fn churn(rig: &Rig, tag: Option<&str>, stream: StreamHandle, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    let mut held = Vec::new();
    while !stop.load(Relaxed) {
        if held.len() < 20 && random.below(2) == 0 {
            let bytes = pick_bytes(&mut random);
            held.push(rig.hold(tag, bytes, stream, random.below(250) as u8));
        } else if !held.is_empty() {
            let index = random.below(held.len() as u64) as usize;
            let block = held.swap_remove(index);
            rig.check_held(&block);
            rig.free(block.address);
        }
    }
    for block in held {
        rig.check_held(&block);
        rig.free(block.address);
    }
}

/// How often a tag is paused beside threads that do not stop.
fn rounds() -> u64 {
    tier::some_or_all(8, 60)
}

fn other_threads_go_on(store: StoreKind) {
    let rig = subject(store).plan().capacity(400 * MIB).start();
    rig.machine.set_progress(Progress::Automatic);
    let held: Vec<_> = [300, MIB, 24 * MIB, 3 * MIB, 700, 11 * MIB]
        .map(|bytes| rig.hold(Some(WEIGHTS), bytes, A, 77))
        .into();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn(&rig, Some(CACHE), B, 1, &stop));
        scope.spawn(|| churn(&rig, None, C, 2, &stop));
        let _stopping = Stopping(&stop);
        for round in 0..rounds() {
            rig.heap.pause(WEIGHTS, true).unwrap();
            std::thread::yield_now();
            rig.heap.resume(WEIGHTS).unwrap();
            held.iter().for_each(|held| rig.check_held(held));
            assert_eq!(rig.heap.generation(WEIGHTS), Ok(round + 1));
        }
    });
    rig.check();
    rig.finish_without_host_memory();
}

/// Threads that use the tag itself free and allocate, but touch nothing, while it is paused.
fn the_tags_own_threads_go_on(store: StoreKind) {
    let rig = subject(store).plan().capacity(2048 * MIB).start();
    rig.machine.set_progress(Progress::Automatic);
    let stop = AtomicBool::new(false);
    let come_and_go = |stream: StreamHandle, seed: u64| {
        let mut random = Random(seed);
        let mut held = Vec::new();
        rig.heap.begin_tag(WEIGHTS).unwrap();
        while !stop.load(Relaxed) {
            if held.len() < 20 && random.below(2) == 0 {
                let bytes = pick_bytes(&mut random);
                held.push(rig.allocate(bytes, stream));
            } else if !held.is_empty() {
                let index = random.below(held.len() as u64) as usize;
                rig.free(held.swap_remove(index));
            }
        }
        rig.heap.end_tag().unwrap();
        held.into_iter().for_each(|address| rig.free(address));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| come_and_go(A, 1));
        scope.spawn(|| come_and_go(B, 2));
        scope.spawn(|| churn(&rig, None, C, 3, &stop));
        let _stopping = Stopping(&stop);
        while rig.heap.generation(WEIGHTS).is_err() {
            std::thread::yield_now();
        }
        for _ in 0..rounds() {
            rig.heap.pause(WEIGHTS, true).unwrap();
            std::thread::yield_now();
            rig.heap.resume(WEIGHTS).unwrap();
        }
    });
    rig.check();
    rig.finish_without_host_memory();
}

fn every_device_is_paused(store: StoreKind) {
    let rig = subject(store).plan().devices(2, 256 * MIB).start();
    rig.heap.begin_tag(WEIGHTS).unwrap();
    for ordinal in [0, 1].map(DeviceOrdinal) {
        rig.heap.allocate(24 * MIB, ordinal, A).unwrap();
    }
    rig.heap.end_tag().unwrap();
    rig.pause(WEIGHTS, true);
    assert_eq!(rig.machine.census().used_bytes, 0);
    rig.resume(WEIGHTS);
    rig.finish();
}

const PEER: DeviceOrdinal = DeviceOrdinal(1);

impl Rig {
    /// What the machine has against the peer touching a block of device 0.
    fn violations_of_peer(&self, address: u64, bytes: u64) -> Vec<Violation> {
        // What was queued on the block before is over, to everybody's knowledge.
        self.machine.synchronize(0).unwrap();
        self.machine.touch(1, 0xF000, Work::read(address, bytes, "a peer")).unwrap();
        self.machine.synchronize(1).unwrap();
        self.machine.take_violations()
    }

    #[track_caller]
    fn peer_may_touch(&self, address: u64, bytes: u64) {
        assert_eq!(self.violations_of_peer(address, bytes), []);
    }
}

fn a_peer_has_access_from_then_on(store: StoreKind) {
    let rig = subject(store).plan().devices(2, 96 * MIB).start();
    let before = rig.hold(None, 24 * MIB, A, 1);
    let found = rig.violations_of_peer(before.address, before.bytes);
    assert!(matches!(found[..], [Violation::TouchWithoutAccess { .. }]), "{found:?}");

    rig.heap.enable_peer_access(DEVICE, PEER).unwrap();
    rig.peer_may_touch(before.address, before.bytes);
    let calls = rig.usage().count(Call::SetAccess);
    rig.heap.enable_peer_access(DEVICE, PEER).unwrap();
    rig.heap.enable_peer_access(DEVICE, DEVICE).unwrap();
    assert_eq!(rig.usage().count(Call::SetAccess), calls, "once is enough");

    let later = rig.hold(None, 3 * MIB, A, 2);
    rig.peer_may_touch(later.address, later.bytes);

    // Memory that moves to other addresses, of another stream and a tag.
    rig.free(before.address);
    let moved = rig.hold(Some(WEIGHTS), 90 * MIB, A, 3);
    rig.peer_may_touch(moved.address, moved.bytes);
    rig.pause(WEIGHTS, true);
    rig.resume(WEIGHTS);
    rig.peer_may_touch(moved.address, moved.bytes);
    rig.check_held(&moved);

    // The other way comes by itself, once the peer is in use.
    let of_peer = rig.heap.allocate(MIB, PEER, B).unwrap();
    rig.machine.touch(0, A.0, Work::write(of_peer, MIB, "the other way")).unwrap();
    assert_eq!(rig.machine.take_violations(), []);
    rig.machine.synchronize(0).unwrap();
    rig.finish();
}

fn a_peer_that_cannot_be_is_refused(store: StoreKind) {
    let mut plan = subject(store).plan().devices(2, 96 * MIB);
    plan.machine.peer_access = false;
    let rig = plan.start();
    let enable = |device: u32, peer: u32| {
        rig.heap.enable_peer_access(DeviceOrdinal(device), DeviceOrdinal(peer))
    };
    assert_eq!(status_of(enable(0, 1)), Status::NotSupported);
    assert_eq!(status_of(enable(0, 2)), Status::InvalidDevice);
    assert_eq!(status_of(enable(2, 0)), Status::InvalidDevice);
    rig.hold(None, MIB, A, 1);
    rig.finish();
}

fn a_peer_is_enabled_wholly_or_not(store: StoreKind) {
    let rig = subject(store).plan().devices(2, 96 * MIB).start();
    let held: Vec<_> = [24 * MIB, 30 * MIB].map(|bytes| rig.hold(None, bytes, A, 1)).into();
    let target = simgpu::Target::call(Call::SetAccess);
    rig.machine.faults().fail(target, 2, simgpu::Times::Once, simgpu::Code(12345));
    let enable = || rig.heap.enable_peer_access(DEVICE, PEER);
    assert_eq!(status_of(enable()), Status::DriverFailed);
    let later = rig.hold(None, 20 * MIB, A, 2);
    assert_eq!(rig.violations_of_peer(later.address, later.bytes).len(), 1, "it is not enabled");
    enable().unwrap();
    held.iter().chain([&later]).for_each(|held| rig.peer_may_touch(held.address, held.bytes));
    rig.finish();
}
