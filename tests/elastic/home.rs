//! At a trough extents return to where they came from, also those of blocks that another stream has
//! used.

use genesis::base::size::{GIB, MIB};

use crate::ADDRESSES;
use crate::support::{A, B, Rig};

const BLOCK_BYTES: u64 = 256 * MIB;
const BLOCKS: usize = 4;
/// Polls for the events of other streams come at least as often, in allocations.
const A_FEW: usize = 64;

/// Fills a device, and has a block of two others' extents freed while the stream `B` still uses it.
/// Returns where the blocks were that filled it.
fn moved_and_pending(rig: &Rig) -> Vec<u64> {
    let blocks: Vec<u64> = (0..BLOCKS).map(|_| rig.allocate(BLOCK_BYTES, A)).collect();
    [1, 3].into_iter().for_each(|hole| rig.free(blocks[hole]));
    let moved = rig.allocate(2 * BLOCK_BYTES, A);
    rig.touch(moved, B);
    rig.record(moved, B);
    [moved, blocks[0], blocks[2]].into_iter().for_each(|block| rig.free(block));
    blocks
}

/// Allocates as at first, and expects the same places, without a call of the driver for memory.
fn expect_at_home(rig: &Rig, mut blocks: Vec<u64>) {
    let memory_calls = rig.statistics().driver_memory_calls;
    let mut again: Vec<u64> = (0..BLOCKS).map(|_| rig.allocate(BLOCK_BYTES, A)).collect();
    assert_eq!(rig.statistics().driver_memory_calls, memory_calls);
    again.iter().for_each(|&block| rig.free(block));
    blocks.sort_unstable();
    again.sort_unstable();
    assert_eq!(again, blocks);
}

fn full_device() -> Rig {
    ADDRESSES.plan().capacity(GIB + 32 * MIB).start()
}

#[test]
fn blocks_that_another_stream_has_done_with_go_home() {
    let rig = full_device();
    let blocks = moved_and_pending(&rig);
    rig.run(B);
    expect_at_home(&rig, blocks);
    rig.finish();
}

/// The host is ahead of the device: at the trough the other stream is still at work.
#[test]
fn blocks_go_home_once_another_stream_has_done_with_them() {
    let rig = full_device();
    let blocks = moved_and_pending(&rig);
    let next = || rig.free(rig.allocate(4 * MIB, A));
    next();
    rig.run(B);
    (0..A_FEW).for_each(|_| next());
    expect_at_home(&rig, blocks);
    rig.finish();
}
