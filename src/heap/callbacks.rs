//! The user's out-of-memory callbacks: called before a request fails, so that they free memory.
//!
//! Several threads may call them at once. What one of them is just about to free, the others do not find. So
//! a thread whose own calls have returned waits for the calls of others that began before then, but not for
//! longer than `attempts` allows.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use super::attempts::wait_until;
use crate::base::DeviceOrdinal;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::sync::thread_local;

/// Called with the device and the bytes wanted; returns true if it has freed anything. It may call
/// the library, and several threads may call it at once. If a request made inside a callback is
/// short of memory, no callback is called for it, because that could go on for ever. While another
/// thread is in one, a request that finds too little waits for that thread, for at most a second.
pub type OutOfMemoryCallback = Arc<dyn Fn(DeviceOrdinal, u64) -> bool + Send + Sync>;

/// Names a registered callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackId(pub u64);

/// The registered callbacks, in the order they are called.
#[derive(Default)]
pub(super) struct Callbacks {
    registered: Lock<Registered, { rank::LEAF }>,
}

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Registered {
    last_id: u64,
    callbacks: Vec<(CallbackId, OutOfMemoryCallback)>,
    /// Threads that call them, by the number of their call.
    calls: Vec<u64>,
    last_call: u64,
}

impl Callbacks {
    pub(super) fn add(&self, callback: OutOfMemoryCallback) -> CallbackId {
        let mut registered = self.registered.lock();
        registered.last_id += 1;
        let id = CallbackId(registered.last_id);
        registered.callbacks.push((id, callback));
        id
    }

    /// Returns true if there was such a callback. A call in progress still finishes.
    pub(super) fn remove(&self, id: CallbackId) -> bool {
        let mut registered = self.registered.lock();
        let position = registered.callbacks.iter().position(|(other, _)| *other == id);
        let removed = position.map(|position| registered.callbacks.remove(position));
        drop(registered);
        removed.is_some()
    }

    pub(super) fn is_any(&self) -> bool {
        !self.registered.lock().callbacks.is_empty()
    }

    /// Calls all of them, and lets those return that other threads have called; returns true if any may
    /// have freed something.
    pub(super) fn ask(&self, device: DeviceOrdinal, wanted_bytes: u64) -> bool {
        assert_none_held();
        let callbacks = self.registered.lock().callbacks.clone();
        if callbacks.is_empty() {
            return false;
        }
        let Some(asking) = Asking::begin(self) else {
            return false;
        };
        let mut freed = false;
        for (_, callback) in callbacks {
            freed |= callback(device, wanted_bytes);
        }
        drop(asking);
        let last = self.registered.lock().last_call;
        let are_others = || self.registered.lock().calls.iter().any(|call| *call <= last);
        let were_others = are_others();
        if were_others {
            wait_until(|| !are_others());
        }
        freed || were_others
    }
}

/// While this value lives, its thread is inside a callback.
struct Asking<'a> {
    callbacks: &'a Callbacks,
    call: u64,
}

impl<'a> Asking<'a> {
    /// Returns `None` if the thread is inside a callback already.
    fn begin(callbacks: &'a Callbacks) -> Option<Self> {
        if IS_ASKING.with(|asking| asking.replace(true)) {
            return None;
        }
        let mut registered = callbacks.registered.lock();
        registered.last_call += 1;
        let call = registered.last_call;
        registered.calls.push(call);
        Some(Self { callbacks, call })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.callbacks.registered.lock().calls.retain(|call| *call != self.call);
        IS_ASKING.with(|asking| asking.set(false));
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Barrier, Mutex};
    use std::thread;
    use std::time::Instant;

    use super::super::attempts::MOST_PATIENCE;
    use super::*;

    const DEVICE: DeviceOrdinal = DeviceOrdinal(0);

    /// How long a call takes that begins beside an earlier one, which ends soon, and a later one, which
    /// ends after it.
    fn time_of_call_between() -> std::time::Duration {
        let callbacks = Callbacks::default();
        let (earlier, ends_earlier) = channel();
        let (later, ends_later) = channel();
        let ends: Mutex<Vec<Receiver<()>>> = Mutex::new(vec![ends_later, ends_earlier]);
        let has_begun = Arc::new(Barrier::new(2));
        callbacks.add({
            let has_begun = Arc::clone(&has_begun);
            Arc::new(move |_, wanted_bytes| {
                // Of the three only the call between does not wait.
                if wanted_bytes > 0 {
                    let end = ends.lock().unwrap().pop().unwrap();
                    has_begun.wait();
                    end.recv().unwrap();
                }
                false
            })
        });
        thread::scope(|scope| {
            scope.spawn(|| callbacks.ask(DEVICE, 1));
            has_begun.wait();
            let between = scope.spawn(|| {
                let begin = Instant::now();
                assert!(callbacks.ask(DEVICE, 0), "another one may have freed something");
                begin.elapsed()
            });
            while callbacks.registered.lock().last_call < 2 {
                thread::yield_now();
            }
            thread::sleep(MOST_PATIENCE / 50);
            scope.spawn(|| callbacks.ask(DEVICE, 1));
            has_begun.wait();
            earlier.send(()).unwrap();
            let time = between.join().unwrap();
            later.send(()).unwrap();
            time
        })
    }

    #[test]
    fn only_earlier_calls_are_waited_for() {
        let is_short = |_| time_of_call_between() < MOST_PATIENCE;
        assert!((0..5).any(is_short), "a machine under load may be slow, but not each time");
    }
}
