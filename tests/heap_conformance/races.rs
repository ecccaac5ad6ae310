//! Threads that need memory at the same time, where one after the other would always get it. What one is
//! taking from the driver, giving back or moving, the others do not find; none of them may be refused for
//! that. Calls of the driver take real time here, so that the threads do meet.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use genesis::base::size::MIB;
use genesis::base::{Result, StreamHandle};
use genesis::heap::{PoolId, Stream};
use simgpu::Progress;

use crate::support::{A, DEVICE, Random, Rig, Subject};

const POOL: PoolId = PoolId(7, 8);
const THREADS: usize = 16;
/// So many of them have a block at a time: what the others have left must serve these.
const LIVE: u64 = 4;
const ROUNDS: u64 = 100;
/// For so long a block is live, at least.
const HOLD: Duration = Duration::from_micros(100);
/// The sizes of blocks: from the first to the second, in steps of the third, in bytes.
const LEAST_BYTES: u64 = 12 * MIB;
const MOST_BYTES: u64 = 32 * MIB;
const STEP_BYTES: u64 = 2 * MIB;
/// There is room for the largest of those live.
const ROOM_BYTES: u64 = LIVE * MOST_BYTES;

pub fn threads_on_several_streams_refuse_each_other_nothing(subject: Subject) {
    on_a_full_device(subject, several_streams());
}

pub fn threads_on_one_stream_refuse_each_other_nothing(subject: Subject) {
    on_a_full_device(subject, [A; THREADS]);
}

/// A pool with a limit, from which no graph is captured, may give its own free memory back.
pub fn threads_in_a_limited_pool_refuse_each_other_nothing(subject: Subject) {
    let rig = start(subject, 2 * ROOM_BYTES);
    rig.heap.hold_pool(DEVICE, POOL, false).unwrap();
    rig.heap.set_pool_limit(DEVICE, POOL, Some(ROOM_BYTES)).unwrap();
    for streams in [[A; THREADS], several_streams()] {
        refuse_nothing(&rig, streams, |bytes, stream| {
            rig.heap.allocate_from(POOL, bytes, DEVICE, Stream::lasting(stream))
        });
    }
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

fn on_a_full_device(subject: Subject, streams: [StreamHandle; THREADS]) {
    let rig = start(subject, ROOM_BYTES);
    refuse_nothing(&rig, streams, |bytes, stream| rig.heap.allocate(bytes, DEVICE, stream));
    rig.finish();
}

fn several_streams() -> [StreamHandle; THREADS] {
    array::from_fn(|index| StreamHandle(A.0 + index * 0x100))
}

/// The blocks that may still be made.
struct Permits {
    left: Mutex<u64>,
    given: Condvar,
}

impl Permits {
    fn take(&self) {
        let left = self.left.lock().unwrap();
        *self.given.wait_while(left, |left| *left == 0).unwrap() -= 1;
    }

    fn give(&self) {
        *self.left.lock().unwrap() += 1;
        self.given.notify_one();
    }
}

fn start(subject: Subject, capacity_bytes: u64) -> Rig {
    let mut plan = subject.plan().capacity(capacity_bytes);
    plan.machine.progress = Progress::Automatic;
    plan.machine.detect_races = false;
    plan.machine.takes_time = true;
    plan.start()
}

/// Each thread has one block after the other.
fn refuse_nothing(
    rig: &Rig,
    streams: [StreamHandle; THREADS],
    allocate: impl Fn(u64, StreamHandle) -> Result<u64> + Sync,
) {
    let (refused, start) = (AtomicU64::new(0), Barrier::new(THREADS));
    let permits = Permits { left: Mutex::new(LIVE), given: Condvar::new() };
    thread::scope(|scope| {
        for (seed, stream) in (1..).zip(streams) {
            let (allocate, refused, start, permits) = (&allocate, &refused, &start, &permits);
            scope.spawn(move || {
                let mut random = Random(seed);
                start.wait();
                for _ in 0..ROUNDS {
                    permits.take();
                    let steps = random.below((MOST_BYTES - LEAST_BYTES) / STEP_BYTES + 1);
                    match allocate(LEAST_BYTES + steps * STEP_BYTES, stream) {
                        Ok(address) => {
                            // The others go on.
                            thread::sleep(HOLD);
                            rig.free(address);
                        }
                        Err(_) => drop(refused.fetch_add(1, Relaxed)),
                    }
                    permits.give();
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 0);
}
