//! Streams, events and capture: what completes when, and what is refused.

use simgpu::{
    Call, CaptureMode, Code, Config, Machine, Progress, StoreKind, Violation, Work,
    exchange_thread_capture_mode,
};
use std::sync::Arc;

fn manual() -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
    config.progress = Progress::Manual;
    Machine::new(config).unwrap()
}

fn recorded(machine: &Machine, stream: usize) -> u64 {
    let event = machine.event_create(0, false).unwrap();
    machine.event_record(0, event, stream).unwrap();
    event
}

#[test]
fn queues_advance_only_when_told() {
    let machine = manual();
    machine.delay(0, 8, 10).unwrap();
    let event = recorded(&machine, 8);
    assert_eq!(machine.pending(0, 8), Ok(2));
    assert_eq!(machine.event_query(0, event), Ok(false));
    assert_eq!(machine.advance(0, 8, 1), Ok(1));
    assert_eq!(machine.event_query(0, event), Ok(false));
    assert_eq!(machine.advance(0, 8, 100), Ok(1));
    assert_eq!(machine.event_query(0, event), Ok(true));
    assert_eq!(machine.advance(0, 8, 100), Ok(0));
}

#[test]
fn a_wait_holds_its_stream_until_the_event() {
    let machine = manual();
    machine.delay(0, 8, 10).unwrap();
    let event = recorded(&machine, 8);
    machine.stream_wait(1, 9, event).unwrap();
    // Neither recording again nor destroying the event changes the wait.
    machine.delay(0, 8, 10).unwrap();
    machine.event_record(0, event, 8).unwrap();
    machine.event_destroy(0, event).unwrap();
    machine.delay(1, 9, 10).unwrap();
    assert_eq!(machine.advance(1, 9, 5), Ok(0));
    machine.advance(0, 8, 2).unwrap();
    assert_eq!(machine.advance(1, 9, 5), Ok(2));
    assert_eq!(machine.pending(0, 8), Ok(2));
    assert_eq!(machine.event_query(0, event), Err(Code::INVALID_HANDLE));
    machine.validate().unwrap();
}

#[test]
fn synchronising_runs_what_it_needs_and_no_more() {
    let machine = manual();
    for stream in [8, 9, 10] {
        machine.delay(0, stream, 100).unwrap();
    }
    let first = recorded(&machine, 8);
    machine.stream_wait(0, 9, first).unwrap();
    let second = recorded(&machine, 9);
    machine.event_synchronize(0, second).unwrap();
    assert_eq!([8, 9, 10].map(|stream| machine.pending(0, stream).unwrap()), [0, 0, 1]);
    let waits = machine.usage(0).unwrap().host_waits;
    assert_eq!((waits.explicit, waits.blocked, waits.nanoseconds), (1, 1, 200));
    machine.stream_synchronize(0, 10).unwrap();
    machine.synchronize(0).unwrap();
    let waits = machine.usage(0).unwrap().host_waits;
    assert_eq!((waits.explicit, waits.blocked, waits.nanoseconds), (3, 2, 300));
}

#[test]
fn a_wait_that_cannot_end_is_an_error() {
    for progress in [Progress::Manual, Progress::Automatic] {
        let machine = manual();
        machine.set_progress(progress);
        machine.hold(0, 8, true).unwrap();
        let held = recorded(&machine, 8);
        machine.stream_wait(0, 9, held).unwrap();
        let behind = recorded(&machine, 9);
        for event in [held, behind] {
            assert_eq!(machine.event_query(0, event), Ok(false));
            assert_eq!(machine.event_synchronize(0, event), Err(Code::LAUNCH_TIMEOUT));
        }
        assert_eq!(machine.synchronize(0), Err(Code::LAUNCH_TIMEOUT));
        assert_eq!(machine.stream_synchronize(0, 9), Err(Code::LAUNCH_TIMEOUT));
        machine.synchronize(1).unwrap();
        machine.hold(0, 8, false).unwrap();
        assert_eq!(machine.event_query(0, behind), Ok(progress == Progress::Automatic));
        machine.synchronize(0).unwrap();
        assert_eq!(machine.event_query(0, behind), Ok(true));
        machine.validate().unwrap();
    }
}

#[test]
fn long_chains_of_waits_do_not_exhaust_the_stack() {
    let machine = manual();
    let mut event = recorded(&machine, 8);
    for turn in 0..100_000 {
        let stream = 8 + (turn + 1) % 2;
        machine.stream_wait(0, stream, event).unwrap();
        machine.event_destroy(0, event).unwrap();
        event = recorded(&machine, stream);
    }
    machine.event_synchronize(0, event).unwrap();
    assert_eq!(machine.event_query(0, event), Ok(true));
}

#[test]
fn blocking_streams_are_ordered_with_the_legacy_stream() {
    let machine = manual();
    let blocking = machine.stream_create(0, true).unwrap();
    let free = machine.stream_create(0, false).unwrap();
    machine.delay(0, blocking, 1).unwrap();
    machine.delay(0, 0, 1).unwrap();
    machine.delay(0, blocking, 1).unwrap();
    machine.delay(0, free, 1).unwrap();
    assert_eq!(machine.advance(0, free, 9), Ok(1));
    assert_eq!(machine.advance(0, simgpu::STREAM_LEGACY, 9), Ok(0));
    assert_eq!(machine.advance(0, blocking, 9), Ok(1));
    assert_eq!(machine.advance(0, 0, 9), Ok(1));
    assert_eq!(machine.advance(0, blocking, 9), Ok(1));
}

#[test]
fn the_per_thread_stream_is_one_for_each_thread() {
    let machine = manual();
    let handle = simgpu::STREAM_PER_THREAD;
    machine.delay(0, handle, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(machine.pending(0, handle), Ok(0)));
    });
    assert_eq!(machine.pending(0, handle), Ok(1));
    assert_eq!(machine.pending(1, handle), Ok(0));
}

#[test]
fn destroyed_streams_are_reported() {
    let machine = manual();
    let stream = machine.stream_create(0, false).unwrap();
    let event = recorded(&machine, stream);
    machine.stream_destroy(0, stream).unwrap();
    machine.synchronize(0).unwrap();
    assert_eq!(machine.event_query(0, event), Ok(true), "queued work is still done");
    assert_eq!(machine.event_record(0, event, stream), Err(Code::INVALID_HANDLE));
    assert_eq!(machine.stream_wait(0, stream, event), Err(Code::INVALID_HANDLE));
    assert_eq!(machine.stream_destroy(0, stream), Err(Code::INVALID_HANDLE));
    let calls = [Call::EventRecord, Call::StreamWait, Call::StreamDestroy];
    let expected =
        calls.map(|call| Violation::DestroyedStream { handle: stream, call: Some(call) });
    assert_eq!(machine.take_violations(), expected);
    assert!(expected[0].to_string().contains("cuEventRecord"));
    assert_eq!(machine.stream_create(0, false), Ok(stream), "given again, it is good again");
    assert_eq!(machine.stream_query(0, stream), Ok(true));
    assert_eq!(machine.take_violations(), []);
    assert_eq!(machine.stream_destroy(0, 0), Err(Code::INVALID_HANDLE));
}

#[test]
fn handles_come_back_at_once_and_ids_never() {
    let machine = manual();
    let [first, second] = [(); 2].map(|()| machine.stream_create(0, false).unwrap());
    machine.delay(0, first, 10).unwrap();
    machine.delay(0, second, 10).unwrap();
    let ids = [first, second, 0, 2, 77].map(|stream| machine.stream_id(0, stream).unwrap());
    machine.stream_destroy(0, first).unwrap();
    machine.stream_destroy(0, second).unwrap();
    assert_eq!(machine.stream_create(0, false), Ok(second), "the one destroyed last");
    assert_eq!(machine.stream_create(0, false), Ok(first));
    assert_eq!(machine.pending(0, first), Ok(0), "another stream, though the old one's work waits");
    machine.stream_destroy(0, 77).unwrap();
    machine.delay(0, 77, 10).unwrap();
    assert_eq!(machine.take_violations(), [], "an implicit handle names a new stream");
    let again = [first, second, 0, 2, 77].map(|stream| machine.stream_id(0, stream).unwrap());
    assert_eq!((ids[2], ids[3]), (again[2], again[3]), "default streams stay");
    let elsewhere = std::thread::scope(|scope| {
        scope.spawn(|| machine.stream_id(0, 2).unwrap()).join().unwrap()
    });
    let mut all = [&ids[..], &again[..2], &again[4..], &[elsewhere]].concat();
    all.extend([0, 2, 77].map(|stream| machine.stream_id(1, stream).unwrap()));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "every stream has an id of its own");
    assert_eq!(machine.usage(0).unwrap().count(Call::StreamGetId), 11);
    machine.validate().unwrap();
}

#[test]
fn strict_machines_know_only_created_streams() {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
    config.implicit_streams = false;
    let machine = Machine::new(config).unwrap();
    let stream = machine.stream_create(0, false).unwrap();
    assert_eq!(machine.stream_query(0, 8), Err(Code::INVALID_HANDLE));
    for handle in [0, 1, 2, stream] {
        assert_eq!(machine.stream_query(0, handle), Ok(true));
    }
    let event = machine.event_create(1, false).unwrap();
    assert_eq!(machine.event_record(1, event, stream), Err(Code::INVALID_HANDLE));
    machine.event_record(1, event, 0).unwrap();
}

#[test]
fn elapsed_time_needs_timing() {
    let machine = manual();
    let [start, end] = [true; 2].map(|timing| machine.event_create(0, timing).unwrap());
    assert_eq!(machine.event_elapsed_ns(start, end), Err(Code::INVALID_HANDLE));
    machine.event_record(0, start, 8).unwrap();
    machine.memory_info(0).unwrap();
    machine.event_record(0, end, 8).unwrap();
    assert_eq!(machine.event_elapsed_ns(start, end), Err(Code::NOT_READY));
    machine.run_to_idle(0, 8).unwrap();
    let costs = machine.config().costs;
    let expected = costs.get(Call::MemoryInfo).base_ns() + costs.get(Call::EventRecord).base_ns();
    assert_eq!(machine.event_elapsed_ns(start, end), Ok(expected));
    let plain = recorded(&machine, 8);
    machine.run_device_to_idle(0).unwrap();
    assert_eq!(machine.event_elapsed_ns(start, plain), Err(Code::INVALID_HANDLE));
}

#[test]
fn capture_collects_touches_from_every_stream_that_joins() {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
    config.detect_races = true;
    let machine = Machine::new(config).unwrap();
    let address = machine.allocate(0, 4096).unwrap();
    machine.begin_capture(0, 8, CaptureMode::Relaxed).unwrap();
    assert_eq!(machine.begin_capture(0, 8, CaptureMode::Relaxed), Err(Code::ILLEGAL_STATE));
    assert_eq!(machine.is_capturing(0, 8), Ok(true));
    machine.touch(0, 8, Work::write(address, 100, "a")).unwrap();
    let fork = recorded(&machine, 8);
    machine.stream_wait(0, 9, fork).unwrap();
    assert_eq!(machine.is_capturing(0, 9), Ok(true));
    assert_eq!(machine.end_capture(0, 9).unwrap_err(), Code::STREAM_CAPTURE_UNMATCHED);
    machine.touch(0, 9, Work::write(address + 2048, 100, "b")).unwrap();
    let graph = machine.end_capture(0, 8).unwrap();
    assert_eq!([8, 9].map(|stream| machine.is_capturing(0, stream).unwrap()), [false; 2]);

    machine.touch(0, 10, Work::read(address + 2048, 1, "before")).unwrap();
    machine.graph_launch(0, 8, &graph).unwrap();
    let violations = machine.take_violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(matches!(&violations[0],
        Violation::Race { first, second, .. } if first.label == "before" && second.label == "b"));
}

#[test]
fn capture_forbids_what_cuda_forbids() {
    let machine = manual();
    let unsupported = Code::STREAM_CAPTURE_UNSUPPORTED;
    let address = machine.allocate(0, 512).unwrap();
    let event = recorded(&machine, 10);
    assert_eq!(machine.begin_capture(0, 0, CaptureMode::Global), Err(unsupported));
    assert_eq!(machine.end_capture(0, 8).unwrap_err(), Code::ILLEGAL_STATE);

    type Attempt<'a> = &'a dyn Fn() -> Result<(), Code>;
    let refused: [(&str, Attempt<'_>, Code); 9] = [
        ("device synchronise", &|| machine.synchronize(0), unsupported),
        ("stream query", &|| machine.stream_query(0, 8).map(|_| ()), unsupported),
        ("stream synchronise", &|| machine.stream_synchronize(0, 8), unsupported),
        ("allocate", &|| machine.allocate(0, 1).map(|_| ()), unsupported),
        ("free", &|| machine.free(0, address), unsupported),
        ("pin", &|| machine.host_allocate(0, 1).map(|_| ()), unsupported),
        ("event query", &|| machine.event_query(0, event).map(|_| ()), unsupported),
        ("event synchronise", &|| machine.event_synchronize(0, event), unsupported),
        (
            "wait on work outside",
            &|| machine.stream_wait(0, 8, event),
            Code::STREAM_CAPTURE_ISOLATION,
        ),
    ];
    for (what, call, code) in refused {
        machine.begin_capture(0, 8, CaptureMode::Global).unwrap();
        assert_eq!(call(), Err(code), "{what}");
        let ended = machine.end_capture(0, 8).unwrap_err();
        assert_eq!(ended, Code::STREAM_CAPTURE_INVALIDATED, "{what}");
    }

    let blocking = machine.stream_create(0, true).unwrap();
    machine.begin_capture(0, blocking, CaptureMode::Relaxed).unwrap();
    assert_eq!(machine.event_record(0, event, 0), Err(Code::STREAM_CAPTURE_IMPLICIT));
    assert_eq!(machine.end_capture(0, blocking).unwrap_err(), Code::STREAM_CAPTURE_INVALIDATED);
    machine.free(0, address).unwrap();
    machine.validate().unwrap();
}

#[test]
fn thread_modes_decide_about_unsafe_calls() {
    let machine = manual();
    let elsewhere = |mode| {
        std::thread::scope(|scope| {
            let call = || {
                exchange_thread_capture_mode(mode);
                machine.allocate(0, 1).map(|_| ())
            };
            scope.spawn(call).join().unwrap()
        })
    };
    let refused = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    for (capture, thread, answer) in [
        (CaptureMode::Global, CaptureMode::Global, refused),
        (CaptureMode::Global, CaptureMode::ThreadLocal, Ok(())),
        (CaptureMode::Global, CaptureMode::Relaxed, Ok(())),
        (CaptureMode::ThreadLocal, CaptureMode::Global, Ok(())),
        (CaptureMode::Relaxed, CaptureMode::Global, Ok(())),
    ] {
        machine.begin_capture(0, 8, capture).unwrap();
        assert_eq!(elsewhere(thread), answer, "{capture:?} {thread:?}");
        assert_eq!(machine.end_capture(0, 8).is_ok(), answer.is_ok());
    }
    machine.begin_capture(0, 8, CaptureMode::ThreadLocal).unwrap();
    assert!(machine.allocate(0, 1).is_err());
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| machine.end_capture(0, 8).unwrap_err()).join().unwrap();
        assert_eq!(ended, Code::STREAM_CAPTURE_WRONG_THREAD);
    });
    assert!(machine.end_capture(0, 8).is_err());
}
