//! What debugging keeps for one heap: the modes, the ledger, and a quarantine for each device.

use std::collections::VecDeque;

use super::history::{Death, Ledger};
use crate::base::lock::{Lock, rank};
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::config::{DebugModes, Settings};
use crate::memory::Slot;
use crate::observe::EventStream;

/// What debugging keeps for one heap.
#[derive(Debug)]
pub(super) struct Debugging {
    pub(super) modes: Lock<DebugModes, { rank::LEAF }>,
    pub(super) ledger: Lock<Ledger, { rank::LEAF }>,
    /// By device.
    pub(super) quarantines: Vec<Lock<Quarantine, { rank::LEAF }>>,
    pub(super) quarantine_limit_bytes: AtomicU64,
}

impl Debugging {
    /// Debugging as in `settings`, for `device_count` devices. If any mode is on, call sites are
    /// looked up from now on.
    pub(super) fn new(settings: &Settings, device_count: usize, events: &EventStream) -> Self {
        let debugging = Self {
            modes: Lock::new(DebugModes::OFF),
            ledger: Lock::default(),
            quarantines: (0..device_count).map(|_| Lock::default()).collect(),
            quarantine_limit_bytes: AtomicU64::new(0),
        };
        debugging.set(settings, events);
        debugging
    }

    /// The modes that are on now.
    pub(super) fn modes(&self) -> DebugModes {
        *self.modes.lock()
    }

    pub(super) fn set(&self, settings: &Settings, events: &EventStream) {
        self.quarantine_limit_bytes.store(settings.quarantine_size_bytes, Relaxed);
        let before = std::mem::replace(&mut *self.modes.lock(), settings.debug);
        match (before.is_any(), settings.debug.is_any()) {
            (false, true) => events.seek_sites(),
            (true, false) => events.stop_seeking_sites(),
            _ => {}
        }
    }
}

/// A block that is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) lane: u32,
    pub(super) slot: Slot,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) death: Death,
    /// Whether all of it was filled with the pattern of freed memory.
    pub(super) is_poisoned: bool,
}

/// The blocks of one device that are held back.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    pub(super) queue: VecDeque<Held>,
    pub(super) bytes: u64,
}

impl Quarantine {
    pub(super) fn push(&mut self, held: Held) {
        self.bytes += held.bytes;
        self.queue.push_back(held);
    }

    /// Removes and returns the oldest, until at most `kept_bytes` are left.
    pub(super) fn pop_down_to(&mut self, kept_bytes: u64) -> Vec<Held> {
        let mut out = Vec::new();
        while self.bytes > kept_bytes
            && let Some(held) = self.queue.pop_front()
        {
            self.bytes -= held.bytes;
            out.push(held);
        }
        out
    }
}
