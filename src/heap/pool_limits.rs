//! Limits of private pools: how much may be reserved for one.
//!
//! A pool that is held only grows, because its memory stays at its addresses. What the driver gives
//! it is charged here before the driver is asked:
//!
//! ```text
//! charged = Σ bytes of the pool's segments and extents, and of those being asked for
//! charged ≤ limit    at every moment, except right after the limit was lowered
//! ```
//!
//! Requests are served from what the pool has free, on any of its streams, as without a limit. Only
//! one that needs more than the limit allows fails, at once: nothing is waited for, and nobody
//! else's memory is released. Close to the limit new memory is no larger than needed. Free memory of
//! the pool is not returned to make room: a graph may write to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::account::PoolAccount;
use super::pools::PoolId;
use super::state::{Climb, DeviceHeap};
use crate::base::{Error, Part, PartLimit, Result};

/// What a private pool holds, for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The most that may be reserved, in bytes, if it is limited.
    pub limit_bytes: Option<u64>,
    /// What is reserved, in bytes.
    pub reserved_bytes: u64,
    /// What is live, in bytes of blocks.
    pub live_bytes: u64,
    /// How many requests the limit has stopped.
    pub refusals: u64,
}

/// Bytes that were charged; dropped without [`Self::keep`], they are refunded.
#[must_use]
pub(super) struct Charge {
    account: Option<Arc<PoolAccount>>,
    bytes: u64,
}

impl Charge {
    /// The memory has come.
    pub(super) fn keep(mut self) {
        self.account = None;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.charged_bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

impl Climb<'_> {
    fn pool_account(&self) -> Option<Arc<PoolAccount>> {
        self.device.pools.account(self.lane.pool())
    }

    /// How many bytes the limit of the request's private pool allows; `u64::MAX` elsewhere.
    pub(super) fn pool_room_bytes(&self) -> u64 {
        self.pool_account().map_or(u64::MAX, |account| account.room_bytes())
    }

    /// Fails if the limit of the request's private pool does not allow `bytes` more.
    pub(super) fn require_pool_room(&self, bytes: u64) -> Result<()> {
        match self.pool_account() {
            Some(account) if account.room_bytes() < bytes => {
                Err(self.stopped_by_pool(&account, bytes))
            }
            _ => Ok(()),
        }
    }

    /// Charges `bytes` to the request's private pool before they are asked for.
    pub(super) fn charge_pool(&self, bytes: u64) -> Result<Charge> {
        let account = self.pool_account();
        match &account {
            Some(account) if !account.charge(bytes) => Err(self.stopped_by_pool(account, bytes)),
            _ => Ok(Charge { account, bytes }),
        }
    }

    #[cold]
    fn stopped_by_pool(&self, account: &PoolAccount, bytes: u64) -> Error {
        account.refusals.fetch_add(1, Relaxed);
        let limit = PartLimit {
            part: Part::Pool(account.id.0, account.id.1),
            device: self.device.ordinal,
            limit_bytes: account.limit_bytes.load(Relaxed),
            held_bytes: account.charged_bytes.load(Relaxed),
            live_blocks: 0,
            requested_bytes: self.requested_bytes,
            added_bytes: bytes,
        };
        self.device.stopped_by_limit(limit, self.stream)
    }
}

impl DeviceHeap<'_> {
    /// `Heap::set_pool_limit` of the device.
    pub(super) fn set_pool_limit(self, pool: PoolId, limit_bytes: Option<u64>) -> Result<()> {
        let number = self.pools.number_of(pool)?;
        if let Some(account) = self.pools.account(number) {
            account.set_limit(limit_bytes);
        }
        Ok(())
    }

    /// `Heap::pool_usage` of the device.
    pub(super) fn pool_usage(self, pool: PoolId) -> Result<PoolUsage> {
        let number = self.pools.number_of(pool)?;
        let lanes = self.lanes().filter(|lane| lane.pool() == number);
        let live_bytes = lanes.map(|lane| lane.counters.snapshot().all.allocated).sum();
        let account = self.pools.account(number);
        let load = |read: fn(&PoolAccount) -> &AtomicU64| {
            account.as_ref().map_or(0, |account| read(account).load(Relaxed))
        };
        let limit_bytes = load(|account| &account.limit_bytes);
        Ok(PoolUsage {
            limit_bytes: (limit_bytes != u64::MAX).then_some(limit_bytes),
            reserved_bytes: load(|account| &account.charged_bytes),
            live_bytes,
            refusals: load(|account| &account.refusals),
        })
    }
}
