//! The user's out-of-memory callbacks: called before a request fails, so that they free memory.
//!
//! Several threads may call them at once. What one of them is just about to free, the others do not find: so
//! a thread waits for the callbacks of others to end (`attempts`).

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::attempts::wait_until;
use crate::base::DeviceOrdinal;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::sync::atomic::{AtomicU32, Ordering::SeqCst};
use crate::base::sync::thread_local;

/// Called with the device and the bytes wanted; returns true if it has freed anything. It may call
/// the library, and several threads may call it at once. If a request made inside a callback is
/// short of memory, no callback is called for it, because that could go on for ever. A request that is
/// short of memory waits until the callbacks of other threads have returned, for at most 200 ms.
pub type OutOfMemoryCallback = Arc<dyn Fn(DeviceOrdinal, u64) -> bool + Send + Sync>;

/// Names a registered callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackId(pub u64);

/// The registered callbacks, in the order they are called.
#[derive(Default)]
pub(super) struct Callbacks {
    registered: Lock<Registered, { rank::LEAF }>,
    /// How many threads are calling them.
    callers: AtomicU32,
}

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Registered {
    last_id: u64,
    callbacks: Vec<(CallbackId, OutOfMemoryCallback)>,
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

    /// Calls all of them, and lets those that other threads have called end; returns true if any may have
    /// freed something.
    pub(super) fn ask(&self, device: DeviceOrdinal, wanted_bytes: u64) -> bool {
        assert_none_held();
        let callbacks = self.registered.lock().callbacks.clone();
        if callbacks.is_empty() {
            return false;
        }
        let Some(asking) = Asking::begin(&self.callers) else {
            return false;
        };
        let mut freed = false;
        for (_, callback) in callbacks {
            freed |= callback(device, wanted_bytes);
        }
        drop(asking);
        let are_others = self.callers.load(SeqCst) > 0;
        if are_others {
            wait_until(Instant::now(), || self.callers.load(SeqCst) == 0);
        }
        freed || are_others
    }
}

/// While this value lives, its thread is inside a callback.
struct Asking<'a>(&'a AtomicU32);

impl<'a> Asking<'a> {
    /// Returns `None` if the thread is inside a callback already.
    fn begin(callers: &'a AtomicU32) -> Option<Self> {
        if IS_ASKING.with(|asking| asking.replace(true)) {
            return None;
        }
        callers.fetch_add(1, SeqCst);
        Some(Self(callers))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
        IS_ASKING.with(|asking| asking.set(false));
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Callbacks").finish_non_exhaustive()
    }
}
