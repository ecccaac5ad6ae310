//! Several contexts and devices: what belongs to which, and which work a wait waits for.

use simgpu::{Census, Code, Config, Machine, Progress, StoreKind, Work};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn machine() -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 64 * MIB);
    config.progress = Progress::Manual;
    config.detect_races = true;
    Machine::new(config).unwrap()
}

fn finish(machine: &Machine) {
    machine.validate().unwrap();
    assert_eq!(machine.take_violations(), []);
}

#[test]
fn a_wait_is_for_its_own_context() {
    let machine = machine();
    let further = machine.context_create(0).unwrap();
    assert_eq!((machine.context_device(further), machine.context_device(1)), (Ok(0), Ok(1)));
    let contexts = [0, 1, further];
    for context in contexts {
        for stream in [0, 7] {
            machine.delay(context, stream, 10).unwrap();
        }
    }
    machine.synchronize(0).unwrap();
    let pending = |context| [0, 7].map(|stream| machine.pending(context, stream).unwrap());
    assert_eq!(contexts.map(pending), [[0, 0], [1, 1], [1, 1]]);
    let address = machine.allocate(further, MIB).unwrap();
    machine.delay(0, 7, 10).unwrap();
    machine.free(0, address).unwrap();
    assert_eq!(contexts.map(pending), [[0, 1], [1, 1], [0, 0]], "freed from another context");
    machine.run_device_to_idle(0).unwrap();
    assert_eq!(contexts.map(pending), [[0, 0], [1, 1], [0, 0]]);
    finish(&machine);
}

#[test]
fn legacy_streams_order_the_streams_of_their_context_only() {
    let machine = machine();
    let further = machine.context_create(0).unwrap();
    let stream = machine.stream_create(0, true).unwrap();
    machine.delay(0, stream, 10).unwrap();
    machine.delay(further, 0, 10).unwrap();
    machine.run_to_idle(further, 0).unwrap();
    assert_eq!(machine.pending(0, stream), Ok(1));
    machine.delay(0, 0, 10).unwrap();
    machine.run_to_idle(0, 0).unwrap();
    assert_eq!(machine.pending(0, stream), Ok(0));
    finish(&machine);
}

#[test]
fn events_are_recorded_at_home_and_waited_for_everywhere() {
    let machine = machine();
    let further = machine.context_create(0).unwrap();
    let contexts = [0, 1, further];
    let streams = contexts.map(|context| machine.stream_create(context, false).unwrap());
    let events = contexts.map(|context| machine.event_create(context, false).unwrap());
    for (home, &event) in contexts.iter().zip(&events) {
        for (other, &stream) in contexts.iter().zip(&streams) {
            // Which context is current does not matter: event and stream do.
            for current in contexts {
                let expected = if home == other { Ok(()) } else { Err(Code::INVALID_HANDLE) };
                assert_eq!(machine.event_record(current, event, stream), expected);
            }
        }
        let legacy = machine.event_record(*home, event, 0);
        assert_eq!(legacy, Ok(()));
    }
    for event in events {
        for (context, &stream) in contexts.iter().zip(&streams) {
            machine.stream_wait(*context, stream, event).unwrap();
            machine.event_query(*context, event).unwrap();
            machine.event_synchronize(*context, event).unwrap();
            assert_eq!(machine.event_query(*context, event), Ok(true));
        }
    }
    finish(&machine);
}

#[test]
fn streams_belong_to_the_context_they_were_made_in() {
    let machine = machine();
    let further = machine.context_create(1).unwrap();
    let stream = machine.stream_create(further, false).unwrap();
    for current in [0, 1, further] {
        assert_eq!(machine.stream_context(current, stream), Ok(further));
        assert_eq!(machine.stream_context(current, 0), Ok(current));
        assert_eq!(machine.stream_context(current, 2), Ok(current));
    }
    let address = machine.allocate(further, MIB).unwrap();
    let kernel = |current| machine.touch(current, stream, Work::write(address, 8, "kernel"));
    assert_eq!(kernel(0), Err(Code::INVALID_HANDLE));
    assert_eq!(kernel(1), Err(Code::INVALID_HANDLE), "the same device, another context");
    kernel(further).unwrap();
    machine.copy_touch(0, stream, Work::write(address, 8, "copy")).unwrap();
    machine.stream_synchronize(0, stream).unwrap();
    finish(&machine);
}

#[test]
fn a_destroyed_context_takes_its_things_along() {
    let machine = machine();
    let further = machine.context_create(0).unwrap();
    let id = machine.context_id(further).unwrap();
    let stream = machine.stream_create(further, false).unwrap();
    let event = machine.event_create(further, false).unwrap();
    let address = machine.allocate(further, MIB).unwrap();
    machine.touch(further, stream, Work::write(address, MIB, "kernel")).unwrap();
    machine.event_record(further, event, stream).unwrap();
    machine.stream_wait(0, 7, event).unwrap();
    machine.hold(further, stream, true).unwrap();
    machine.context_destroy(further).unwrap();
    assert_eq!(machine.context_destroy(further), Err(Code::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.synchronize(further), Err(Code::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.context_destroy(0), Err(Code::INVALID_VALUE), "a primary one");
    assert_eq!(machine.event_query(0, event), Err(Code::INVALID_HANDLE));
    assert_eq!(machine.census(), Census::default());
    machine.run_to_idle(0, 7).unwrap();
    finish(&machine);
    assert_eq!(machine.stream_query(0, stream), Err(Code::INVALID_HANDLE));
    assert_eq!(machine.take_violations().len(), 1);
    assert_eq!(machine.stream_create(0, false), Ok(stream), "its handles are given again");
    let next = machine.context_create(0).unwrap();
    assert!(next != further && machine.context_id(next) != Ok(id));
}

#[test]
fn after_a_reset_addresses_come_back() {
    for descending in [false, true] {
        let mut config = Config::new(StoreKind::AddressesOnly, 2, 64 * MIB);
        config.descending_addresses = descending;
        let machine = Machine::new(config).unwrap();
        let other = machine.allocate(1, MIB).unwrap();
        let fill = |machine: &Machine| {
            let small: Vec<u64> = (0..3).map(|_| machine.allocate(0, MIB + 512).unwrap()).collect();
            machine.free(0, small[1]).unwrap();
            let base = machine.reserve(0, 8 * MIB, 0).unwrap();
            let handle = machine.create(0, 2 * MIB).unwrap();
            machine.map(0, base, 2 * MIB, handle).unwrap();
            machine.set_access(0, base, 2 * MIB, &[0]).unwrap();
            let stream = machine.stream_create(0, false).unwrap();
            let event = machine.event_create(0, false).unwrap();
            machine.event_record(0, event, stream).unwrap();
            (small, machine.allocate(0, 8 * MIB).unwrap(), base, stream)
        };
        let first = fill(&machine);
        let id = machine.stream_id(0, 0).unwrap();
        machine.device_reset(0).unwrap();
        machine.validate().unwrap();
        let left = Census { allocations: 1, used_bytes: 2 * MIB, ..Census::default() };
        assert_eq!(machine.census(), left, "the other device keeps what it has");
        assert_ne!(machine.stream_id(0, 0), Ok(id));
        assert_eq!(fill(&machine), first);
        machine.free(1, other).unwrap();
        machine.validate().unwrap();
    }
}
