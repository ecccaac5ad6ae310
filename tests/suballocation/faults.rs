//! Every driver call of a program fails in turn: no step panics, what fails says so, nothing is
//! lost, and the objects work afterwards.

use genesis::base::size::KIB;
use genesis::base::{Error, Result, Status};
use genesis::suballocation::{
    Arena, ArenaOptions, FixedPool, FixedPoolOptions, Threads, Tier, Tiers,
};
use simgpu::{Call, Code, Target, Times};

use crate::sources::{Bench, Subject};
use crate::support::{B, C};

const UNKNOWN: Code = Code(12345);
const THREADS: Threads = Threads::One;
/// More calls than a program makes of any kind.
const MOST_CALLS: u64 = 1000;

pub fn every_driver_call_of_an_arena_may_fail(subject: Subject) {
    sweep(subject, |bench| {
        let options = ArenaOptions { threads: THREADS, chunk_bytes: 64 * KIB, limit_bytes: 0 };
        let arena = Arena::new(bench.source.clone(), options);
        let mut first = Ok(());
        for _ in 0..3 {
            let mark = arena.mark()?;
            for stream in [B, C, B] {
                note(&mut first, arena.allocate(50 * KIB, 0));
                note(&mut first, arena.allocate_on(50 * KIB, 0, stream));
            }
            note(&mut first, arena.rewind(mark));
            note(&mut first, arena.allocate_on(300 * KIB, 0, C));
            note(&mut first, arena.reset());
            arena.validate().map_err(|text| Error::new(Status::Internal, text))?;
        }
        first
    });
}

pub fn every_driver_call_of_a_pool_may_fail(subject: Subject) {
    sweep(subject, |bench| {
        let options = FixedPoolOptions {
            threads: THREADS,
            block_bytes: 10_000,
            alignment_bytes: 0,
            count: 2,
            growth: 2,
        };
        let pool = FixedPool::new(bench.source.clone(), options)?;
        let mut first = Ok(());
        let mut blocks = Vec::new();
        for _ in 0..4 {
            for stream in [B, C] {
                blocks.extend(note(&mut first, pool.allocate()));
                blocks.extend(note(&mut first, pool.allocate_on(stream)));
            }
            let half = blocks.len() / 2;
            // A block that could not be freed stays.
            blocks = blocks.split_off(half);
            for block in blocks.drain(..) {
                note(&mut first, pool.free(block));
            }
            pool.validate().map_err(|text| Error::new(Status::Internal, text))?;
        }
        first
    });
}

pub fn every_driver_call_of_tiers_may_fail(subject: Subject) {
    sweep(subject, |bench| {
        let tiers = [Tier { block_bytes: 512, count: 2 }, Tier { block_bytes: 8192, count: 2 }];
        let tiers = Tiers::new(bench.source.clone(), &tiers, 64 * KIB, THREADS)?;
        let mut first = Ok(());
        for _ in 0..3 {
            let mut blocks = Vec::new();
            for bytes in [100, 500, 600, 8000, 9000] {
                blocks.extend(note(&mut first, tiers.allocate(bytes, 0, None)));
                blocks.extend(note(&mut first, tiers.allocate(bytes, 0, Some(B))));
            }
            for block in blocks {
                note(&mut first, tiers.free(block));
            }
            tiers.validate().map_err(|text| Error::new(Status::Internal, text))?;
        }
        first
    });
}

/// Keeps the first error.
fn note<T>(first: &mut Result<()>, result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            if first.is_ok() {
                *first = Err(error);
            }
            None
        }
    }
}

/// Runs `program` with each of its driver calls failing, once and from there on.
fn sweep(subject: Subject, program: impl Fn(&Bench) -> Result<()>) {
    let bench = subject.start();
    program(&bench).unwrap();
    let usage = bench.rig().usage();
    bench.finish();
    let mut struck = 0;
    for call in Call::ALL {
        for nth in 1..=usage.count(call).min(MOST_CALLS) {
            for (code, times) in [
                (Code::OUT_OF_MEMORY, Times::Once),
                (UNKNOWN, Times::Once),
                (UNKNOWN, Times::Forever),
            ] {
                let bench = subject.start();
                let faults = bench.rig().machine.faults();
                faults.fail(Target::call(call), nth, times, code);
                if let Err(error) = program(&bench) {
                    struck += 1;
                    let expected =
                        [Status::OutOfMemory, Status::LimitReached, Status::DriverFailed];
                    assert!(
                        expected.contains(&error.status),
                        "{call:?} {nth} {code:?}: {:?} {error}",
                        error.status
                    );
                }
                bench.rig().machine.faults().clear();
                bench.give_back_rest();
                program(&bench).unwrap();
                bench.finish();
            }
        }
    }
    assert!(struck > 10, "{struck} programs saw a fault");
}
