//! Full queues of streams: a thread that records an event there waits for room, and all other
//! threads go on.
//!
//! A driver call that adds to a stream's queue blocks while about a thousand operations wait in
//! it. These operations may need the library before they can run: for a function on the host that
//! frees, or for a thread that allocates before it lets the device go on. So a call that blocks may
//! stop its own thread only. In each case one thread blocks behind a stream that is held. Another
//! thread then uses the same lane, and only after that releases the stream.
//!
//! Meanwhile the driver lets other threads wait that create events or call `cuMemAlloc`. So events
//! are there before they are needed, and Elastic, whose calls for memory do not wait, serves also
//! what is not cached. The other strategies serve what is.

mod support;

use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use genesis::base::StreamHandle;
use genesis::base::size::MIB;
use genesis::config::{PoolType, StreamIds};
use simgpu::StoreKind;

use support::{A, B, Rig, Subject};

/// Large enough for a segment of its own in every strategy.
const BLOCK_BYTES: u64 = 48 * MIB;
/// Operations that fit into a queue.
const QUEUE_DEPTH: usize = 8;
/// By then a thread that is not held up is done, and one that is has begun to wait.
const PATIENCE: Duration = Duration::from_secs(20);

const KEEPING: [PoolType; 4] =
    [PoolType::Round, PoolType::Exact, PoolType::Caching, PoolType::Elastic];

fn rig(pool_type: PoolType) -> Rig {
    let subject = Subject::new(pool_type, StoreKind::AddressesOnly);
    let mut plan = subject.plan();
    plan.machine.queue_depth = QUEUE_DEPTH;
    plan.settings.stream_ids = StreamIds::Off;
    plan.start()
}

/// Holds `stream`, and fills its queue.
fn fill(rig: &Rig, stream: StreamHandle) {
    rig.machine.hold(0, stream.0, true).unwrap();
    while rig.machine.pending(0, stream.0).unwrap() < QUEUE_DEPTH as u64 {
        rig.machine.delay(0, stream.0, 1).unwrap();
    }
}

/// Does `work` in a thread of its own, which is found to be waiting for room in a queue.
fn blocked<T: Send + 'static>(
    rig: &Rig,
    work: impl FnOnce(&Rig) -> T + Send + 'static,
) -> JoinHandle<T> {
    let waits = rig.usage().host_waits.queue_full;
    let thread = spawn(rig, work);
    let begin = Instant::now();
    while rig.usage().host_waits.queue_full == waits {
        assert!(begin.elapsed() < PATIENCE, "nothing waits for the stream");
        thread::yield_now();
    }
    thread
}

fn spawn<T: Send + 'static>(
    rig: &Rig,
    work: impl FnOnce(&Rig) -> T + Send + 'static,
) -> JoinHandle<T> {
    let rig = rig.clone();
    thread::spawn(move || work(&rig))
}

/// Does `work` in a thread of its own, and fails if that is held up.
#[track_caller]
fn at_once<T: Send + 'static>(rig: &Rig, work: impl FnOnce(&Rig) -> T + Send + 'static) -> T {
    let (done, answer): (_, Receiver<T>) = mpsc::channel();
    spawn(rig, move |rig| done.send(work(rig)).unwrap());
    answer.recv_timeout(PATIENCE).expect("held up by a thread that waits for room in a queue")
}

/// Lets `stream` go on, and the thread that waited for it.
fn let_go<T>(rig: &Rig, stream: StreamHandle, waiting: JoinHandle<T>) -> T {
    rig.machine.hold(0, stream.0, false).unwrap();
    rig.run(stream);
    waiting.join().unwrap()
}

#[test]
fn a_free_that_waits_for_a_recorded_stream_holds_nobody_up() {
    for pool_type in KEEPING {
        let rig = rig(pool_type);
        let block = rig.allocate(BLOCK_BYTES, A);
        let other = rig.allocate(BLOCK_BYTES, A);
        rig.record(block, B);
        fill(&rig, B);
        let freeing = blocked(&rig, move |rig| rig.free(block));
        let taken = at_once(&rig, move |rig| {
            rig.free(other);
            rig.allocate(BLOCK_BYTES, A)
        });
        assert_eq!(taken, other, "{pool_type:?}: the block whose event is on its way is not free");
        let_go(&rig, B, freeing);
        rig.finish();
    }
}

#[test]
fn two_frees_that_wait_for_one_stream_both_end() {
    for pool_type in KEEPING {
        let rig = rig(pool_type);
        rig.free(rig.allocate(512, A));
        let blocks = [(); 2].map(|()| rig.allocate(BLOCK_BYTES, A));
        blocks.iter().for_each(|&block| rig.record(block, B));
        fill(&rig, B);
        let freeing = blocks.map(|block| blocked(&rig, move |rig| rig.free(block)));
        at_once(&rig, |rig| rig.free(rig.allocate(512, A)));
        rig.machine.hold(0, B.0, false).unwrap();
        rig.run(B);
        freeing.into_iter().for_each(|thread| thread.join().unwrap());
        rig.finish();
    }
}

#[test]
fn a_fence_that_waits_for_its_own_stream_holds_nobody_up() {
    for pool_type in KEEPING {
        let rig = rig(pool_type);
        let small = rig.allocate(512, A);
        rig.touch(small, A);
        rig.free(rig.allocate(BLOCK_BYTES, A));
        // It misses what is free on the first stream, and asks for a fence there.
        rig.allocate(BLOCK_BYTES, B);
        fill(&rig, A);
        let allocating = blocked(&rig, |rig| rig.allocate(512, A));
        at_once(&rig, move |rig| rig.free(small));
        at_once(&rig, |rig| rig.free(rig.allocate(512, A)));
        let_go(&rig, A, allocating);
        let before = rig.statistics().cross_stream_reuses;
        rig.allocate(BLOCK_BYTES, B);
        assert_eq!(rig.statistics().cross_stream_reuses, before + 1, "{pool_type:?}: the fence");
        rig.finish();
    }
}

#[test]
fn a_wait_for_another_streams_fence_holds_that_one_not_up() {
    for pool_type in KEEPING {
        let rig = rig(pool_type);
        let small = rig.allocate(512, A);
        rig.touch(small, A);
        rig.free(rig.allocate(BLOCK_BYTES, A));
        rig.allocate(BLOCK_BYTES, B);
        rig.allocate(512, A);
        fill(&rig, B);
        let allocating = blocked(&rig, |rig| rig.allocate(BLOCK_BYTES, B));
        at_once(&rig, move |rig| rig.free(small));
        let bytes = if pool_type == PoolType::Elastic { BLOCK_BYTES } else { 512 };
        at_once(&rig, move |rig| rig.free(rig.allocate(bytes, A)));
        let_go(&rig, B, allocating);
        assert_eq!(rig.statistics().cross_stream_reuses, 1, "{pool_type:?}");
        rig.finish();
    }
}

/// Each free records an event of its own on a stream that nobody holds up.
#[test]
fn many_frees_of_a_new_lane_hold_nobody_up() {
    const BLOCKS: usize = 10;
    let rig = rig(PoolType::Elastic);
    let blocks = [(); BLOCKS].map(|()| rig.allocate(BLOCK_BYTES, A));
    blocks.iter().for_each(|&block| rig.record(block, B));
    let other = StreamHandle(0xC00);
    fill(&rig, other);
    let waiting = blocked(&rig, move |rig| rig.machine.delay(0, other.0, 1).unwrap());
    at_once(&rig, move |rig| blocks.into_iter().for_each(|block| rig.free(block)));
    let_go(&rig, other, waiting);
    rig.finish();
}

#[test]
fn the_end_of_a_stream_holds_nobody_up() {
    let rig = rig(PoolType::Caching);
    let blocks = [(); 2].map(|()| rig.allocate(BLOCK_BYTES, A));
    fill(&rig, A);
    let forgetting = blocked(&rig, |rig| rig.heap.forget_stream(A).unwrap());
    at_once(&rig, move |rig| blocks.into_iter().for_each(|block| rig.free(block)));
    let_go(&rig, A, forgetting);
    rig.finish();
}
