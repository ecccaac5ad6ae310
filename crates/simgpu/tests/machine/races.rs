//! The race detector: what it finds, what it accepts, how much it remembers.

use simgpu::{Access, Config, Machine, Progress, StoreKind, Touch, Violation, Work};
use std::sync::Arc;

const GRANULE: u64 = 2 << 20;
const A: usize = 0xA00;
const B: usize = 0xB00;

fn machine(progress: Progress) -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
    config.progress = progress;
    config.detect_races = true;
    Machine::new(config).unwrap()
}

fn write(machine: &Machine, stream: usize, address: u64, bytes: u64) {
    machine.touch(0, stream, Work::write(address, bytes, "write")).unwrap();
}

fn read(machine: &Machine, stream: usize, address: u64, bytes: u64) {
    machine.touch(0, stream, Work::read(address, bytes, "read")).unwrap();
}

fn recorded(machine: &Machine, stream: usize) -> u64 {
    let event = machine.event_create(0, false).unwrap();
    machine.event_record(0, event, stream).unwrap();
    event
}

/// Runs `case` under both kinds of progress, which must not matter, and returns what it found.
fn found(case: impl Fn(&Machine)) -> Vec<Violation> {
    let [automatic, manual] = [Progress::Automatic, Progress::Manual].map(|progress| {
        let machine = machine(progress);
        case(&machine);
        machine.validate().unwrap();
        machine.take_violations()
    });
    assert_eq!(automatic, manual, "progress made a difference");
    automatic
}

#[track_caller]
fn only_race(violations: &[Violation]) -> (Arc<Touch>, Arc<Touch>, u64, u64) {
    match violations {
        [Violation::Race { first, second, address, bytes }] => {
            (first.clone(), second.clone(), *address, *bytes)
        }
        other => panic!("not one race: {other:?}"),
    }
}

#[test]
fn unordered_writes_are_a_race_and_both_are_named() {
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        write(machine, A, address, 1000);
        write(machine, B, address + 600, 1000);
    });
    let (first, second, address, bytes) = only_race(&violations);
    assert_eq!((first.stream, first.sequence), (Some(A), 1));
    assert_eq!((second.stream, second.sequence), (Some(B), 1));
    assert_eq!((address, bytes), (first.address + 600, 400));
    let text = violations[0].to_string();
    assert!(text.contains("stream 0xa00") && text.contains("stream 0xb00"), "{text}");
}

#[test]
fn reads_conflict_with_writes_only() {
    assert_eq!(
        found(|machine| {
            let address = machine.allocate(0, 4096).unwrap();
            read(machine, A, address, 100);
            read(machine, B, address, 100);
            write(machine, A, address + 100, 100);
            write(machine, B, address + 200, 100);
        }),
        []
    );
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        read(machine, A, address, 100);
        read(machine, B, address, 100);
        write(machine, B, address, 100);
    });
    let (first, second, ..) = only_race(&violations);
    assert_eq!((first.access, first.stream, second.stream), (Access::Read, Some(A), Some(B)));
}

#[test]
fn events_order_streams_transitively() {
    assert_eq!(
        found(|machine| {
            let address = machine.allocate(0, 4096).unwrap();
            write(machine, A, address, 100);
            machine.stream_wait(0, 0xC00, recorded(machine, A)).unwrap();
            machine.stream_wait(0, B, recorded(machine, 0xC00)).unwrap();
            write(machine, B, address, 100);
        }),
        []
    );
    // What is enqueued after the record is not covered by it.
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        let event = recorded(machine, A);
        write(machine, A, address, 100);
        machine.stream_wait(0, B, event).unwrap();
        write(machine, B, address, 100);
    });
    only_race(&violations);
}

#[test]
fn what_the_host_saw_complete_comes_before_what_it_enqueues() {
    type Observer<'a> = &'a dyn Fn(&Machine, u64);
    let observers: [Observer<'_>; 5] = [
        &|machine, event| {
            machine.run_device_to_idle(0).unwrap();
            assert!(machine.event_query(0, event).unwrap());
        },
        &|machine, event| machine.event_synchronize(0, event).unwrap(),
        &|machine, _| machine.stream_synchronize(0, A).unwrap(),
        &|machine, _| machine.synchronize(0).unwrap(),
        &|machine, _| machine.free(0, machine.allocate(0, 1).unwrap()).unwrap(),
    ];
    for observe in observers {
        assert_eq!(
            found(|machine| {
                let address = machine.allocate(0, 4096).unwrap();
                write(machine, A, address, 100);
                let event = recorded(machine, A);
                observe(machine, event);
                machine.host_touch(address, 100, Access::Read, "copy");
                write(machine, B, address, 100);
            }),
            []
        );
    }
    // Completion that the host did not see orders nothing.
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        write(machine, A, address, 100);
        machine.run_device_to_idle(0).unwrap();
        machine.host_touch(address, 100, Access::Read, "copy");
    });
    assert_eq!(only_race(&violations).1.stream, None);
}

#[test]
fn aliases_of_the_same_memory_conflict() {
    let violations = found(|machine| {
        let base = machine.reserve(0, 4 * GRANULE, 0).unwrap();
        let [first, second] = [0; 2].map(|device| machine.create(device, GRANULE).unwrap());
        for (slot, handle) in [(0, first), (1, second), (3, first)] {
            machine.map(0, base + slot * GRANULE, GRANULE, handle).unwrap();
        }
        machine.set_access(0, base, 2 * GRANULE, &[0]).unwrap();
        machine.set_access(0, base + 3 * GRANULE, GRANULE, &[0]).unwrap();
        write(machine, A, base + GRANULE - 8, 16);
        write(machine, B, base + 3 * GRANULE, GRANULE);
    });
    let (first, second, _, bytes) = only_race(&violations);
    assert_ne!(first.address + GRANULE - 8, second.address);
    assert_eq!(bytes, 8, "only the first page is shared");
}

#[test]
fn a_legacy_stream_orders_blocking_streams() {
    assert_eq!(
        found(|machine| {
            let [one, two] = [true; 2].map(|blocking| machine.stream_create(0, blocking).unwrap());
            let address = machine.allocate(0, 4096).unwrap();
            write(machine, one, address, 100);
            write(machine, 0, address, 100);
            write(machine, two, address, 100);
        }),
        []
    );
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        write(machine, A, address, 100); // implicit streams do not block
        write(machine, 0, address, 100);
    });
    only_race(&violations);
}

#[test]
fn memory_that_is_not_there_is_reported() {
    let violations = found(|machine| {
        let address = machine.allocate(0, 1000).unwrap();
        write(machine, A, address, 1001);
        machine.free(0, address).unwrap();
        read(machine, A, address, 1);
        let large = machine.allocate(0, GRANULE).unwrap();
        machine.touch(1, A, Work::read(large, 1, "peer")).unwrap();
        machine.enable_peer_access(1, 0).unwrap();
        machine.touch(1, A, Work::read(large, 1, "peer")).unwrap();
        let base = machine.reserve(0, GRANULE, 0).unwrap();
        let handle = machine.create(0, GRANULE).unwrap();
        write(machine, A, base, 1);
        machine.map(0, base, GRANULE, handle).unwrap();
        write(machine, A, base, 1);
        machine.set_access(0, base, GRANULE, &[0]).unwrap();
        write(machine, A, base, GRANULE);
        write(machine, A, u64::MAX, 5);
    });
    let kinds: String = violations
        .iter()
        .map(|violation| match violation {
            Violation::TouchUnmapped { .. } => 'u',
            Violation::TouchWithoutAccess { .. } => 'a',
            _ => '?',
        })
        .collect();
    assert_eq!(kinds, "uuauau", "{violations:?}");
}

#[test]
fn unmapping_needs_certainty() {
    let unmap_after = |certainty: &dyn Fn(&Machine)| {
        found(|machine| {
            let base = machine.reserve(0, 2 * GRANULE, 0).unwrap();
            let handle = machine.create(0, GRANULE).unwrap();
            for slot in [0, 1] {
                machine.map(0, base + slot * GRANULE, GRANULE, handle).unwrap();
            }
            machine.set_access(0, base, 2 * GRANULE, &[0]).unwrap();
            write(machine, A, base, 100);
            certainty(machine);
            // Only the alias that is in use matters.
            machine.unmap(0, base + GRANULE, GRANULE).unwrap();
            machine.unmap(0, base, GRANULE).unwrap();
        })
    };
    assert_eq!(unmap_after(&|machine| machine.stream_synchronize(0, A).unwrap()), []);
    let violations = unmap_after(&|machine| machine.run_device_to_idle(0).unwrap());
    let [Violation::GoneWhileInUse { touch, address, .. }] = &violations[..] else {
        panic!("{violations:?}")
    };
    assert_eq!(touch.address, *address);
    // A wait of another stream tells the host nothing.
    let waiting = unmap_after(&|machine| {
        machine.stream_wait(0, B, recorded(machine, A)).unwrap();
    });
    assert_eq!(waiting.len(), 1);
}

#[test]
fn freeing_waits_for_its_own_device_only() {
    let violations = found(|machine| {
        machine.enable_peer_access(1, 0).unwrap();
        let [mine, shared] = [4096; 2].map(|bytes| machine.allocate(0, bytes).unwrap());
        write(machine, A, mine, 100);
        machine.touch(1, B, Work::read(shared, 100, "peer")).unwrap();
        machine.free(0, mine).unwrap();
        machine.free(0, shared).unwrap();
    });
    assert!(
        matches!(&violations[..],
        [Violation::GoneWhileInUse { touch, .. }] if touch.label == "peer"),
        "{violations:?}"
    );
}

/// Page-locked memory of the host is judged as device memory is, however it was locked.
#[test]
fn host_memory_is_judged_like_device_memory() {
    let own = 0x7000_0000_0000;
    let lock = |machine: &Machine, registers: bool| {
        if registers {
            // It need not be aligned.
            machine.host_register(0, own + 100, 9000).unwrap();
            return own + 100;
        }
        machine.host_allocate(0, 9000).unwrap()
    };
    let unlock = |machine: &Machine, registers: bool, address: u64| {
        if registers {
            machine.host_unregister(0, address).unwrap();
        } else {
            machine.host_free(0, address).unwrap();
        }
    };
    for registers in [false, true] {
        let race = found(|machine| {
            let address = lock(machine, registers);
            read(machine, A, address, 1000);
            machine.touch(1, B, Work::write(address + 999, 1, "write")).unwrap();
            machine.synchronize(0).unwrap();
            machine.synchronize(1).unwrap();
            unlock(machine, registers, address);
        });
        assert_eq!(only_race(&race).3, 1);
        let overwritten = found(|machine| {
            let address = lock(machine, registers);
            read(machine, A, address, 1000);
            machine.host_touch(address, 9000, Access::Write, "the host");
            machine.synchronize(0).unwrap();
            machine.host_touch(address, 9000, Access::Write, "the host");
            unlock(machine, registers, address);
        });
        assert_eq!(only_race(&overwritten).1.stream, None);
        let gone = found(|machine| {
            let address = lock(machine, registers);
            read(machine, A, address, 1000);
            unlock(machine, registers, address);
            // What was there before is forgotten.
            assert_eq!(lock(machine, registers), address);
            write(machine, B, address, 9000);
            machine.synchronize(0).unwrap();
            unlock(machine, registers, address);
            read(machine, A, address, 1000);
        });
        assert!(
            matches!(
                &gone[..],
                [Violation::GoneWhileInUse { .. }, Violation::TouchUnmapped { .. }]
            ),
            "{gone:?}"
        );
    }
}

#[test]
fn new_memory_has_no_history() {
    assert_eq!(
        found(|machine| {
            let address = machine.allocate(0, 4096).unwrap();
            write(machine, A, address, 4096);
            machine.free(0, address).unwrap();
            let again = machine.allocate(0, 4096).unwrap();
            assert_eq!(again, address);
            write(machine, B, again, 4096);
        }),
        []
    );
}

#[test]
fn slots_of_destroyed_streams_hide_no_race() {
    let violations = found(|machine| {
        let address = machine.allocate(0, 4096).unwrap();
        let old = machine.stream_create(0, false).unwrap();
        write(machine, old, address, 100);
        machine.stream_destroy(0, old).unwrap();
        let new = machine.stream_create(0, false).unwrap();
        write(machine, new, address, 100);
    });
    only_race(&violations);
    assert_eq!(
        found(|machine| {
            let address = machine.allocate(0, 4096).unwrap();
            for _ in 0..2000 {
                let stream = machine.stream_create(0, false).unwrap();
                write(machine, stream, address, 100);
                machine.stream_synchronize(0, stream).unwrap();
                machine.stream_destroy(0, stream).unwrap();
            }
        }),
        []
    );
}

#[test]
fn switched_off_it_says_nothing_and_switched_on_it_forgets() {
    let machine = machine(Progress::Automatic);
    let address = machine.allocate(0, 4096).unwrap();
    write(&machine, A, address, 100);
    machine.detect_races(false);
    write(&machine, B, address, 100);
    machine.detect_races(true);
    write(&machine, 0xC00, address, 100);
    machine.free(0, address).unwrap();
    assert_eq!(machine.take_violations(), []);
}

/// Many small touches by streams that the host never waits for: neighbours must merge, and overlaps
/// must be found no matter how the pieces were cut.
#[test]
fn the_shadow_agrees_with_a_byte_by_byte_oracle() {
    const BYTES: u64 = 64;
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let machine = machine(Progress::Manual);
        let address = machine.allocate(0, BYTES).unwrap();
        // For each byte: (stream, is write) of every touch after the last write, the latest of
        // each stream; streams are never ordered here.
        let mut history = vec![Vec::<(usize, bool)>::new(); BYTES as usize];
        for _ in 0..30 {
            let start = random(BYTES);
            let bytes = 1 + random(BYTES - start);
            let stream = 8 + random(3) as usize;
            let is_write = random(2) == 0;
            let range = start as usize..(start + bytes) as usize;
            let expected = history[range.clone()]
                .iter()
                .flatten()
                .any(|&(other, wrote)| other != stream && (wrote || is_write));
            let access = if is_write { Access::Write } else { Access::Read };
            machine.touch(0, stream, Work::new(address + start, bytes, access, "")).unwrap();
            assert_eq!(!machine.take_violations().is_empty(), expected);
            for byte in &mut history[range] {
                if is_write {
                    byte.clear();
                }
                byte.push((stream, is_write));
            }
        }
        machine.validate().unwrap();
    }
}

/// What is known to be complete is swept out: the shadow holds what is in flight, up to a bound.
#[test]
fn the_shadow_stays_small() {
    /// The shadow is swept when it has more segments than this.
    const LEAST_SWEEP: usize = 4096;
    let machine = machine(Progress::Automatic);
    let address = machine.allocate(0, 512 << 20).unwrap();
    for step in 0..100_000u64 {
        write(&machine, A + (step % 5) as usize, address + step * 4096, 100);
        assert!(machine.shadow_segments() <= LEAST_SWEEP, "after {step} writes");
        if step % 1000 == 999 {
            machine.synchronize(0).unwrap();
        }
    }
    assert_eq!(machine.take_violations(), []);
    machine.validate().unwrap();
}
