//! Fences and pending frees over a simulated device whose streams stand still.

use std::sync::Arc;

use simgpu::{Call, CaptureMode, Config, Machine, Progress, StoreKind, Target, Times};

use super::{
    Contexts, EventCache, Fence, OWN_CONTEXT, PendingFrees, Readiness, Recorded, Stream, StreamKey,
};
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::driver::simulated::SimulatedDevice;
use crate::driver::{self, Code};

const A: StreamHandle = StreamHandle(0xA000);
const B: StreamHandle = StreamHandle(0xB000);
const UNKNOWN: simgpu::Code = simgpu::Code(12345);

/// A stream of the device's own context.
fn recorded(stream: StreamHandle) -> Recorded {
    Recorded { stream: Stream::lasting(stream), context: OWN_CONTEXT }
}

/// A machine, and the contexts of its device.
fn house() -> (Arc<Machine>, Contexts) {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
    config.progress = Progress::Manual;
    let machine = Machine::new(config).unwrap();
    let driver = SimulatedDevice::new(Arc::clone(&machine), 0);
    (machine, Contexts::new(Arc::new(driver)))
}

fn machine() -> (Arc<Machine>, Arc<EventCache>) {
    let (machine, contexts) = house();
    (machine, Arc::clone(contexts.own()))
}

fn queries(machine: &Machine) -> u64 {
    machine.usage(0).unwrap().count(Call::EventQuery)
}

/// Ends the epoch with an event on a lane's stream.
fn renew(fence: &mut Fence, events: &EventCache) -> driver::Result<()> {
    let covered = fence.end_epoch();
    fence.renew(events, events.record(A)?, covered);
    Ok(())
}

/// Makes the block in `slot`, freed in the first epoch, wait for the work on `stream`.
fn wait(pending: &mut PendingFrees, contexts: &Contexts, slot: u32, stream: StreamHandle) {
    let mut recording = pending.begin_recording(contexts, recorded(stream));
    let answer = recording.record(contexts.own());
    pending.end_recording(contexts.own(), recording, answer, (slot, 1));
}

/// Enqueues work on `stream`, so that an event recorded after it is not complete.
fn work(machine: &Machine, stream: StreamHandle) {
    machine.delay(0, stream.0, 1).unwrap();
}

/// Events that are not idle in the cache.
fn in_use(machine: &Machine, events: &EventCache) -> usize {
    machine.census().events - events.idle_count()
}

#[test]
fn a_new_lane_finds_events_and_more_are_made_at_once() {
    let (machine, events) = machine();
    events.stock_up();
    let stocked = machine.census().events;
    assert_eq!((stocked, events.idle_count()), (16, 16));
    events.stock_up();
    assert_eq!(machine.census().events, stocked, "they are still idle");
    let created = || machine.usage(0).unwrap().count(Call::EventCreate);
    let before = created();
    for _ in 0..stocked {
        events.record(A).unwrap();
    }
    assert_eq!(created(), before, "none was needed");
    events.record(A).unwrap();
    assert_eq!((machine.census().events, events.idle_count()), (32, 15));
    // What cannot be made ahead is no error.
    for _ in 0..15 {
        events.record(A).unwrap();
    }
    machine.faults().fail(Target::call(Call::EventCreate), 2, Times::Forever, UNKNOWN);
    events.record(A).unwrap();
    assert_eq!((machine.census().events, events.idle_count()), (33, 0));
    assert!(events.record(A).is_err());
    events.stock_up();
}

#[test]
fn an_event_covers_the_epochs_before_it() {
    let (machine, events) = machine();
    let mut fence = Fence::new();
    let first = fence.epoch();
    assert_eq!(fence.readiness(first), Readiness::NotYet);
    renew(&mut fence, &events).unwrap();
    let second = fence.epoch();
    assert!(second > first);
    assert!(matches!(fence.readiness(first), Readiness::After(_)));
    assert_eq!(fence.readiness(second), Readiness::NotYet);
    renew(&mut fence, &events).unwrap();
    assert_eq!(fence.readiness(first), fence.readiness(second));
    assert!(matches!(fence.readiness(second), Readiness::After(_)));
    // The event that was replaced serves again.
    for _ in 0..10 {
        renew(&mut fence, &events).unwrap();
    }
    assert_eq!(in_use(&machine, &events), 1);
    fence.reset(&events);
    assert_eq!(in_use(&machine, &events), 0);
    assert_eq!(fence.readiness(fence.epoch()), Readiness::NotYet);
}

#[test]
fn an_event_that_is_to_be_waited_for_stays_what_it_is() {
    let (machine, events) = machine();
    let mut fence = Fence::new();
    let first = fence.epoch();
    renew(&mut fence, &events).unwrap();
    let Readiness::After(event) = fence.readiness(first) else { panic!("no event") };
    fence.pin(event);
    fence.pin(event);
    (0..3).for_each(|_| renew(&mut fence, &events).unwrap());
    assert_eq!(in_use(&machine, &events), 2, "the pinned one is not recorded again");
    fence.unpin(&events, event);
    renew(&mut fence, &events).unwrap();
    assert_eq!(in_use(&machine, &events), 2, "nor while another stream is about to wait for it");
    fence.unpin(&events, event);
    let free = (0..2).map(|_| events.record(A).unwrap());
    assert!(free.collect::<Vec<_>>().contains(&event), "and then it serves again");
    // A fence that took longer than the next one is dropped.
    let (early, late) = (fence.end_epoch(), fence.end_epoch());
    fence.renew(&events, events.record(A).unwrap(), late);
    let newest = fence.readiness(late);
    fence.renew(&events, events.record(A).unwrap(), early);
    assert_eq!((fence.readiness(early), fence.readiness(late)), (newest, newest));
}

#[test]
fn events_are_in_demand_while_streams_wait_for_them() {
    let (_, events) = machine();
    let mut fence = Fence::new();
    let first = fence.epoch();
    renew(&mut fence, &events).unwrap();
    assert!(!fence.is_in_demand(), "nobody has waited for one yet");
    let Readiness::After(event) = fence.readiness(first) else { panic!("no event") };
    fence.pin(event);
    fence.unpin(&events, event);
    let mut count = 0;
    while fence.is_in_demand() {
        renew(&mut fence, &events).unwrap();
        count += 1;
    }
    assert_eq!(count, 64);
}

#[test]
fn idleness_covers_what_was_freed_before_it() {
    let (_, events) = machine();
    let mut fence = Fence::new();
    let before = fence.epoch();
    let ended = fence.end_epoch();
    let during = fence.epoch();
    assert_eq!(ended, before);
    assert_eq!(fence.readiness(before), Readiness::NotYet, "not before it has come to that");
    fence.was_idle(ended);
    assert_eq!(fence.readiness(before), Readiness::Ready);
    assert_eq!(fence.readiness(during), Readiness::NotYet, "freed while waiting");
    renew(&mut fence, &events).unwrap();
    assert_eq!(fence.readiness(before), Readiness::Ready);
    assert!(matches!(fence.readiness(during), Readiness::After(_)));
    fence.was_idle(0);
    assert_eq!(fence.readiness(before), Readiness::Ready, "older news changes nothing");
}

#[test]
fn a_fence_that_cannot_be_had_changes_nothing() {
    let (machine, events) = machine();
    let mut fence = Fence::new();
    machine.begin_capture(0, A.0, CaptureMode::Global).unwrap();
    let refused = renew(&mut fence, &events).unwrap_err();
    assert_eq!(refused.code, Code::STREAM_CAPTURE_UNSUPPORTED);
    machine.end_capture(0, A.0).expect("the capture is still valid");
    let (machine, events) = self::machine();
    let mut fence = Fence::new();
    for call in [Call::EventCreate, Call::StreamIsCapturing, Call::EventRecord] {
        machine.faults().fail(Target::call(call), 1, Times::Once, UNKNOWN);
        assert_eq!(renew(&mut fence, &events).unwrap_err().code, Code(12345), "{call:?}");
        assert_eq!(fence.readiness(fence.epoch()), Readiness::NotYet);
    }
    renew(&mut fence, &events).unwrap();
    assert_eq!(in_use(&machine, &events), 1, "the event of the failed recording serves again");
}

#[test]
fn a_stream_is_polled_no_further_than_it_has_come() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    assert!(pending.is_empty() && !pending.has_events());
    for slot in 0..5 {
        work(&machine, A);
        wait(&mut pending, &contexts, slot, A);
    }
    let poll = |pending: &mut PendingFrees| {
        let mut out = Vec::new();
        pending.poll(contexts.own(), 1, |slot| out.push(slot));
        out
    };
    assert_eq!(pending.events(), 5);
    assert!(poll(&mut pending).is_empty());
    assert_eq!(queries(&machine), 1);
    machine.advance(0, A.0, 4).unwrap(); // work and event of the first two
    assert_eq!(poll(&mut pending), [0, 1]);
    assert_eq!(queries(&machine), 5, "both, the newest, and the third");
    assert_eq!(pending.events(), 3);
    machine.run_to_idle(0, A.0).unwrap();
    assert_eq!(poll(&mut pending), [2, 3, 4]);
    assert!(pending.is_empty());
    assert!(poll(&mut pending).is_empty());
    let created = machine.census().events;
    for slot in 0..5 {
        wait(&mut pending, &contexts, slot, A);
    }
    assert_eq!(machine.census().events, created, "all came back");
    machine.run_to_idle(0, A.0).unwrap();
    assert_eq!(poll(&mut pending).len(), 5);
    work(&machine, A);
    wait(&mut pending, &contexts, 0, A);
    let before = queries(&machine);
    assert!(poll(&mut pending).is_empty());
    assert_eq!(queries(&machine), before + 1, "an only event is the oldest and the newest");
}

#[test]
fn events_come_back_to_the_lane_that_needs_them() {
    const COUNT: u32 = 1000;
    let (machine, contexts) = house();
    let mut lanes = [PendingFrees::default(), PendingFrees::default()];
    let mut kept = 0;
    for round in 0..10 {
        let pending = &mut lanes[round % 2];
        for slot in 0..COUNT {
            wait(pending, &contexts, slot, A);
        }
        machine.run_to_idle(0, A.0).unwrap();
        pending.poll(contexts.own(), 1, |_| {});
        assert!(pending.is_empty());
        kept = kept.max(in_use(&machine, contexts.own()));
    }
    assert!(kept < 100, "{kept} events lie where no lane finds them");
    // One that could not be recorded is not lost either.
    let created = machine.usage(0).unwrap().count(Call::EventCreate);
    for _ in 0..100 {
        machine.faults().fail(Target::call(Call::EventRecord), 1, Times::Once, UNKNOWN);
        wait(&mut lanes[0], &contexts, 0, A);
        assert!(lanes[0].waits_for_idle(0));
    }
    assert_eq!(machine.usage(0).unwrap().count(Call::EventCreate), created);
}

/// The events of two threads may be recorded in the other order than they are queued in.
#[test]
fn of_events_recorded_at_a_time_none_stands_for_another() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    let mut out = Vec::new();
    // So that the stream had completed everything at the last poll, and the newest is queried.
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    wait(&mut pending, &contexts, 0, A);
    machine.run_to_idle(0, A.0).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    let mut first = pending.begin_recording(&contexts, recorded(A));
    let mut second = pending.begin_recording(&contexts, recorded(A));
    let early = first.record(contexts.own());
    work(&machine, A);
    let late = second.record(contexts.own());
    pending.end_recording(contexts.own(), second, late, (2, 1));
    pending.end_recording(contexts.own(), first, early, (1, 1));
    machine.advance(0, A.0, 1).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [0], "the early one is complete, and behind the late one");
    machine.run_to_idle(0, A.0).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [0, 2, 1]);
    assert!(!pending.is_recording(Stream::lasting(A).key));
    let before = queries(&machine);
    for slot in 3..6 {
        wait(&mut pending, &contexts, slot, A);
    }
    machine.run_to_idle(0, A.0).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out[3..], [3, 4, 5]);
    assert_eq!(queries(&machine), before + 1, "of later ones the newest does again");
}

#[test]
fn a_block_comes_out_once_for_each_of_its_streams() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    for stream in [A, B] {
        work(&machine, stream);
        wait(&mut pending, &contexts, 7, stream);
    }
    let mut out = Vec::new();
    machine.run_to_idle(0, B.0).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [7]);
    assert!(pending.has_events());
    machine.run_to_idle(0, A.0).unwrap();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [7, 7]);
}

#[test]
fn what_no_event_tells_waits_for_an_idle_device() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    pending.wait_for_idle(1, 3);
    pending.wait_for_idle(2, 5);
    assert_eq!(pending.waiting_for_idle().collect::<Vec<_>>(), [1, 2]);
    assert!(pending.waits_for_idle(2) && !pending.waits_for_idle(3));
    work(&machine, A);
    wait(&mut pending, &contexts, 3, A);
    machine.faults().fail(Target::call(Call::EventQuery), 1, Times::Once, UNKNOWN);
    let mut out = Vec::new();
    pending.poll(contexts.own(), 4, |slot| out.push(slot));
    assert!(out.is_empty(), "the query failed: not before the device is idle");
    assert!(!pending.has_events() && !pending.is_empty());
    pending.device_was_idle(3, |slot| out.push(slot));
    assert_eq!(out, [1]);
    pending.device_was_idle(4, |slot| out.push(slot));
    assert_eq!(out, [1, 3]);
    pending.device_was_idle(9, |slot| out.push(slot));
    assert_eq!(out, [1, 3, 2]);
    assert!(pending.is_empty());
}

#[test]
fn many_streams_come_and_go() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    let mut out = 0;
    for n in 0..1000 {
        let stream = StreamHandle(0x10_0000 + n);
        work(&machine, stream);
        wait(&mut pending, &contexts, n as u32, stream);
        if n % 3 == 0 {
            machine.run_device_to_idle(0).unwrap();
            pending.poll(contexts.own(), 1, |_| out += 1);
        }
    }
    assert_eq!(out, 1000);
    assert!(pending.is_empty());
    assert!(pending.queue_count() < 40, "{} queues", pending.queue_count());
}

#[test]
fn a_stream_that_comes_after_one_of_its_name_has_a_queue_of_its_own() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    for (slot, stream) in [(0, A), (1, B)] {
        work(&machine, stream);
        wait(&mut pending, &contexts, slot, stream);
    }
    pending.end_stream(Stream::lasting(A).key, StreamKey::of_ended(0));
    for (slot, stream) in [(2, B), (3, A)] {
        wait(&mut pending, &contexts, slot, stream);
    }
    assert_eq!(pending.queue_count(), 3);
    machine.run_device_to_idle(0).unwrap();
    let mut out = Vec::new();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [0, 1, 2, 3]);
}

#[test]
fn a_queue_stays_while_an_event_is_recorded() {
    let (machine, contexts) = house();
    let mut pending = PendingFrees::default();
    let mut recording = pending.begin_recording(&contexts, recorded(A));
    for n in 0..100 {
        wait(&mut pending, &contexts, n, StreamHandle(0x10_0000 + n as usize));
        machine.run_device_to_idle(0).unwrap();
        pending.poll(contexts.own(), 1, |_| {});
    }
    let answer = recording.record(contexts.own());
    pending.end_recording(contexts.own(), recording, answer, (100, 1));
    machine.run_device_to_idle(0).unwrap();
    let mut out = Vec::new();
    pending.poll(contexts.own(), 1, |slot| out.push(slot));
    assert_eq!(out, [100]);
}

#[test]
fn a_fence_is_asked_whether_it_is_complete() {
    let (machine, events) = machine();
    let mut fence = Fence::new();
    let first = fence.epoch();
    work(&machine, A);
    renew(&mut fence, &events).unwrap();
    fence.poll(&events);
    assert!(fence.has_event() && !fence.is_idle(first));
    machine.run_to_idle(0, A.0).unwrap();
    fence.poll(&events);
    assert!(!fence.has_event() && fence.is_idle(first) && !fence.is_idle(fence.epoch()));
    assert_eq!(in_use(&machine, &events), 0, "it serves again");
}

#[test]
fn a_stream_on_which_an_event_is_recorded_is_known() {
    let (_, contexts) = house();
    let mut pending = PendingFrees::default();
    let [a, b] = [A, B].map(|stream| Stream::lasting(stream).key);
    assert!(!pending.is_recording(a));
    let mut recording = pending.begin_recording(&contexts, recorded(A));
    assert!(pending.is_recording(a) && !pending.is_recording(b));
    let answer = recording.record(contexts.own());
    pending.end_recording(contexts.own(), recording, answer, (1, 1));
    assert!(!pending.is_recording(a));
}

#[test]
fn all_work_of_the_context_is_waited_for() {
    let (machine, contexts) = house();
    work(&machine, A);
    work(&machine, B);
    contexts.synchronize(&[]).unwrap();
    assert_eq!([A, B].map(|stream| machine.pending(0, stream.0).unwrap()), [0, 0]);
    machine.faults().fail(Target::call(Call::Synchronize), 1, Times::Once, UNKNOWN);
    assert!(contexts.synchronize(&[]).is_err());
}

#[test]
fn contexts_have_numbers_that_stay() {
    let mut config = Config::new(StoreKind::AddressesOnly, 3, 1 << 30);
    config.progress = Progress::Manual;
    let machine = Machine::new(config).unwrap();
    let device = |ordinal| Arc::new(SimulatedDevice::new(Arc::clone(&machine), ordinal));
    let contexts = Contexts::new(device(0));
    assert!(contexts.others().is_empty());
    for (ordinal, number) in [(2, 1), (1, 2), (2, 1), (1, 2)] {
        assert_eq!(contexts.find_or_add(device(ordinal)).unwrap(), number);
    }
    let others = contexts.others();
    let ordinals = others.iter().map(|events| events.driver().ordinal());
    assert_eq!(ordinals.collect::<Vec<_>>(), [2, 1].map(DeviceOrdinal));
    machine.delay(1, B.0, 1).unwrap();
    Contexts::synchronize_others(&others).unwrap();
    assert_eq!(machine.pending(1, B.0).unwrap(), 0);
    for (code, is_error) in [(simgpu::Code::CONTEXT_IS_DESTROYED, false), (UNKNOWN, true)] {
        machine.faults().fail(Target::call(Call::Synchronize), 1, Times::Once, code);
        assert_eq!(Contexts::synchronize_others(&others).is_err(), is_error, "{code:?}");
    }
}
