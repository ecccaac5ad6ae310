//! Limits of private pools: how much may be reserved for one.
//!
//! What the driver gives a pool that is held is charged here before the driver is asked, and refunded
//! when it goes back:
//!
//! ```text
//! charged = Σ bytes of the pool's segments and extents, and of those being asked for
//! charged ≤ limit    at every moment, except right after the limit was lowered
//! ```
//!
//! Requests are served from what the pool has free, on any of its streams, as without a limit. Close to
//! the limit new memory is no larger than needed. If that is not enough, the pool's own free memory
//! goes back first, unless a graph may write to it: unless the pool was ever begun for a capture.
//! Then the request fails: nobody else's memory is released. What other threads have under way is waited
//! for before (`ladder`).

use std::sync::Arc;

use super::account::PoolAccount;
use super::choice::Choice;
use super::pools::{PoolId, PoolNumber};
use super::state::{Climb, DeviceHeap};
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

    /// The limit of the request's private pool, in bytes; `u64::MAX` elsewhere.
    pub(super) fn pool_limit_bytes(&self) -> u64 {
        self.pool_account().map_or(u64::MAX, |account| account.limit_bytes.load(Relaxed))
    }

    /// Fails if the limit of the request's private pool does not allow `bytes` more. Releases free
    /// memory of the pool if it must and may; returns true if it has, so that the caller looks
    /// again at what the pool has.
    pub(super) fn make_pool_room(&self, bytes: u64) -> Result<bool> {
        let Some(account) = self.pool_account().filter(|account| account.room_bytes() < bytes)
        else {
            return Ok(false);
        };
        let pool = self.lane.pool();
        let has_shrunk = bytes <= account.limit_bytes.load(Relaxed)
            && self.device.pools.may_shrink(pool)
            && self.device.release(Choice::OfPool(pool)) > 0
            && account.room_bytes() >= bytes;
        if has_shrunk { Ok(true) } else { Err(self.beyond_pool_limit(&account, bytes)) }
    }

    /// Charges `bytes` to the request's private pool before they are asked for.
    pub(super) fn charge_pool(&self, bytes: u64) -> Result<Charge> {
        let account = self.pool_account();
        match &account {
            Some(account) if !account.charge(bytes) => Err(self.beyond_pool_limit(account, bytes)),
            _ => Ok(Charge { account, bytes }),
        }
    }

    /// The error of an attempt for which the pool's limit does not allow `bytes` more.
    #[cold]
    fn beyond_pool_limit(&self, account: &PoolAccount, bytes: u64) -> Error {
        Error::from(PartLimit {
            part: Part::Pool(account.id.0, account.id.1),
            device: self.device.ordinal,
            limit_bytes: account.limit_bytes.load(Relaxed),
            held_bytes: account.charged_bytes.load(Relaxed),
            live_blocks: 0,
            requested_bytes: self.requested_bytes,
            added_bytes: bytes,
        })
    }

    /// The request fails with `error`. Counts and logs that if it is a limit's.
    #[cold]
    pub(super) fn refused(&self, error: Error) -> Error {
        let Some(limit) = error.limit.clone() else { return error };
        if let Some(account) = self.pool_account() {
            account.refusals.fetch_add(1, Relaxed);
        }
        self.device.stopped_by_limit(limit, self.stream)
    }
}

impl DeviceHeap<'_> {
    /// `bytes` of a private pool's memory went back to the driver.
    pub(super) fn refund_pool(self, pool: PoolNumber, bytes: u64) {
        if let Some(account) = self.pools.account(pool) {
            account.charged_bytes.fetch_sub(bytes, Relaxed);
        }
    }

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
