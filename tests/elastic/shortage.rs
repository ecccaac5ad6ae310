//! Memory is short, and lies with streams that nobody calls any more, or with others.

use genesis::base::StreamHandle;
use genesis::base::size::{GIB, MIB};
use simgpu::Call;

use crate::ADDRESSES;
use crate::support::{A, B, C, DEVICE, Rig};

const STREAMS: [StreamHandle; 4] = [A, B, C, StreamHandle(0xD000)];
const LATE: StreamHandle = StreamHandle(0xE000);

/// Has each stream use `bytes`, in blocks of `block_bytes`, all at the same time, and leave them
/// cached. One after the other they would use the same memory.
fn fill_caches(rig: &Rig, bytes: u64, block_bytes: u64) {
    let of_each = |stream| (0..bytes / block_bytes).map(move |_| stream);
    let blocks = STREAMS.into_iter().flat_map(of_each);
    let blocks: Vec<u64> =
        blocks.map(|stream| rig.allocate_and_touch(block_bytes, stream)).collect();
    blocks.into_iter().for_each(|address| rig.free(address));
}

/// What several streams have cached serves a request that no single one could serve, and the
/// driver is asked for no memory and given none back: one wait is enough.
#[test]
fn what_several_streams_have_is_put_together_after_a_wait() {
    let mut plan = ADDRESSES.plan().capacity(41 * GIB);
    plan.machine.detect_races = true;
    let rig = plan.start();
    fill_caches(&rig, 10 * GIB, 8 * MIB);
    let before = rig.usage();
    let block = rig.allocate_and_touch(20 * GIB, LATE);
    let after = rig.usage();
    let calls = |call: Call| after.count(call) - before.count(call);
    assert_eq!(calls(Call::Release), 0, "of {} extents made", before.count(Call::Create));
    let created = calls(Call::Create);
    assert!(created * 20 <= before.count(Call::Create), "{created} extents are created again");
    assert_eq!(calls(Call::Synchronize), 1);
    assert_eq!(rig.statistics().out_of_memory_events, 0);
    rig.free(block);
    rig.finish();
}

/// What other libraries have taken since the program's peak seems to be left. The driver refuses it, and
/// what is free elsewhere serves the request: nothing is waited for, and nothing goes back.
#[test]
fn what_the_driver_refuses_is_moved_from_elsewhere() {
    const CAPACITY_BYTES: u64 = 64 * MIB;
    const TAKEN_BYTES: u64 = 16 * MIB;
    const PAGE_BYTES: u64 = 2 * MIB;
    let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
    plan.machine.detect_races = true;
    let rig = plan.start();
    let fill = |bytes| -> Vec<u64> {
        (0..bytes / PAGE_BYTES).map(|_| rig.allocate_and_touch(PAGE_BYTES, A)).collect()
    };
    fill(CAPACITY_BYTES).into_iter().for_each(|block| rig.free(block));
    rig.heap.empty_cache(DEVICE).unwrap();
    let taken = rig.machine.allocate(0, TAKEN_BYTES).unwrap();
    let blocks = fill(CAPACITY_BYTES - TAKEN_BYTES);
    blocks.into_iter().step_by(2).for_each(|block| rig.free(block));
    let before = rig.usage();
    rig.allocate_and_touch(TAKEN_BYTES / 2, A);
    let after = rig.usage();
    assert_eq!(after.host_waits.explicit, before.host_waits.explicit);
    assert_eq!(after.count(Call::Release), before.count(Call::Release));
    rig.machine.free(0, taken).unwrap();
    rig.finish();
}
