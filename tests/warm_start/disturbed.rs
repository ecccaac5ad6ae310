//! A plan that cannot be made as it was: less memory, limits, driver calls that fail, requests
//! meanwhile, an end in the middle.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use genesis::base::StreamHandle;
use genesis::base::size::{KIB, MIB};
use genesis::config::{LogLevel, PoolType};
use simgpu::{Call, Code, Progress, StoreKind, Target, Times};

use crate::support::overtaking::overtake;
use crate::support::{A, B, C, DEVICE, Random, Rig, Subject, tier};
use crate::{make_ready, plan_of, subjects, whole_step};

/// The calls by which memory is made ready.
const KINDS: [Call; 5] = [Call::Allocate, Call::Reserve, Call::Create, Call::Map, Call::SetAccess];

#[test]
fn with_less_memory_a_part_is_ready_and_the_program_runs() {
    for subject in subjects() {
        let plan = plan_of(subject);
        for part in [2, 3, 10] {
            // By the limit, …
            let limit_bytes = plan.held_bytes() / part;
            let rig = subject.plan().start();
            rig.heap.set_memory_limit(DEVICE, Some(limit_bytes)).unwrap();
            make_ready(&rig, &plan).unwrap();
            assert!(rig.reserved_bytes() <= limit_bytes, "{subject:?}");
            rig.heap.set_memory_limit(DEVICE, None).unwrap();
            whole_step(&rig);
            rig.finish();
            // … and because another process holds the rest.
            let rig = subject.plan().start();
            let taken_bytes = (1 << 30) - limit_bytes;
            let taken = rig.machine.allocate(0, taken_bytes).unwrap();
            make_ready(&rig, &plan).unwrap();
            rig.machine.free(0, taken).unwrap();
            rig.check();
            whole_step(&rig);
            rig.finish();
        }
    }
}

#[test]
fn any_call_may_fail() {
    for subject in subjects().filter(|subject| subject.store == StoreKind::RealBytes) {
        let plan = plan_of(subject);
        let well = subject.plan().start();
        make_ready(&well, &plan).unwrap();
        for kind in KINDS {
            let count = well.usage().count(kind);
            let step = tier::some_or_all(count / 8 + 1, 1) as usize;
            for number in (1..=count).step_by(step) {
                for code in [Code::OUT_OF_MEMORY, Code(12345)] {
                    for times in [Times::Once, Times::Forever] {
                        let plan_for_test = subject.plan().set(|s| s.log = LogLevel::Off);
                        let rig = plan_for_test.start();
                        rig.heap.expect(&plan).unwrap();
                        rig.machine.faults().fail(Target::call(kind), number, times, code);
                        let made = make_ready(&rig, &plan);
                        // Of addresses a smaller range is tried.
                        let may_serve = code == Code::OUT_OF_MEMORY || kind == Call::Reserve;
                        assert!(may_serve || made.is_err(), "{subject:?}, {kind:?} {number}");
                        rig.machine.faults().clear();
                        assert!(rig.reserved_bytes() <= plan.held_bytes());
                        rig.check();
                        whole_step(&rig);
                        rig.finish();
                    }
                }
            }
        }
        well.finish();
    }
}

/// Requests on the streams of the plan, and on others, while a thread makes it ready; the race
/// detector judges each use.
#[test]
fn requests_meanwhile_are_right() {
    for pool_type in [PoolType::Elastic, PoolType::Caching] {
        for store in [StoreKind::RealBytes, StoreKind::AddressesOnly] {
            let plan = plan_of(Subject::new(pool_type, store));
            for seed in 0..tier::some_or_all(10, 300) {
                let mut start = Subject::new(pool_type, store).plan();
                start.machine.progress = Progress::Automatic;
                let rig = start.start();
                rig.heap.expect(&plan).unwrap();
                std::thread::scope(|scope| {
                    let maker = scope.spawn(|| make_ready(&rig, &plan));
                    for (thread, stream) in [A, B, C, StreamHandle(0xD000)].into_iter().enumerate()
                    {
                        let (rig, mut random) = (&rig, Random(seed * 8 + thread as u64));
                        scope.spawn(move || {
                            let mut live = Vec::new();
                            (0..60).for_each(|_| request(rig, &mut random, stream, &mut live));
                            live.into_iter().for_each(|block| rig.free(block));
                        });
                    }
                    maker.join().unwrap().unwrap();
                });
                println!("{pool_type:?}, {store:?}, seed {seed}");
                rig.check();
                whole_step(&rig);
                rig.finish();
            }
        }
    }
}

/// The same, before each call of the thread that makes it ready.
#[test]
fn requests_before_each_call_are_right() {
    for subject in subjects() {
        let plan = plan_of(subject);
        for seed in 0..tier::some_or_all(3, 30) {
            let mut start = subject.plan();
            start.machine.progress = Progress::Automatic;
            let rig = start.start();
            rig.heap.expect(&plan).unwrap();
            let random = Random(seed);
            overtake(
                &rig,
                random.clone(),
                || make_ready(&rig, &plan).unwrap(),
                |steps| {
                    let (mut random, mut live) = (random, Vec::new());
                    for () in steps {
                        let stream = [A, B, C][random.below(3) as usize];
                        request(&rig, &mut random, stream, &mut live);
                    }
                    live.into_iter().for_each(|block| rig.free(block));
                },
            );
            println!("{subject:?}, seed {seed}");
            rig.check();
            whole_step(&rig);
            rig.finish();
        }
    }
}

/// Allocates a block, which is added to `live`, and sometimes frees one.
fn request(rig: &Rig, random: &mut Random, stream: StreamHandle, live: &mut Vec<u64>) {
    let bytes = 1 + (random.below(12 * MIB) >> random.below(12));
    live.push(rig.allocate_and_touch(bytes, stream));
    if random.below(3) == 0 {
        let chosen = random.below(live.len() as u64) as usize;
        rig.free(live.swap_remove(chosen));
    }
}

#[test]
fn what_the_program_has_got_for_itself_is_not_made_again() {
    for subject in subjects() {
        let plan = plan_of(subject);
        let rig = subject.plan().start();
        rig.heap.expect(&plan).unwrap();
        whole_step(&rig);
        let held_bytes = rig.reserved_bytes();
        make_ready(&rig, &plan).unwrap();
        assert!(rig.reserved_bytes() <= held_bytes.max(plan.held_bytes()), "{subject:?}");
        whole_step(&rig);
        rig.finish();
    }
}

#[test]
fn it_ends_early_when_it_is_told() {
    for subject in subjects() {
        let plan = plan_of(subject);
        let rig = subject.plan().start();
        let is_over = AtomicBool::new(false);
        is_over.store(true, Relaxed);
        rig.heap.expect(&plan).unwrap();
        rig.heap.make_ready(&plan, &is_over).unwrap();
        assert_eq!(rig.reserved_bytes(), 0);
        let block = rig.allocate_and_touch(KIB, A);
        rig.free(block);
        rig.finish();
    }
}
