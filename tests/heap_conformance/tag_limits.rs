//! Limits of tags: what counts, what a request beyond a limit does, and what it leaves alone.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, Part, Result, Status, StreamHandle};
use genesis::heap::{PoolId, TagUsage};

use crate::support::{A, B, DEVICE, Random, Rig, Subject, status_of};

/// A size that each strategy's blocks have: a power of two.
const BLOCK_BYTES: u64 = 4 * MIB;

impl Rig {
    pub fn usage_of(&self, tag: &str) -> TagUsage {
        let all = self.heap.tag_usage(DEVICE).unwrap();
        all.into_iter().find(|usage| &*usage.name == tag).expect("a known tag")
    }

    /// Bytes and blocks that count for the tag.
    pub fn counted(&self, tag: &str) -> (u64, u64) {
        let TagUsage { live_bytes, live_blocks, .. } = self.usage_of(tag);
        (live_bytes, live_blocks)
    }

    pub fn limit(&self, tag: &str, bytes: Option<u64>) {
        self.heap.set_tag_limit(tag, None, bytes).unwrap();
    }

    /// A request under the tags, of which the last is the innermost.
    pub fn under(&self, tags: &[&str], bytes: u64, stream: StreamHandle) -> Result<u64> {
        tags.iter().for_each(|tag| self.heap.begin_tag(tag).unwrap());
        let allocated = self.heap.allocate(bytes, DEVICE, stream);
        tags.iter().for_each(|_| self.heap.end_tag().unwrap());
        allocated
    }
}

pub fn a_request_beyond_the_limit_is_refused(subject: Subject) {
    let rig = subject.plan().start();
    rig.limit("task", Some(2 * BLOCK_BYTES));
    let first = rig.under(&["task"], BLOCK_BYTES, A).unwrap();
    let second = rig.under(&["task"], BLOCK_BYTES, B).unwrap();
    let error = rig.under(&["task"], 700, A).unwrap_err();
    assert_eq!(error.status, Status::LimitReached);
    let limit = error.limit.as_ref().expect("its figures");
    assert_eq!(limit.part, Part::Tag("task".into()));
    assert_eq!((limit.limit_bytes, limit.held_bytes), (2 * BLOCK_BYTES, 2 * BLOCK_BYTES));
    assert_eq!((limit.live_blocks, limit.requested_bytes), (2, 700));
    assert!(error.message.contains("tag=\"task\""), "{error}");
    assert!(rig.lines().last().unwrap().contains("tag=\"task\""));
    // It counts as a shortage does, and nobody else has any.
    assert_eq!(rig.statistics().out_of_memory_events, 1);
    assert_eq!(rig.usage_of("task").refusals, 1);
    rig.allocate(64 * MIB, A);
    rig.under(&["another"], 64 * MIB, A).unwrap();
    rig.free(first);
    let third = rig.under(&["task"], BLOCK_BYTES, B).unwrap();
    [second, third].into_iter().for_each(|address| rig.free(address));
    assert_eq!(rig.counted("task"), (0, 0));
    rig.finish();
}

pub fn a_refused_request_leaves_no_trace(subject: Subject) {
    let rig = subject.plan().start();
    rig.limit("task", Some(BLOCK_BYTES));
    let neighbour = rig.allocate_and_touch(3 * BLOCK_BYTES, B);
    let cached = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(cached, B);
    rig.free(cached);
    let asked = std::sync::Arc::new(AtomicBool::new(false));
    let asked_too = asked.clone();
    let id = rig.heap.add_out_of_memory_callback(std::sync::Arc::new(move |_, _| {
        asked_too.store(true, Ordering::Relaxed);
        false
    }));
    let (before, calls, census) = (rig.statistics(), rig.calls(), rig.machine.census());
    let memory_calls = before.driver_memory_calls;
    for bytes in [BLOCK_BYTES + 1, 64 * MIB, 1 << 40] {
        let refused = status_of(rig.under(&["task"], bytes, A));
        assert_eq!(refused, Status::LimitReached, "{bytes}");
    }
    // The figures of the message ask the driver how much it has free, and nothing else.
    assert_eq!(rig.calls() - calls, 3);
    let after = rig.statistics();
    assert_eq!(after.driver_memory_calls, memory_calls);
    assert_eq!(after.reserved_bytes, before.reserved_bytes);
    assert_eq!(after.allocated_bytes, before.allocated_bytes);
    assert_eq!(after.active_bytes, before.active_bytes);
    assert_eq!((after.retries, after.frees), (before.retries, before.frees));
    assert_eq!(rig.machine.census().used_bytes, census.used_bytes);
    assert!(!asked.load(Ordering::Relaxed), "no callback is asked");
    assert_eq!(rig.counted("task"), (0, 0));
    assert!(rig.heap.remove_out_of_memory_callback(id));
    rig.free(neighbour);
    rig.finish();
}

pub fn nested_tags_all_hold(subject: Subject) {
    let rig = subject.plan().start();
    rig.limit("job", Some(4 * BLOCK_BYTES));
    rig.limit("step", Some(2 * BLOCK_BYTES));
    let both = ["job", "step"];
    let mut live: Vec<u64> = (0..2).map(|_| rig.under(&both, BLOCK_BYTES, A).unwrap()).collect();
    let part = |error: genesis::base::Error| error.limit.clone().unwrap().part;
    assert_eq!(part(rig.under(&both, 1, A).unwrap_err()), Part::Tag("step".into()));
    live.extend((0..2).map(|_| rig.under(&["job"], BLOCK_BYTES, A).unwrap()));
    assert_eq!(rig.counted("job"), (4 * BLOCK_BYTES, 4));
    assert_eq!(rig.counted("step"), (2 * BLOCK_BYTES, 2));
    rig.limit("step", None);
    assert_eq!(part(rig.under(&both, 1, A).unwrap_err()), Part::Tag("job".into()));
    assert_eq!(rig.counted("step"), (2 * BLOCK_BYTES, 2), "charged to neither");
    // A tag within itself counts once, and the order around the innermost makes no difference.
    live.push(rig.under(&["step", "step", "other", "step"], BLOCK_BYTES, A).unwrap());
    assert_eq!(rig.counted("step"), (3 * BLOCK_BYTES, 3));
    assert_eq!(rig.counted("other"), (BLOCK_BYTES, 1));
    // The same blocks, freed under yet another tag and in another thread.
    rig.heap.begin_tag("elsewhere").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| live.iter().for_each(|&address| rig.free(address)));
    });
    rig.heap.end_tag().unwrap();
    for tag in ["job", "step", "other", "elsewhere"] {
        assert_eq!(rig.counted(tag), (0, 0), "{tag}");
    }
    rig.finish();
}

pub fn a_limit_changes_while_it_is_in_use(subject: Subject) {
    let rig = subject.plan().start();
    // What was live before there was a limit counts.
    let early = rig.under(&["task"], 2 * BLOCK_BYTES, A).unwrap();
    assert_eq!(rig.usage_of("task").limit_bytes, None);
    rig.limit("task", Some(BLOCK_BYTES));
    assert_eq!(rig.usage_of("task").limit_bytes, Some(BLOCK_BYTES));
    assert_eq!(rig.counted("task"), (2 * BLOCK_BYTES, 1), "what is live stays");
    assert_eq!(status_of(rig.under(&["task"], 1, A)), Status::LimitReached);
    rig.limit("task", Some(3 * BLOCK_BYTES));
    let later = rig.under(&["task"], BLOCK_BYTES, A).unwrap();
    rig.limit("task", Some(0));
    [early, later].into_iter().for_each(|address| rig.free(address));
    assert_eq!(status_of(rig.under(&["task"], 1, A)), Status::LimitReached);
    assert_eq!(rig.under(&["task"], 0, A), Ok(0));
    rig.limit("task", None);
    let free = rig.under(&["task"], 64 * MIB, A).unwrap();
    rig.free(free);
    assert_eq!(status_of(rig.heap.set_tag_limit("", None, None)), Status::InvalidArgument);
    let nowhere = rig.heap.set_tag_limit("task", Some(DeviceOrdinal(7)), None);
    assert_eq!(status_of(nowhere), Status::InvalidDevice);
    rig.finish();
}

pub fn each_device_has_its_own_account(subject: Subject) {
    let rig = subject.plan().devices(2, 256 * MIB).start();
    let second = DeviceOrdinal(1);
    rig.heap.set_tag_limit("task", Some(second), Some(BLOCK_BYTES)).unwrap();
    rig.heap.begin_tag("task").unwrap();
    rig.allocate(8 * BLOCK_BYTES, A);
    rig.heap.allocate(BLOCK_BYTES, second, B).unwrap();
    assert_eq!(status_of(rig.heap.allocate(1, second, B)), Status::LimitReached);
    rig.heap.end_tag().unwrap();
    assert_eq!(rig.counted("task"), (8 * BLOCK_BYTES, 1));
    assert_eq!(rig.heap.tag_usage(second).unwrap()[0].live_bytes, BLOCK_BYTES);
    rig.finish();
}

/// Memory of a private pool is the pool's, and real shortages are still shortages.
pub fn what_a_tag_does_not_count(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    rig.limit("task", Some(32 * MIB));
    let pool = PoolId(3, 4);
    rig.heap.begin_pool(DEVICE, pool, std::sync::Arc::new(|_| true)).unwrap();
    let pooled = rig.under(&["task"], 16 * MIB, A).unwrap();
    rig.heap.end_pool(DEVICE, pool).unwrap();
    assert_eq!(rig.counted("task"), (0, 0));
    let others = rig.allocate(32 * MIB, A);
    assert_eq!(status_of(rig.under(&["task"], 24 * MIB, A)), Status::OutOfMemory);
    assert_eq!(rig.counted("task"), (0, 0), "a request that fails is refunded");
    [pooled, others].into_iter().for_each(|address| rig.free(address));
    rig.heap.release_pool(DEVICE, pool).unwrap();
    rig.finish();
}

/// Blocks that wait for another stream are freed, so they no longer count; double frees and
/// pointers of others change no account.
pub fn frees_count_once(subject: Subject) {
    let rig = subject.plan().start();
    rig.limit("task", Some(BLOCK_BYTES));
    let block = rig.under(&["task"], BLOCK_BYTES, A).unwrap();
    rig.record(block, B);
    rig.free(block);
    assert_eq!(rig.counted("task"), (0, 0));
    assert!(rig.heap.free(block).is_err());
    assert!(rig.heap.free(block + 512).is_err());
    assert_eq!(rig.counted("task"), (0, 0));
    let again = rig.under(&["task"], BLOCK_BYTES, A).unwrap();
    assert!(rig.heap.free_directly(again).is_ok());
    assert_eq!(rig.counted("task"), (0, 0));
    rig.run(B);
    rig.finish();
}

const TAGS: [&str; 4] = ["a", "b", "c", "d"];
const THREADS: u64 = 4;

/// What a thread holds, by address: its tags and the bytes that count.
type Live = BTreeMap<u64, (Vec<&'static str>, u64)>;

/// Random requests under random nested tags from several threads, while limits change: no tag ever
/// counts more than its limit, the accounts are those of an oracle, and in the end all are zero.
pub fn random_tags_in_threads_keep_their_limits(subject: Subject) {
    let mut plan = subject.plan().set(|settings| settings.log = genesis::config::LogLevel::Off);
    plan.machine.progress = simgpu::Progress::Automatic;
    let rig = plan.start();
    let most = |tag: &str| 3 * MIB + MIB * u64::from(tag.as_bytes()[0] - b'a');
    TAGS.iter().for_each(|tag| rig.limit(tag, Some(most(tag))));
    let (left, is_over) = (Mutex::new(Live::new()), AtomicBool::new(false));
    let refusals: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (rig, left) = (&rig, &left);
                scope.spawn(move || wander(rig, left, Random(77 + thread)))
            })
            .collect();
        // Limits go down and come back; what is live never exceeds the higher one.
        let watch = scope.spawn(|| {
            for round in 1.. {
                for usage in rig.heap.tag_usage(DEVICE).unwrap() {
                    let most = most(&usage.name);
                    assert!(usage.live_bytes <= most, "{usage:?}");
                    rig.limit(&usage.name, Some(most >> (round % 2)));
                }
                std::thread::sleep(Duration::from_micros(50));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let refusals = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap();
        refusals
    });
    assert!(refusals > 100, "{refusals} requests were refused");
    let left = left.into_inner().unwrap();
    for tag in TAGS {
        let expected: Vec<u64> = left
            .values()
            .filter(|(tags, _)| tags.contains(&tag))
            .map(|(_, bytes)| *bytes)
            .collect();
        let counted = (expected.iter().sum::<u64>(), expected.len() as u64);
        assert_eq!(rig.counted(tag), counted, "{tag}");
    }
    left.keys().for_each(|&address| rig.free(address));
    for usage in rig.heap.tag_usage(DEVICE).unwrap() {
        assert_eq!((usage.live_bytes, usage.live_blocks), (0, 0), "{usage:?}");
    }
    rig.finish();
}

/// One thread's requests and frees, among them frees of what others have put in `left`; returns how
/// many requests were refused by a limit.
fn wander(rig: &Rig, left: &Mutex<Live>, mut random: Random) -> u64 {
    let mut refusals = 0;
    for _ in 0..1500 {
        let taken = (random.below(3) == 0).then(|| left.lock().unwrap().pop_first()).flatten();
        if let Some((address, _)) = taken {
            rig.free(address);
            continue;
        }
        let depth = random.below(4);
        let tags: Vec<&str> = (0..depth).map(|_| TAGS[random.below(4) as usize]).collect();
        let stream = if random.below(2) == 0 { A } else { B };
        // Powers of two, which every strategy takes as they are.
        let bytes = (4 * KIB) << random.below(10);
        match rig.under(&tags, bytes, stream) {
            Ok(address) => {
                let before = left.lock().unwrap().insert(address, (tags, bytes));
                assert_eq!(before, None, "handed out twice");
            }
            Err(error) => {
                assert_eq!(error.status, Status::LimitReached, "{error}");
                assert!(tags.iter().any(|tag| error.message.contains(&format!("{tag:?}"))));
                refusals += 1;
            }
        }
    }
    refusals
}
