//! Limits: of queues, whose callers wait for room, and of accessible mappings.

use simgpu::{Code, Config, Machine, Progress, StoreKind, Work};
use std::sync::Arc;
use std::time::Duration;

const DEPTH: u64 = 1024;
const GRANULE: u64 = 2 << 20;
const A: usize = 0xA00;
const B: usize = 0xB00;

fn machine(progress: Progress) -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 64 << 20);
    config.progress = progress;
    Machine::new(config).unwrap()
}

#[test]
fn with_manual_progress_time_passes() {
    let machine = machine(Progress::Manual);
    for _ in 0..DEPTH {
        machine.delay(0, A, 10).unwrap();
    }
    assert_eq!(machine.usage(0).unwrap().host_waits.queue_full, 0);
    for more in 1..=3 {
        machine.delay(0, A, 10).unwrap();
        assert_eq!(machine.pending(0, A), Ok(DEPTH));
        let waits = machine.usage(0).unwrap().host_waits;
        assert_eq!((waits.queue_full, waits.nanoseconds), (more, 10 * more));
    }
    assert_eq!(machine.pending(0, B), Ok(0), "each stream has a queue of its own");
}

#[test]
fn what_it_comes_after_is_run_as_well() {
    let machine = machine(Progress::Manual);
    machine.delay(0, B, 5).unwrap();
    let event = machine.event_create(0, false).unwrap();
    machine.event_record(0, event, B).unwrap();
    machine.stream_wait(0, A, event).unwrap();
    for _ in 0..DEPTH {
        machine.touch(0, A, Work::read(0, 0, "kernel")).unwrap();
    }
    assert_eq!((machine.pending(0, A), machine.pending(0, B)), (Ok(DEPTH), Ok(0)));
}

/// Enqueues by `enqueue` behind a gate until it blocks, and opens the gate from here.
fn blocks(progress: Progress, enqueue: impl Fn(&Machine) + Sync) {
    let machine = machine(progress);
    machine.delay(0, B, 5).unwrap();
    machine.hold(0, B, true).unwrap();
    machine.delay(0, B, 5).unwrap();
    let gate = machine.event_create(0, false).unwrap();
    machine.event_record(0, gate, B).unwrap();
    machine.stream_wait(0, A, gate).unwrap();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| (0..2 * DEPTH).for_each(|_| enqueue(&machine)));
        while machine.usage(0).unwrap().host_waits.queue_full == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        // The machine's other calls go on meanwhile.
        assert_eq!(machine.pending(0, A), Ok(DEPTH));
        assert!(!worker.is_finished());
        machine.hold(0, B, false).unwrap();
        worker.join().unwrap();
    });
    assert!(machine.usage(0).unwrap().host_waits.queue_full > 0);
    machine.synchronize(0).unwrap();
    machine.validate().unwrap();
}

/// Calls that create, destroy or allocate wait with the thread that waits for room, and no others.
#[test]
fn others_wait_beside_a_full_queue() {
    type Call = fn(&Machine) -> Result<(), Code>;
    let waiting: [Call; 3] = [
        |machine| machine.event_create(0, false).map(drop),
        |machine| machine.allocate(0, 512).map(drop),
        |machine| machine.host_allocate(0, 512).map(drop),
    ];
    let returning: [Call; 4] = [
        |machine| machine.memory_info(0).map(drop),
        |machine| machine.create(0, GRANULE).map(drop),
        |machine| machine.reserve(0, GRANULE, 0).map(drop),
        |machine| machine.touch(0, B, Work::read(0, 0, "kernel")).map(drop),
    ];
    let all = waiting.map(|call| (call, true)).into_iter();
    for (call, waits) in all.chain(returning.map(|call| (call, false))) {
        let machine = machine(Progress::Manual);
        machine.hold(0, A, true).unwrap();
        std::thread::scope(|scope| {
            let full = scope.spawn(|| {
                (0..=DEPTH).for_each(|_| machine.delay(0, A, 1).unwrap());
            });
            while machine.usage(0).unwrap().host_waits.queue_full == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let other = scope.spawn(|| call(&machine).unwrap());
            if waits {
                std::thread::sleep(Duration::from_millis(20));
                assert!(!other.is_finished());
            } else {
                other.join().unwrap();
            }
            assert!(!full.is_finished());
            machine.hold(0, A, false).unwrap();
        });
        machine.validate().unwrap();
    }
}

#[test]
fn behind_a_gate_launches_block() {
    for progress in [Progress::Automatic, Progress::Manual] {
        blocks(progress, |machine| machine.touch(0, A, Work::read(0, 0, "kernel")).unwrap());
    }
}

#[test]
fn behind_a_gate_recording_and_waiting_block() {
    blocks(Progress::Automatic, |machine| {
        let event = machine.event_create(0, false).unwrap();
        machine.event_record(0, event, A).unwrap();
        machine.event_destroy(0, event).unwrap();
    });
    blocks(Progress::Automatic, |machine| {
        let event = machine.event_create(0, false).unwrap();
        machine.event_record(0, event, 0).unwrap();
        machine.stream_wait(0, A, event).unwrap();
        machine.event_destroy(0, event).unwrap();
    });
}

#[test]
fn accessible_mappings_are_finite() {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
    assert_eq!(config.most_mappings, 520_000);
    config.most_mappings = 3;
    let machine = Machine::new(config).unwrap();
    let base = machine.reserve(0, 8 * GRANULE, 0).unwrap();
    let handle = machine.create(0, GRANULE).unwrap();
    for place in 0..5 {
        machine.map(0, base + place * GRANULE, GRANULE, handle).unwrap();
    }
    let give = |place, count, devices: &[u32]| {
        machine.set_access(0, base + place * GRANULE, count * GRANULE, devices)
    };
    give(0, 2, &[0]).unwrap();
    assert_eq!(give(1, 3, &[0]), Err(Code::OUT_OF_MEMORY), "four would be accessible");
    assert!(!machine.is_accessible(base + 2 * GRANULE, 1), "a refusal gives nothing");
    give(0, 3, &[0, 1]).unwrap();
    give(0, 3, &[1]).unwrap();
    assert_eq!(give(3, 1, &[0]), Err(Code::OUT_OF_MEMORY));
    machine.unmap(0, base + GRANULE, GRANULE).unwrap();
    give(3, 1, &[0]).unwrap();
    machine.validate().unwrap();
}
