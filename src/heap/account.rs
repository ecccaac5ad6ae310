//! The accounts of parts of a program: of a tag (`accounts`) and of a private pool (`pool_limits`).

use std::sync::Arc;

use crate::base::DeviceOrdinal;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a tag holds on one device.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) limit_bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) live_blocks: u64,
    pub(super) refusals: u64,
}

/// What a tag holds on one device, for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagUsage {
    /// The tag.
    pub name: Arc<str>,
    /// The device.
    pub device: DeviceOrdinal,
    /// The most that may be live, in bytes, if it is limited.
    pub limit_bytes: Option<u64>,
    /// What is live, in bytes, each block with its rounded size; with requests under way.
    pub live_bytes: u64,
    /// How many blocks are live; with requests under way.
    pub live_blocks: u64,
    /// How many requests the limit has stopped.
    pub refusals: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { limit_bytes: u64::MAX, live_bytes: 0, live_blocks: 0, refusals: 0 }
    }
}

impl Account {
    /// Returns true if the limit allows `bytes` more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.limit_bytes == u64::MAX || self.live_bytes.saturating_add(bytes) <= self.limit_bytes
    }

    /// For the user.
    pub(super) fn usage(&self, name: &Arc<str>, device: DeviceOrdinal) -> TagUsage {
        let Self { limit_bytes, live_bytes, live_blocks, refusals } = *self;
        TagUsage {
            name: Arc::clone(name),
            device,
            limit_bytes: (limit_bytes != u64::MAX).then_some(limit_bytes),
            live_bytes,
            live_blocks,
            refusals,
        }
    }
}

/// What is reserved for a pool that is held.
#[derive(Debug)]
pub(super) struct PoolAccount {
    /// The pool's two numbers.
    pub(super) id: (u64, u64),
    pub(super) limit_bytes: AtomicU64,
    pub(super) charged_bytes: AtomicU64,
    pub(super) refusals: AtomicU64,
}

impl PoolAccount {
    /// Nothing is reserved, and there is no limit.
    pub(super) fn new(id: (u64, u64)) -> Self {
        let [charged_bytes, refusals] = [0, 0].map(AtomicU64::new);
        Self { id, limit_bytes: AtomicU64::new(u64::MAX), charged_bytes, refusals }
    }

    /// Sets the limit; `None`: none.
    pub(super) fn set_limit(&self, limit_bytes: Option<u64>) {
        self.limit_bytes.store(limit_bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// How much more may be charged, in bytes; `u64::MAX` without a limit.
    pub(super) fn room_bytes(&self) -> u64 {
        let limit_bytes = self.limit_bytes.load(Relaxed);
        match limit_bytes {
            u64::MAX => u64::MAX,
            _ => limit_bytes.saturating_sub(self.charged_bytes.load(Relaxed)),
        }
    }

    /// Charges `bytes` if there is room for them.
    pub(super) fn charge(&self, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Relaxed);
        let grow = |charged: u64| charged.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        self.charged_bytes.fetch_update(Relaxed, Relaxed, grow).is_ok()
    }
}
