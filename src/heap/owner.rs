//! Whom a lane belongs to: a stream and a pool.

use super::captures::Captures;
use super::pools::PoolNumber;
use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::config::Settings;
use crate::order::{Contexts, StreamKey, StreamName};

/// The stream and the pool that a lane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneKey {
    /// The stream in whose order the blocks are used.
    pub(super) stream: StreamKey,
    /// The pool the memory belongs to.
    pub(super) pool: PoolNumber,
}

/// A lane's key, and what is known of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: LaneKey,
    /// The stream's name.
    pub(super) name: StreamName,
    /// The context that the stream belongs to, among those of the device.
    pub(super) context: u16,
    /// Whether the stream lasts as long as the process.
    pub(super) lasts: bool,
}

/// Whom a lane belongs to now. It changes only when its stream ends, or when the lane holds no block
/// and is reassigned.
#[derive(Debug)]
pub(super) struct Ownership {
    stream: AtomicU64,
    pool: AtomicU32,
    /// Whether the stream or the pool has ended.
    is_left: AtomicBool,
    /// Whether the stream lasts as long as the process.
    lasts: AtomicBool,
    /// The stream's name, for display.
    name: AtomicU64,
}

impl Ownership {
    pub(super) fn new(owner: &Owner) -> Self {
        let Owner { key, name, lasts, .. } = *owner;
        Self {
            stream: AtomicU64::new(key.stream.0),
            pool: AtomicU32::new(key.pool.0),
            is_left: AtomicBool::new(false),
            lasts: AtomicBool::new(lasts),
            name: AtomicU64::new(name.0),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> LaneKey {
        LaneKey { stream: self.stream(), pool: self.pool() }
    }

    #[inline]
    pub(super) fn stream(&self) -> StreamKey {
        StreamKey(self.stream.load(Relaxed))
    }

    #[inline]
    pub(super) fn pool(&self) -> PoolNumber {
        PoolNumber(self.pool.load(Relaxed))
    }

    pub(super) fn name(&self) -> StreamName {
        StreamName(self.name.load(Relaxed))
    }

    /// From now on the lane is that of `owner`.
    pub(super) fn set(&self, owner: &Owner) {
        self.stream.store(owner.key.stream.0, Relaxed);
        self.pool.store(owner.key.pool.0, Relaxed);
        self.is_left.store(false, Relaxed);
        self.lasts.store(owner.lasts, Relaxed);
        self.name.store(owner.name.0, Relaxed);
    }

    pub(super) fn rename_stream(&self, key: StreamKey) {
        self.stream.store(key.0, Relaxed);
    }

    /// The stream or the pool has ended; returns true if neither had.
    pub(super) fn leave(&self) -> bool {
        !self.is_left.swap(true, Relaxed)
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Relaxed)
    }

    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Relaxed)
    }
}

/// A stream that has no lane yet, and what one is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) owner: Owner,
    pub(super) settings: &'a Settings,
    /// Those of the device.
    pub(super) contexts: &'a Contexts,
    pub(super) captures: &'a Captures,
}
