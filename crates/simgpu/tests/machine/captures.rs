//! What a capture forbids: every call that is refused, for each mode of the capture and of the
//! calling thread, from the capturing thread and another one, on the same device and another.

use simgpu::{CaptureMode, Code, Config, Machine, StoreKind, exchange_thread_capture_mode};
use std::sync::Arc;

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const CAPTURED: usize = 8;
const OTHER: usize = 9;
const GRANULE: u64 = 2 << 20;
const UNSUPPORTED: Result<(), Code> = Err(Code::STREAM_CAPTURE_UNSUPPORTED);

/// A machine with, on each device, an allocation, a mapping, a handle and a recorded event.
struct Scene {
    machine: Arc<Machine>,
    things: [Things; 2],
}

#[derive(Clone, Copy)]
struct Things {
    allocation: u64,
    mapping: u64,
    handle: u64,
    event: u64,
    pinned: u64,
}

fn scene() -> Scene {
    let config = Config::new(StoreKind::AddressesOnly, 2, 64 << 20);
    let machine = Machine::new(config).unwrap();
    let things = [0, 1].map(|device| {
        let event = machine.event_create(device, true).unwrap();
        machine.event_record(device, event, OTHER).unwrap();
        let mapping = machine.reserve(device, GRANULE, 0).unwrap();
        let handle = machine.create(device, GRANULE).unwrap();
        machine.map(device, mapping, GRANULE, handle).unwrap();
        machine.set_access(device, mapping, GRANULE, &[device]).unwrap();
        let allocation = machine.allocate(device, 512).unwrap();
        let pinned = machine.host_allocate(device, 512).unwrap();
        Things { allocation, mapping, handle, event, pinned }
    });
    Scene { machine, things }
}

/// The result of `call` during a capture on device 0, and true if the capture stays valid.
fn during(
    capture: CaptureMode,
    thread: CaptureMode,
    is_same_thread: bool,
    call: &(dyn Fn(&Scene) -> Result<(), Code> + Sync),
) -> (Result<(), Code>, bool) {
    let scene = scene();
    scene.machine.begin_capture(0, CAPTURED, capture).unwrap();
    let made = || {
        let before = exchange_thread_capture_mode(thread);
        let answer = call(&scene);
        exchange_thread_capture_mode(before);
        answer
    };
    let answer = if is_same_thread {
        made()
    } else {
        std::thread::scope(|scope| scope.spawn(made).join().unwrap())
    };
    let outlives = scene.machine.end_capture(0, CAPTURED).is_ok();
    scene.machine.validate().unwrap();
    (answer, outlives)
}

fn everywhere(mut check: impl FnMut(CaptureMode, CaptureMode, bool)) {
    for capture in MODES {
        for thread in MODES {
            check(capture, thread, false);
            check(capture, thread, true);
        }
    }
}

type Named = (&'static str, fn(&Scene, u32) -> Result<(), Code>);

/// Only a thread in relaxed mode may wait for another stream than it captures itself.
#[test]
fn waits_are_refused_by_device() {
    let calls: [(Named, Code); 5] = [
        (("context", |scene, on| scene.machine.synchronize(on)), Code::STREAM_CAPTURE_UNSUPPORTED),
        (
            ("stream", |scene, on| scene.machine.stream_synchronize(on, OTHER)),
            Code::STREAM_CAPTURE_IMPLICIT,
        ),
        (
            ("legacy stream", |scene, on| scene.machine.stream_synchronize(on, 0)),
            Code::STREAM_CAPTURE_IMPLICIT,
        ),
        (
            ("copy to the host", |scene, on| {
                let Things { pinned, mapping, .. } = scene.things[on as usize];
                scene.machine.copy_to_host(on, pinned, mapping, 8)
            }),
            Code::STREAM_CAPTURE_IMPLICIT,
        ),
        (
            ("within a call", |scene, on| scene.machine.wait_within_call(on, OTHER)),
            Code::STREAM_CAPTURE_IMPLICIT,
        ),
    ];
    for ((name, call), code) in calls {
        everywhere(|capture, thread, is_same_thread| {
            let here = during(capture, thread, is_same_thread, &|scene| call(scene, 0));
            let is_allowed = is_same_thread
                && thread == CaptureMode::Relaxed
                && code == Code::STREAM_CAPTURE_IMPLICIT;
            let expected = if is_allowed { (Ok(()), true) } else { (Err(code), false) };
            assert_eq!(here, expected, "{name} {capture:?} {thread:?}");
            let there = during(capture, thread, is_same_thread, &|scene| call(scene, 1));
            assert_eq!(there, (Ok(()), true), "{name} {capture:?} {thread:?} on another GPU");
        });
    }
}

#[test]
fn unsafe_calls_are_refused_by_the_modes() {
    let calls: [Named; 9] = [
        ("allocate", |scene, on| scene.machine.allocate(on, 512).map(|_| ())),
        ("unmap", |scene, on| scene.machine.unmap(on, scene.things[on as usize].mapping, GRANULE)),
        ("release", |scene, on| scene.machine.release(on, scene.things[on as usize].handle)),
        ("event query", |scene, on| {
            scene.machine.event_query(on, scene.things[on as usize].event).map(|_| ())
        }),
        ("event wait", |scene, on| {
            scene.machine.event_synchronize(on, scene.things[on as usize].event)
        }),
        ("stream query", |scene, on| {
            let stream = scene.machine.stream_create(on, false)?;
            scene.machine.stream_query(on, stream).map(|_| ())
        }),
        ("pin", |scene, on| scene.machine.host_allocate(on, 512).map(|_| ())),
        ("unpin", |scene, on| scene.machine.host_free(on, scene.things[on as usize].pinned)),
        ("free", |scene, on| scene.machine.free(on, scene.things[on as usize].allocation)),
    ];
    for (name, call) in calls {
        everywhere(|capture, thread, is_same_thread| {
            let is_refused = match thread {
                CaptureMode::Relaxed => false,
                CaptureMode::ThreadLocal => is_same_thread && capture != CaptureMode::Relaxed,
                CaptureMode::Global => {
                    capture == CaptureMode::Global
                        || (is_same_thread && capture != CaptureMode::Relaxed)
                }
            };
            for on in [0, 1] {
                let answer = during(capture, thread, is_same_thread, &|scene| call(scene, on));
                // Freeing waits, so it is refused on the device that captures in any case.
                let is_refused = is_refused || (name == "free" && on == 0);
                let expected = if is_refused { (UNSUPPORTED, false) } else { (Ok(()), true) };
                let place = if is_same_thread { "same thread" } else { "another thread" };
                assert_eq!(answer, expected, "{name} on {on}: {capture:?} {thread:?}, {place}");
            }
        });
    }
}

#[test]
fn growth_is_never_refused() {
    everywhere(|capture, thread, is_same_thread| {
        let answer = during(capture, thread, is_same_thread, &|scene| {
            let machine = &scene.machine;
            let base = machine.reserve(0, GRANULE, 0)?;
            let handle = machine.create(0, GRANULE)?;
            machine.map(0, base, GRANULE, handle)?;
            machine.set_access(0, base, GRANULE, &[0])?;
            let stream = machine.stream_create(0, false)?;
            machine.stream_id(0, stream)?;
            machine.event_record(0, machine.event_create(0, false)?, stream)
        });
        assert_eq!(answer, (Ok(()), true), "{capture:?} {thread:?}");
    });
}

#[test]
fn a_captured_event_cannot_be_asked_about() {
    for waits in [false, true] {
        let answer = during(CaptureMode::Relaxed, CaptureMode::Relaxed, true, &|scene| {
            let event = scene.machine.event_create(0, false)?;
            scene.machine.event_record(0, event, CAPTURED)?;
            if waits {
                return scene.machine.event_synchronize(1, event);
            }
            scene.machine.event_query(1, event).map(|_| ())
        });
        assert_eq!(answer, (Err(Code::CAPTURED_EVENT), false));
    }
}

#[test]
fn the_legacy_stream_is_out_of_bounds_while_a_blocking_stream_captures() {
    let machine = scene().machine;
    let blocking = machine.stream_create(0, true).unwrap();
    let event = machine.event_create(0, false).unwrap();
    let calls: [&dyn Fn() -> Result<(), Code>; 4] = [
        &|| machine.stream_query(0, 0).map(|_| ()),
        &|| machine.event_record(0, event, 0),
        &|| machine.stream_synchronize(0, 0),
        &|| machine.delay(0, 0, 1),
    ];
    for call in calls {
        for thread in MODES {
            machine.begin_capture(0, blocking, CaptureMode::Relaxed).unwrap();
            let before = exchange_thread_capture_mode(thread);
            assert_eq!(call(), Err(Code::STREAM_CAPTURE_IMPLICIT), "{thread:?}");
            exchange_thread_capture_mode(before);
            assert!(machine.end_capture(0, blocking).is_err());
        }
        machine.begin_capture(0, CAPTURED, CaptureMode::Relaxed).unwrap();
        machine.event_record(0, event, CAPTURED).unwrap();
        assert_eq!(machine.stream_wait(0, 0, event), Err(Code::STREAM_CAPTURE_IMPLICIT));
        assert!(machine.end_capture(0, CAPTURED).is_err());
    }
    let further = machine.context_create(0).unwrap();
    machine.begin_capture(0, blocking, CaptureMode::Relaxed).unwrap();
    machine.delay(further, 0, 1).unwrap();
    machine.end_capture(0, blocking).unwrap();
}

#[test]
fn a_capture_is_on_every_device_it_has_reached_and_ends_with_its_origin() {
    let machine = scene().machine;
    let event = machine.event_create(0, false).unwrap();
    machine.begin_capture(0, CAPTURED, CaptureMode::Relaxed).unwrap();
    machine.event_record(0, event, CAPTURED).unwrap();
    machine.stream_wait(1, OTHER, event).unwrap();
    assert!(machine.has_captures(0) && machine.has_captures(1));
    assert_eq!(machine.synchronize(1), UNSUPPORTED);
    assert_eq!(machine.delay(1, OTHER, 1), Ok(()), "a tool, not a call");
    let kernel = machine.touch(1, OTHER, simgpu::Work::read(0, 0, "kernel"));
    assert_eq!(kernel, Err(Code::STREAM_CAPTURE_INVALIDATED), "it takes nothing more");
    assert_eq!(machine.event_record(0, event, CAPTURED), kernel);
    machine.stream_destroy(0, CAPTURED).unwrap();
    assert!(!machine.has_captures(0) && !machine.has_captures(1));
    machine.synchronize(1).unwrap();
}

#[test]
fn captures_do_not_merge() {
    let machine = scene().machine;
    let event = machine.event_create(0, false).unwrap();
    for stream in [CAPTURED, OTHER] {
        machine.begin_capture(0, stream, CaptureMode::Relaxed).unwrap();
    }
    machine.event_record(0, event, CAPTURED).unwrap();
    assert_eq!(machine.stream_wait(0, OTHER, event), Err(Code::STREAM_CAPTURE_MERGE));
    for stream in [CAPTURED, OTHER] {
        assert!(machine.end_capture(0, stream).is_err());
    }
}
