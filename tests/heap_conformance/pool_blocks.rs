//! The blocks of private pools: uses are counted, a state comes back at the same addresses, and
//! pools lend.

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::{PartState, Place, PoolBlock, PoolFilter, PoolId};

use crate::support::{A, B, DEVICE, Random, Rig, Subject, status_of};

const POOL: PoolId = PoolId(0, 1);
const OTHER_POOL: PoolId = PoolId(0, 2);
const BLOCK_BYTES: u64 = 48 * MIB;

fn only(stream: StreamHandle) -> PoolFilter {
    Arc::new(move |asked| asked == stream)
}

fn place_of(block: &PoolBlock) -> Place {
    Place {
        address: block.address,
        bytes: block.bytes,
        requested_bytes: block.requested_bytes,
        stream: block.stream,
    }
}

impl Rig {
    /// Allocates from `pool` on A.
    fn allocate_in(&self, pool: PoolId, sizes: &[u64]) -> Vec<u64> {
        self.heap.begin_pool(DEVICE, pool, only(A)).unwrap();
        let blocks = sizes.iter().map(|&bytes| self.allocate_and_touch(bytes, A)).collect();
        self.heap.end_pool(DEVICE, pool).unwrap();
        self.heap.release_pool(DEVICE, pool).unwrap();
        blocks
    }

    fn live_in(&self, pool: PoolId) -> Vec<Place> {
        let blocks = self.heap.pool_blocks(DEVICE, pool).unwrap();
        let live = blocks.iter().filter(|block| block.state == PartState::Live);
        live.map(place_of).collect()
    }

    fn hold(&self, pool: PoolId, lends: bool) {
        self.heap.hold_pool(DEVICE, pool, lends).unwrap();
    }

    fn place(&self, pool: PoolId, places: &[Place]) {
        self.heap.place_in_pool(DEVICE, pool, places).unwrap();
    }
}

pub fn the_pool_begun_last_serves(subject: Subject) {
    let rig = subject.plan().start();
    rig.hold(POOL, false);
    rig.hold(OTHER_POOL, false);
    rig.heap.begin_pool(DEVICE, POOL, only(A)).unwrap();
    let inner = rig.allocate_in(OTHER_POOL, &[BLOCK_BYTES]);
    let outer = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    let addresses = |pool| -> Vec<u64> {
        rig.live_in(pool).iter().map(|place: &Place| place.address).collect()
    };
    assert_eq!(addresses(OTHER_POOL), inner);
    assert_eq!(addresses(POOL), [outer]);
    for pool in [POOL, POOL, OTHER_POOL] {
        rig.heap.release_pool(DEVICE, pool).unwrap();
    }
    rig.finish();
}

pub fn holding_a_pool_counts_as_a_use(subject: Subject) {
    let rig = subject.plan().start();
    let uses = || rig.heap.pool_uses(DEVICE, POOL).unwrap();
    assert_eq!(uses(), 0);
    assert_eq!(status_of(rig.heap.pool_blocks(DEVICE, POOL)), Status::InvalidArgument);
    rig.hold(POOL, false);
    assert_eq!(uses(), 1);
    let blocks = rig.allocate_in(POOL, &[BLOCK_BYTES]);
    assert_eq!(uses(), 1);
    rig.free(blocks[0]);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert!(rig.reserved_bytes() >= BLOCK_BYTES, "the pool is held");
    if subject.keeps_blocks() {
        assert_eq!(rig.allocate_in(POOL, &[BLOCK_BYTES]), blocks, "its memory is reused");
        rig.free(blocks[0]);
    }
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    assert_eq!((uses(), rig.reserved_bytes()), (0, 0));
    rig.finish();
}

/// As for graphs: what was live after a capture is made live before its results are used.
pub fn a_state_comes_back_at_the_same_addresses(subject: Subject) {
    let rig = subject.plan().start();
    rig.hold(POOL, false);
    let sizes = [BLOCK_BYTES, 3 * MIB, 700, 8192, 20 * MIB, 512, MIB, 5 * MIB];
    let blocks = rig.allocate_in(POOL, &sizes);
    for index in [1, 3, 6] {
        rig.free(blocks[index]);
    }
    let state = rig.live_in(POOL);
    assert_eq!(state.len(), 5);
    let counted = rig.statistics();
    for place in &state {
        rig.free(place.address);
    }
    // Another program of the pool cuts its memory otherwise.
    let mut random = Random(7);
    let others: Vec<u64> = (0..24).map(|_| 512 + random.below(9 * MIB)).collect();
    for address in rig.allocate_in(POOL, &others) {
        rig.free(address);
    }
    assert_eq!(rig.live_in(POOL), []);
    rig.place(POOL, &state);
    rig.check();
    assert_eq!(rig.live_in(POOL), state);
    let now = rig.statistics();
    assert_eq!(now.allocated_bytes.current, counted.allocated_bytes.current);
    assert_eq!(now.requested_bytes.current, counted.requested_bytes.current);
    for place in &state {
        rig.touch(place.address, A);
    }
    // What is live again is given to nobody else.
    let more = rig.allocate_in(POOL, &sizes);
    assert!(state.iter().all(|place| !more.contains(&place.address)));
    for address in state.iter().map(|place| place.address).chain(more) {
        rig.free(address);
    }
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

pub fn places_that_are_not_free_change_nothing(subject: Subject) {
    let rig = subject.plan().start();
    rig.hold(POOL, false);
    let blocks = rig.allocate_in(POOL, &[BLOCK_BYTES, BLOCK_BYTES]);
    let outside = rig.allocate_and_touch(BLOCK_BYTES, A);
    let state = rig.live_in(POOL);
    rig.free(blocks[0]);
    let before = rig.heap.pool_blocks(DEVICE, POOL).unwrap();
    let at = |place: Place, address: u64| Place { address, ..place };
    let refused = [
        ("live", state.clone()),
        ("twice", vec![state[0], state[0]]),
        ("of another pool", vec![state[0], at(state[1], outside)]),
        ("nowhere", vec![state[0], at(state[1], 512)]),
        ("past the end", vec![Place { bytes: u64::MAX, ..state[0] }]),
        ("nothing", vec![Place { bytes: 0, ..state[0] }]),
        ("misaligned", vec![Place { bytes: BLOCK_BYTES - 100, ..state[0] }]),
        ("too small for its place", vec![Place { bytes: 512, ..state[0] }]),
    ];
    for (what, places) in refused {
        let result = rig.heap.place_in_pool(DEVICE, POOL, &places);
        assert_eq!(status_of(result), Status::InvalidArgument, "{what}");
        assert_eq!(rig.heap.pool_blocks(DEVICE, POOL).unwrap(), before, "{what}");
        rig.check();
    }
    rig.place(POOL, &[]);
    rig.place(POOL, &state[..1]);
    assert_eq!(rig.live_in(POOL), state);
    for address in [blocks[0], blocks[1], outside] {
        rig.free(address);
    }
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    let gone = rig.heap.place_in_pool(DEVICE, POOL, &state);
    assert_eq!(status_of(gone), Status::InvalidArgument, "the pool is not held");
    rig.finish();
}

pub fn a_place_that_another_stream_still_uses_is_waited_for(subject: Subject) {
    let rig = subject.plan().start();
    rig.hold(POOL, false);
    let blocks = rig.allocate_in(POOL, &[BLOCK_BYTES]);
    let state = rig.live_in(POOL);
    rig.heap.make_stream_wait(DEVICE, B, A).unwrap();
    rig.touch(blocks[0], B);
    rig.record(blocks[0], B);
    rig.free(blocks[0]);
    rig.place(POOL, &state);
    rig.touch(blocks[0], A);
    rig.check();
    assert_eq!(rig.live_in(POOL), state);
    rig.free(blocks[0]);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

/// Memory of a stream of the pool may have gone to another one: whoever gets it after the block
/// that was placed there waits for both.
pub fn a_place_whose_memory_has_another_stream_is_of_both(subject: Subject) {
    let rig = subject.plan().capacity(4 * BLOCK_BYTES).start();
    let both: PoolFilter = Arc::new(|stream| stream == A || stream == B);
    let within = |act: &dyn Fn() -> u64| {
        rig.heap.begin_pool(DEVICE, POOL, Arc::clone(&both)).unwrap();
        let result = act();
        rig.heap.end_pool(DEVICE, POOL).unwrap();
        rig.heap.release_pool(DEVICE, POOL).unwrap();
        result
    };
    rig.hold(POOL, false);
    let block = within(&|| rig.allocate_and_touch(3 * BLOCK_BYTES, A));
    let state = rig.live_in(POOL);
    rig.free(block);
    // Pending memory makes the heap wait for the device: then all free memory is good for any stream.
    let other = rig.allocate_and_touch(512, A);
    rig.record(other, B);
    rig.free(other);
    rig.heap.empty_cache(DEVICE).unwrap();
    let moves = matches!(subject.pool_type, PoolType::Round | PoolType::Exact | PoolType::Caching);
    if moves {
        assert_eq!(within(&|| rig.allocate(3 * BLOCK_BYTES, B)), block, "of A before, now of B");
        rig.free(block);
    }
    rig.place(POOL, &state);
    rig.touch(block, A);
    rig.free(block);
    within(&|| {
        assert_eq!(rig.refusal(3 * BLOCK_BYTES, B), Status::OutOfMemory, "A still uses it");
        0
    });
    if moves {
        rig.run(A);
        rig.heap.compact(DEVICE).unwrap();
        assert_eq!(within(&|| rig.allocate_and_touch(3 * BLOCK_BYTES, B)), block);
        rig.free(block);
    }
    rig.check();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

pub fn a_pool_that_lends_serves_rather_than_fail(subject: Subject) {
    let rig = subject.plan().capacity(4 * BLOCK_BYTES).start();
    rig.hold(POOL, true);
    rig.hold(OTHER_POOL, false);
    let blocks = rig.allocate_in(POOL, &[BLOCK_BYTES, BLOCK_BYTES]);
    let kept = rig.allocate_in(OTHER_POOL, &[BLOCK_BYTES]);
    rig.free(blocks[0]);
    rig.free(kept[0]);
    let last = rig.allocate_and_touch(BLOCK_BYTES, A);
    assert!(!blocks.contains(&last), "the device has memory left, so the pool lends nothing");
    assert_eq!(rig.refusal(BLOCK_BYTES, B), Status::OutOfMemory, "the pool's is of stream A");
    if subject.keeps_blocks() {
        let lent = rig.allocate_and_touch(BLOCK_BYTES, A);
        assert_eq!(lent, blocks[0]);
        rig.free(lent);
        assert_eq!(rig.allocate_in(POOL, &[BLOCK_BYTES]), [lent], "and it is the pool's again");
        rig.free(lent);
    }
    assert_eq!(rig.refusal(2 * BLOCK_BYTES, A), Status::OutOfMemory, "the pool has not so much");
    for address in [last, blocks[1]] {
        rig.free(address);
    }
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, OTHER_POOL).unwrap();
    rig.finish();
}
