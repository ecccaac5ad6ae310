//! Requests that only the free edges of extents can serve: what lies beside blocks that stay.

use std::ops::Range;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Status};
use genesis::heap::PoolId;
use simgpu::{Call, Code, StoreKind, Target, Times, Work};

use crate::support::{A, B, DEVICE, Plan, Rig, Subject, is_filled};
use crate::{ADDRESSES, REAL};

/// Extents are pages of 2 MiB here. A block that is kept begins or ends in the middle of one, and so does
/// each hole between two.
const PAGE_BYTES: u64 = 2 * MIB;
const KEPT_BYTES: u64 = 3 * MIB;
const HOLE_BYTES: u64 = 4 * MIB;
const PAIRS: u64 = 8;
const CAPACITY_BYTES: u64 = 64 * MIB;
const FREE_BYTES: u64 = CAPACITY_BYTES - PAIRS * KEPT_BYTES;
/// Of the holes, half have a whole page between two edges of a mebibyte, and the others two pages.
const EDGE_BYTES: u64 = MIB;
const WHOLE_BYTES: u64 = FREE_BYTES - PAIRS * EDGE_BYTES;
/// What can be served: all that is whole, and two edges.
const MOST_BYTES: u64 = WHOLE_BYTES + 2 * EDGE_BYTES;

fn plan_of(subject: Subject) -> Plan {
    let mut plan = subject.plan().capacity(CAPACITY_BYTES);
    plan.machine.detect_races = true;
    plan
}

/// A full device of which every second block was freed.
struct Holes {
    rig: Rig,
    /// Each with what its bytes were made.
    kept: Vec<(u64, u8)>,
}

impl Holes {
    fn of(rig: Rig) -> Self {
        let allocate = |bytes| rig.allocate_and_touch(bytes, A);
        let pairs: Vec<(u64, u64)> =
            (0..PAIRS).map(|_| (allocate(KEPT_BYTES), allocate(HOLE_BYTES))).collect();
        let kept = pairs.iter().map(|&(kept, _)| kept).zip(1..).collect();
        let holes = Self { kept, rig };
        holes.kept.iter().for_each(|&(kept, mark)| holes.fill(kept, KEPT_BYTES, mark));
        pairs.into_iter().for_each(|(_, hole)| holes.rig.free(hole));
        holes
    }

    fn has_bytes(&self) -> bool {
        self.rig.machine.store() == StoreKind::RealBytes
    }

    fn fill(&self, address: u64, bytes: u64, mark: u8) {
        if self.has_bytes() {
            // SAFETY: a live block of so many bytes, which nobody else knows.
            unsafe { std::ptr::write_bytes(address as *mut u8, mark, bytes as usize) };
        }
    }

    /// A large block, which has its own bytes while the others keep theirs.
    #[track_caller]
    fn allocate(&self, bytes: u64) -> u64 {
        let large = self.rig.allocate_and_touch(bytes, A);
        self.fill(large, bytes, 0xFF);
        self.check(Some((large, bytes)));
        large
    }

    #[track_caller]
    fn check(&self, large: Option<(u64, u64)>) {
        self.rig.check();
        if self.has_bytes() {
            let kept = self.kept.iter().map(|&(kept, mark)| (kept, KEPT_BYTES, mark));
            for (address, bytes, mark) in kept.chain(large.map(|(at, bytes)| (at, bytes, 0xFF))) {
                // SAFETY: a live block of so many bytes, which nobody writes now.
                let held =
                    unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
                assert!(is_filled(held, mark), "the block at {address:#x} has changed");
            }
        }
    }

    /// Frees the kept blocks of these numbers.
    fn free(&mut self, numbers: Range<usize>) {
        self.kept.drain(numbers).for_each(|(kept, _)| self.rig.free(kept));
    }

    fn refuses(&self, bytes: u64) -> bool {
        self.rig.heap.allocate(bytes, DEVICE, A).is_err_and(|error| {
            self.rig.check();
            error.status == Status::OutOfMemory
        })
    }
}

#[test]
fn a_request_is_served_over_the_edges_of_two_extents() {
    for subject in [ADDRESSES, REAL] {
        for bytes in [WHOLE_BYTES + 512, WHOLE_BYTES + EDGE_BYTES, MOST_BYTES - 512, MOST_BYTES] {
            let holes = Holes::of(plan_of(subject).start());
            let before = holes.rig.usage();
            holes.allocate(bytes);
            assert_eq!(holes.rig.reserved_bytes(), CAPACITY_BYTES);
            let after = holes.rig.usage();
            assert_eq!(
                after.host_waits.explicit, before.host_waits.explicit,
                "nothing is waited for"
            );
            assert_eq!(after.count(Call::Release), before.count(Call::Release));
            assert_eq!(holes.rig.statistics().out_of_memory_events, 0);
            holes.rig.finish();
        }
        let holes = Holes::of(plan_of(subject).start());
        assert!(holes.refuses(MOST_BYTES + 512), "of each extent one edge, at an end of the block");
        holes.rig.finish();
    }
}

#[test]
fn a_program_finds_the_place_again() {
    let holes = Holes::of(plan_of(REAL).start());
    let large = holes.allocate(MOST_BYTES);
    holes.rig.free(large);
    let calls = holes.rig.statistics().driver_memory_calls;
    for _ in 0..3 {
        // What is whole is used elsewhere between.
        let other = holes.rig.allocate_and_touch(WHOLE_BYTES / 2, A);
        holes.rig.free(other);
        let large = holes.allocate(MOST_BYTES);
        holes.rig.free(large);
    }
    let calls = holes.rig.statistics().driver_memory_calls - calls;
    assert!(calls <= 2 * WHOLE_BYTES / PAGE_BYTES, "{calls} calls");
    holes.rig.finish();
}

/// Smaller blocks use the edges where they are now.
#[test]
fn edges_that_are_lent_serve_other_requests() {
    let holes = Holes::of(plan_of(REAL).start());
    let large = holes.allocate(MOST_BYTES);
    holes.rig.free(large);
    let count = MOST_BYTES / (3 * MIB);
    let blocks: Vec<u64> = (0..count).map(|_| holes.rig.allocate_and_touch(3 * MIB, A)).collect();
    holes.check(None);
    blocks.into_iter().for_each(|block| holes.rig.free(block));
    holes.allocate(MOST_BYTES);
    holes.rig.finish();
}

/// An extent whose blocks are freed is whole again once its edge is free, too: it moves, and goes back.
#[test]
fn edges_return_to_extents_that_are_free_for_the_rest() {
    for goes_back in [false, true] {
        let mut holes = Holes::of(plan_of(REAL).start());
        let large = holes.allocate(MOST_BYTES);
        holes.free(0..PAIRS as usize);
        assert!(holes.refuses(CAPACITY_BYTES - MOST_BYTES), "two extents have lent an edge");
        holes.rig.free(large);
        if goes_back {
            holes.rig.heap.empty_cache(DEVICE).unwrap();
            assert_eq!(holes.rig.reserved_bytes(), 0);
        } else {
            holes.allocate(CAPACITY_BYTES);
        }
        holes.rig.finish();
    }
}

/// Other edges can be lent once those of an earlier request are free.
#[test]
fn a_larger_request_gets_other_edges() {
    let mut holes = Holes::of(plan_of(REAL).start());
    let small = holes.allocate(WHOLE_BYTES + 512);
    holes.rig.free(small);
    let large = holes.allocate(MOST_BYTES);
    holes.rig.free(large);
    holes.free(0..1);
    holes.allocate(MOST_BYTES + KEPT_BYTES / PAGE_BYTES * PAGE_BYTES);
    holes.rig.finish();
}

/// Memory of other streams, whose work is done, lies between.
#[test]
fn extents_of_other_streams_lie_between_the_edges() {
    let mut holes = Holes::of(plan_of(REAL).start());
    let theirs = holes.rig.allocate_and_touch(WHOLE_BYTES, B);
    holes.rig.free(theirs);
    holes.rig.run(B);
    holes.allocate(MOST_BYTES);
    assert_eq!(holes.rig.reserved_bytes(), CAPACITY_BYTES);
    holes.free(0..PAIRS as usize);
    holes.rig.finish();
}

/// Of what contexts and other libraries have taken, no allocation here knows before the driver refuses it.
#[test]
fn what_others_have_taken_is_not_counted_on() {
    const TAKEN_BYTES: u64 = 8 * MIB;
    let rig = plan_of(REAL).capacity(CAPACITY_BYTES + TAKEN_BYTES).start();
    let taken = rig.machine.allocate(0, TAKEN_BYTES).unwrap();
    let holes = Holes::of(rig);
    holes.allocate(MOST_BYTES);
    assert_eq!(holes.rig.reserved_bytes(), CAPACITY_BYTES);
    assert!(holes.refuses(MIB));
    holes.rig.machine.free(0, taken).unwrap();
    let rig = holes.rig;
    rig.finish();
}

/// Their edges are not lent: the order of one stream says nothing of another's.
#[test]
fn edges_of_other_streams_are_not_lent() {
    let holes = Holes::of(plan_of(ADDRESSES).start());
    holes.rig.run(A);
    assert_eq!(holes.rig.refusal(WHOLE_BYTES + 512, B), Status::OutOfMemory);
    holes.rig.finish();
}

#[test]
fn tags_and_private_pools_lend_none() {
    let rig = plan_of(ADDRESSES).start();
    rig.heap.begin_tag("weights").unwrap();
    let holes = Holes::of(rig);
    assert!(holes.refuses(WHOLE_BYTES + 512));
    holes.rig.heap.end_tag().unwrap();
    holes.rig.finish();

    const POOL: PoolId = PoolId(0, 1);
    let rig = plan_of(ADDRESSES).start();
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    let holes = Holes::of(rig);
    assert!(holes.refuses(WHOLE_BYTES + 512));
    let rig = holes.rig;
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

/// They lie in extents of their own, of which none is left.
#[test]
fn small_blocks_take_none() {
    let holes = Holes::of(plan_of(REAL).start());
    let large = holes.allocate(WHOLE_BYTES);
    assert!(holes.refuses(512));
    holes.rig.free(large);
    holes.rig.allocate_and_touch(512, A);
    holes.check(None);
    holes.rig.finish();
}

/// A device that comes to use the memory later has access to all of a block over edges.
#[test]
fn peers_reach_it() {
    const SECOND: DeviceOrdinal = DeviceOrdinal(1);
    let holes = Holes::of(plan_of(REAL).devices(2, CAPACITY_BYTES).start());
    let block = holes.allocate(MOST_BYTES);
    let theirs = holes.rig.heap.allocate(MIB, SECOND, B).unwrap();
    holes.rig.machine.synchronize(DEVICE.0).unwrap();
    let work = Work::read(block, MOST_BYTES, "the second device");
    holes.rig.machine.touch(SECOND.0, B.0, work).unwrap();
    holes.rig.machine.synchronize(SECOND.0).unwrap();
    holes.rig.check();
    holes.rig.free(theirs);
    holes.rig.finish();
}

/// If the driver refuses a call, the request may fail, but nothing is lost.
#[test]
fn nothing_is_lost_if_the_driver_refuses_a_call() {
    for call in [Call::Create, Call::Map, Call::SetAccess, Call::Reserve] {
        for nth in 1..=20 {
            let holes = Holes::of(plan_of(REAL).start());
            holes.rig.machine.faults().fail(Target::call(call), nth, Times::Once, Code(12345));
            let large = holes.rig.heap.allocate(MOST_BYTES, DEVICE, A);
            holes.check(None);
            holes.rig.machine.faults().clear();
            match large {
                Ok(large) => holes.rig.free(large),
                Err(error) => assert_ne!(error.status, Status::ForeignPointer, "{error}"),
            }
            holes.allocate(MOST_BYTES);
            holes.rig.finish();
        }
    }
    for (call, times) in [(Call::Unmap, Times::Forever), (Call::Release, Times::Forever)] {
        let mut holes = Holes::of(plan_of(REAL).start());
        let large = holes.allocate(MOST_BYTES);
        holes.rig.machine.faults().fail(Target::call(call), 1, times, Code(12345));
        holes.free(0..PAIRS as usize);
        holes.rig.free(large);
        assert!(holes.rig.heap.empty_cache(DEVICE).is_ok());
        holes.rig.check();
        holes.rig.machine.faults().clear();
        holes.allocate(CAPACITY_BYTES - 4 * PAGE_BYTES);
        holes.rig.finish();
    }
}
