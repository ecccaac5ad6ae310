//! Arenas.

use std::sync::{Barrier, Mutex};
use std::thread;

use genesis::base::Status;
use genesis::base::size::{KIB, MIB};
use genesis::suballocation::{Arena, ArenaOptions, Mark, Threads};

use crate::sources::{AnyThread, Bench, FromHeap, Subject};
use crate::support::{A, B, C, Random, status_of};

const OPTIONS: ArenaOptions =
    ArenaOptions { threads: Threads::One, chunk_bytes: 256 * KIB, limit_bytes: 0 };

fn arena(bench: &Bench) -> Arena<FromHeap> {
    Arena::new(bench.source.clone(), OPTIONS)
}

/// Bytes that are live, with what was written there.
#[derive(Default)]
struct Live(Vec<(u64, u64, u8)>);

impl Live {
    fn add(&mut self, subject: Subject, address: u64, bytes: u64) {
        let is_apart = |&(other, other_bytes, _): &(u64, u64, u8)| {
            other + other_bytes <= address || address + bytes <= other
        };
        assert!(self.0.iter().all(is_apart), "{address:#x} overlaps");
        let value = self.0.len() as u8;
        if subject.has_bytes() {
            // SAFETY: live memory of so many bytes.
            unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes as usize) };
        }
        self.0.push((address, bytes, value));
    }

    fn check(&self, subject: Subject) {
        for &(address, bytes, value) in self.0.iter().filter(|_| subject.has_bytes()) {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
            assert!(crate::support::is_filled(bytes, value), "{address:#x} has changed");
        }
    }
}

pub fn memory_is_aligned_and_disjoint(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let mut live = Live::default();
    for n in 0..400 {
        let (bytes, alignment) = (1 + n * 37 % 5000, 1 << (n % 15));
        let address = arena.allocate(bytes, alignment).unwrap();
        assert!(address != 0 && address.is_multiple_of(alignment), "{address:#x} {alignment}");
        live.add(subject, address, bytes);
    }
    let huge = arena.allocate(3 * MIB, 2 * MIB).unwrap();
    assert!(huge.is_multiple_of(2 * MIB));
    live.add(subject, huge, 3 * MIB);
    assert_eq!(arena.allocate(0, 0).unwrap(), 0);
    live.check(subject);
    arena.validate().unwrap();
    let used = arena.statistics().unwrap();
    let bytes: u64 = live.0.iter().map(|(_, bytes, _)| bytes).sum();
    assert!(used.used_bytes >= bytes && used.held_bytes >= used.used_bytes, "{used:?}");
    drop(arena);
    bench.finish();
}

pub fn a_program_that_repeats_itself_has_one_chunk(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let step = |arena: &Arena<FromHeap>| {
        let addresses: Vec<u64> = (1..100).map(|n| arena.allocate(n * 1000, 0).unwrap()).collect();
        arena.validate().unwrap();
        addresses
    };
    step(&arena);
    assert!(arena.statistics().unwrap().chunks > 1);
    arena.reset().unwrap();
    let second = step(&arena);
    let calls = bench.calls();
    for _ in 0..10 {
        arena.reset().unwrap();
        assert_eq!(step(&arena), second);
    }
    let statistics = arena.statistics().unwrap();
    assert_eq!((statistics.chunks, statistics.resets), (1, 11));
    assert_eq!(bench.calls(), calls, "no driver call");
    assert_eq!(bench.source.taken.lock().unwrap().len(), 1);
    drop(arena);
    bench.finish();
}

pub fn a_rewind_frees_what_came_after_the_mark(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let mut live = Live::default();
    let before = arena.allocate(1000, 16).unwrap();
    live.add(subject, before, 1000);
    let mark = arena.mark().unwrap();
    let after: Vec<u64> = (0..20).map(|_| arena.allocate(100 * KIB, 16).unwrap()).collect();
    let held = arena.statistics().unwrap().held_bytes;
    for _ in 0..3 {
        arena.rewind(mark).unwrap();
        arena.validate().unwrap();
        let again: Vec<u64> = (0..20).map(|_| arena.allocate(100 * KIB, 16).unwrap()).collect();
        assert_eq!(again[0], after[0]);
        let mut all = Live(live.0.clone());
        again.iter().for_each(|&address| all.add(subject, address, 100 * KIB));
    }
    assert_eq!(arena.statistics().unwrap().held_bytes, held, "chunks are kept");
    live.check(subject);
    drop(arena);
    bench.finish();
}

pub fn marks_end(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let ended = |mark: Mark| status_of(arena.rewind(mark)) == Status::InvalidArgument;
    let first = arena.mark().unwrap();
    assert_eq!(arena.mark().unwrap(), first, "the same position");
    arena.allocate(100, 0).unwrap();
    let second = arena.mark().unwrap();
    arena.allocate(100, 0).unwrap();
    arena.rewind(second).unwrap();
    arena.rewind(second).unwrap();
    arena.rewind(first).unwrap();
    assert!(ended(second));
    arena.allocate(500, 0).unwrap();
    assert!(ended(second), "also at a later position");
    let third = arena.mark().unwrap();
    arena.reset().unwrap();
    assert!(ended(first) && ended(third) && ended(Mark(77)));
    drop(arena);
    bench.finish();
}

pub fn the_limit_is_an_error(subject: Subject) {
    let bench = subject.start();
    let options = ArenaOptions { limit_bytes: MIB, ..OPTIONS };
    let arena = Arena::new(bench.source.clone(), options);
    assert_eq!(status_of(arena.allocate(MIB + 1, 0)), Status::LimitReached);
    for _ in 0..3 {
        let served = (0..200).take_while(|_| arena.allocate(10 * KIB, 0).is_ok()).count();
        assert!((90..=102).contains(&served), "{served}");
        assert_eq!(status_of(arena.allocate(300 * KIB, 0)), Status::LimitReached);
        arena.reset().unwrap();
    }
    arena.allocate(MIB, 0).unwrap();
    assert!(arena.statistics().unwrap().held_bytes <= MIB);
    drop(arena);
    bench.finish();
}

pub fn wrong_arguments_are_refused(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    for alignment in [3, 12, 1 << 31, u64::MAX] {
        assert_eq!(status_of(arena.allocate(1, alignment)), Status::InvalidArgument);
    }
    for bytes in [u64::MAX, u64::MAX - 4096, 1 << 47] {
        assert_eq!(status_of(arena.allocate(bytes, 4096)), Status::OutOfMemory, "{bytes}");
    }
    if !matches!(subject, Subject::Device(_)) {
        assert_eq!(status_of(arena.allocate_on(1, 0, B)), Status::InvalidArgument);
    }
    arena.allocate(1, 1).unwrap();
    drop(arena);
    bench.finish();
}

pub fn what_is_leased_outlives_a_reset(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let (address, lease) = arena.allocate_leased(1000, 0).unwrap();
    let mut live = Live::default();
    live.add(subject, address, 1000);
    let mark = arena.mark().unwrap();
    let other = arena.allocate(1000, 0).unwrap();
    arena.rewind(mark).unwrap();
    assert_ne!(arena.allocate(1000, 0).unwrap(), other, "a rewind frees nothing meanwhile");
    for _ in 0..5 {
        arena.reset().unwrap();
        let mut all = Live(live.0.clone());
        (0..50).for_each(|_| all.add(subject, arena.allocate(20 * KIB, 0).unwrap(), 20 * KIB));
        live.check(subject);
    }
    let held = bench.source.taken.lock().unwrap().len();
    drop(lease);
    assert!(bench.source.taken.lock().unwrap().len() < held, "the lease held a chunk");
    let (_, lease) = arena.allocate_leased(1000, 0).unwrap();
    drop(arena);
    assert!(!bench.source.taken.lock().unwrap().is_empty(), "also beyond the arena's end");
    drop(lease);
    bench.finish();
}

pub fn trimming_gives_back_what_is_not_used(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let mark = arena.mark().unwrap();
    (0..100).for_each(|_| assert_ne!(arena.allocate(20 * KIB, 0).unwrap(), 0));
    arena.rewind(mark).unwrap();
    arena.allocate(100, 0).unwrap();
    arena.trim().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.statistics().unwrap().chunks, 1);
    arena.reset().unwrap();
    arena.trim().unwrap();
    let statistics = arena.statistics().unwrap();
    assert_eq!((statistics.chunks, statistics.held_bytes), (0, 0));
    arena.allocate(100, 0).unwrap();
    drop(arena);
    bench.finish();
}

/// Requests, marks, rewinds and resets at random, against a list of what is live.
pub fn random_programs_keep_their_memory(subject: Subject) {
    for seed in 0..10 {
        let bench = subject.start();
        let arena = arena(&bench);
        let mut random = Random(seed);
        let mut live = Live::default();
        let mut marks: Vec<(Mark, usize)> = Vec::new();
        for _ in 0..1500 {
            match random.below(40) {
                0 => {
                    live.check(subject);
                    arena.reset().unwrap();
                    (live, marks) = (Live::default(), Vec::new());
                }
                1..=3 => marks.push((arena.mark().unwrap(), live.0.len())),
                4..=6 if !marks.is_empty() => {
                    let index = random.below(marks.len() as u64) as usize;
                    marks.truncate(index + 1);
                    live.check(subject);
                    arena.rewind(marks[index].0).unwrap();
                    live.0.truncate(marks[index].1);
                }
                7 => arena.trim().unwrap(),
                _ => {
                    let magnitude = 1 + random.below(17);
                    let bytes = 1 + random.below(1 << magnitude);
                    let alignment = 1 << random.below(13);
                    let address = arena.allocate(bytes, alignment).unwrap();
                    assert!(address.is_multiple_of(alignment));
                    live.add(subject, address, bytes);
                }
            }
            arena.validate().unwrap();
        }
        live.check(subject);
        drop(arena);
        bench.finish();
    }
}

pub fn threads_share_an_arena(subject: Subject) {
    let bench = subject.start();
    let options = ArenaOptions { threads: Threads::Any, ..OPTIONS };
    let shared = AnyThread(Arena::new(bench.source.clone(), options));
    for _ in 0..5 {
        let all = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for seed in 0..4 {
                let (shared, all) = (&shared, &all);
                scope.spawn(move || {
                    let arena = shared.get();
                    let mut random = Random(seed);
                    for _ in 0..300 {
                        let bytes = 1 + random.below(4000);
                        let address = arena.allocate(bytes, 0).unwrap();
                        all.lock().unwrap().push((address, address + bytes));
                    }
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        shared.get().validate().unwrap();
        shared.get().reset().unwrap();
    }
    drop(shared);
    bench.finish();
}

/// All grow at once: each chunk alone would be within the limit.
pub fn threads_together_keep_the_limit(subject: Subject) {
    let bench = subject.start();
    let options = ArenaOptions { threads: Threads::Any, limit_bytes: MIB, ..OPTIONS };
    for _ in 0..50 {
        let shared = AnyThread(Arena::new(bench.source.clone(), options));
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    if let Err(error) = shared.get().allocate(600 * KIB, 0) {
                        assert_eq!(error.status, Status::LimitReached);
                    }
                });
            }
        });
        let statistics = shared.get().statistics().unwrap();
        assert!(statistics.held_bytes <= MIB && statistics.used_bytes >= 600 * KIB);
        shared.get().validate().unwrap();
    }
    bench.finish();
}

pub fn the_own_stream_waits_for_nobody(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let first = arena.allocate(10_000, 0).unwrap();
    bench.touch(first, 10_000, A);
    let calls = bench.calls();
    arena.reset().unwrap();
    assert_eq!(arena.allocate(10_000, 0).unwrap(), first);
    assert_eq!(bench.calls(), calls);
    bench.touch(first, 10_000, A);
    // What the rest rests on: the detector finds a stream that has not joined.
    bench.touch(first, 10_000, B);
    assert_eq!(bench.races(), 1);
    drop(arena);
    bench.finish();
}

pub fn another_stream_waits_for_the_own_one(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let first = arena.allocate(10_000, 0).unwrap();
    bench.touch(first, 10_000, A);
    arena.reset().unwrap();
    assert_eq!(arena.allocate_on(10_000, 0, B).unwrap(), first);
    bench.touch(first, 10_000, B);
    let calls = bench.calls();
    let more = arena.allocate_on(1000, 0, B).unwrap();
    assert_eq!(bench.calls(), calls, "it has joined already");
    bench.touch(more, 1000, B);
    assert_eq!(bench.races(), 0);
    drop(arena);
    bench.finish();
}

pub fn the_own_stream_waits_for_the_others_before_reuse(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    for _ in 0..3 {
        for stream in [B, C, B] {
            let address = arena.allocate_on(10_000, 0, stream).unwrap();
            bench.touch(address, 10_000, stream);
        }
        arena.reset().unwrap();
        for stream in [A, C, A] {
            let address = arena.allocate_on(10_000, 0, stream).unwrap();
            bench.touch(address, 10_000, stream);
        }
        arena.reset().unwrap();
    }
    let handed_on = arena.allocate(10_000, 0).unwrap();
    bench.touch(handed_on, 10_000, A);
    arena.join(B).unwrap();
    bench.touch(handed_on, 10_000, B);
    drop(arena);
    assert_eq!(bench.races(), 0);
    // The heap has the memory again, and knows who used it.
    let block = bench.rig().allocate_and_touch(256 * KIB, A);
    assert_eq!(bench.races(), 0);
    bench.rig().free(block);
    bench.finish();
}

pub fn what_a_rewind_frees_is_ordered(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let below = arena.allocate_on(1000, 0, B).unwrap();
    let mark = arena.mark().unwrap();
    for stream in [B, A, C, B] {
        let address = arena.allocate_on(5000, 0, stream).unwrap();
        bench.touch(address, 5000, stream);
        arena.rewind(mark).unwrap();
        // What is below the mark is still the other stream's.
        bench.touch(below, 1000, B);
    }
    arena.reset().unwrap();
    let address = arena.allocate(1000, 0).unwrap();
    assert_eq!(address, below);
    bench.touch(address, 1000, A);
    assert_eq!(bench.races(), 0);
    drop(arena);
    bench.finish();
}

pub fn a_lease_is_ordered_after_all_users(subject: Subject) {
    let bench = subject.start();
    let arena = arena(&bench);
    let (address, lease) = arena.allocate_leased(100 * KIB, 0).unwrap();
    arena.join(B).unwrap();
    bench.touch(address, 100 * KIB, B);
    arena.reset().unwrap();
    bench.touch(address, 100 * KIB, B);
    drop(lease);
    for _ in 0..10 {
        let block = bench.rig().allocate_and_touch(256 * KIB, A);
        bench.rig().free(block);
    }
    assert_eq!(bench.races(), 0);
    drop(arena);
    bench.finish();
}

pub fn new_chunks_are_ordered_for_other_streams(subject: Subject) {
    let bench = subject.start();
    // The memory of the arena's chunks was used on its own stream just before.
    let used = bench.rig().allocate_and_touch(64 * MIB, A);
    bench.rig().free(used);
    let arena = arena(&bench);
    for _ in 0..40 {
        let address = arena.allocate_on(200 * KIB, 0, B).unwrap();
        bench.touch(address, 200 * KIB, B);
    }
    assert!(arena.statistics().unwrap().chunks > 3);
    assert_eq!(bench.races(), 0);
    drop(arena);
    bench.finish();
}

pub fn a_use_after_a_reset_is_caught(subject: Subject) {
    let bench = subject.start_poisoned();
    let arena = arena(&bench);
    let addresses = [100, 5000].map(|bytes| arena.allocate(bytes, 0).unwrap());
    let mark = arena.mark().unwrap();
    let after = arena.allocate(700, 0).unwrap();
    arena.rewind(mark).unwrap();
    arena.validate().unwrap();
    assert_eq!(bench.source.taken.lock().unwrap().len(), 2, "a block for each");
    // Pinned memory is not filled.
    let is_filled = subject.has_bytes() && !matches!(subject, Subject::Pinned);
    // SAFETY: freed memory that the heap keeps: the mistake to be found.
    let byte_at = |address: u64| unsafe { *(address as *const u8) };
    assert!(!is_filled || byte_at(after) == 0xDD, "what is freed is filled");
    arena.reset().unwrap();
    assert!(!is_filled || addresses.into_iter().all(|address| byte_at(address) == 0xDD));
    drop(arena);
    bench.finish();
}
