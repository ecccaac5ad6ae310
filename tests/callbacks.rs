//! A callback may call the library, on its own thread or from another one, at any time: also while
//! a device is being opened.
//!
//! A library that waits for itself waits for ever, so each case runs in a thread of its own and
//! fails after a time limit.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Status};
use genesis::config::{LogLevel, PoolType};
use simgpu::{Call, StoreKind, Target, Times};

use support::{A, B, DEVICE, Plan, Rig, Subject, status_of};

const PATIENCE: Duration = Duration::from_secs(20);
const SUBJECT: Subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);

/// Runs `body` in a thread of its own, and fails if it does not come to an end.
#[track_caller]
fn comes_to_an_end(body: impl FnOnce() + Send + 'static) {
    let (ended, has_ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        body();
        drop(ended);
    });
    let waited = has_ended.recv_timeout(PATIENCE);
    assert_eq!(waited, Err(mpsc::RecvTimeoutError::Disconnected), "it waits for itself");
    thread.join().unwrap();
}

/// Has each message make `call`; returns how many there were.
fn call_at_each_message(
    rig: &Rig,
    level: LogLevel,
    call: impl Fn(&Rig) + Send + Sync + 'static,
) -> Arc<AtomicU64> {
    let messages = Arc::new(AtomicU64::new(0));
    let (count, own) = (Arc::clone(&messages), rig.clone());
    rig.heap.log().set_level(level);
    rig.heap.log().set_sink(Some(Arc::new(move |_, _| {
        count.fetch_add(1, Relaxed);
        call(&own);
    })));
    messages
}

/// A device of which there is something to say when it is made ready.
fn without_virtual_memory() -> Plan {
    let mut plan = SUBJECT.plan();
    plan.machine.devices[0].virtual_memory = false;
    plan
}

#[test]
fn the_log_of_a_device_that_is_made_ready() {
    comes_to_an_end(|| {
        let rig = without_virtual_memory().start();
        let messages = call_at_each_message(&rig, LogLevel::Warn, |rig| {
            let block = rig.allocate(MIB, B);
            assert!(rig.statistics().reserved_bytes.current >= MIB);
            rig.free(block);
        });
        let block = rig.allocate(MIB, A);
        assert_eq!(messages.load(Relaxed), 1);
        rig.free(block);
        rig.finish();
    });
}

#[test]
fn the_log_that_waits_for_another_thread() {
    comes_to_an_end(|| {
        let rig = without_virtual_memory().start();
        let messages = call_at_each_message(&rig, LogLevel::Warn, |rig| {
            let rig = rig.clone();
            std::thread::spawn(move || rig.free(rig.allocate(MIB, B))).join().unwrap();
        });
        rig.free(rig.allocate(MIB, A));
        assert_eq!(messages.load(Relaxed), 1);
        rig.finish();
    });
}

#[test]
fn the_log_of_a_device_that_cannot_be_made_ready() {
    comes_to_an_end(|| {
        let rig = SUBJECT.plan().devices(2, 64 * MIB).start();
        let target = Target::call(Call::MemoryInfo);
        rig.machine.faults().fail(target, 1, Times::Once, simgpu::Code(12345));
        let messages = call_at_each_message(&rig, LogLevel::Error, |rig| {
            // The other device, and this one again: it opens this time.
            rig.heap.statistics(DeviceOrdinal(1)).unwrap();
            rig.heap.statistics(DEVICE).unwrap();
        });
        assert_eq!(status_of(rig.heap.statistics(DEVICE)), Status::DriverFailed);
        assert_eq!(messages.load(Relaxed), 1);
        rig.finish();
    });
}

#[test]
fn the_callback_for_memory_that_is_short() {
    comes_to_an_end(|| {
        let rig = SUBJECT.plan().devices(2, 64 * MIB).start();
        let own = rig.clone();
        let id = rig.heap.add_out_of_memory_callback(Arc::new(move |device, _| {
            // A device that nobody has used, one's own, and the same from another thread.
            own.heap.empty_cache(DeviceOrdinal(1)).unwrap();
            own.heap.statistics(device).unwrap();
            let other = own.clone();
            std::thread::spawn(move || other.free(other.allocate(MIB, B))).join().unwrap();
            own.heap.remove_out_of_memory_callback(genesis::heap::CallbackId(1));
            false
        }));
        assert_eq!(id, genesis::heap::CallbackId(1));
        assert_eq!(rig.refusal(65 * MIB, A), Status::OutOfMemory);
        rig.finish();
    });
}
