//! The figures of a request that failed because memory was short.
//!
//! They are gathered once, when the request fails, and the error carries them. So the line in the
//! log, the last error and the exception that a framework raises all show the same moment.

use std::borrow::Cow;
use std::fmt;

use super::DeviceOrdinal;
use super::size::Bytes;

/// The figures of a failed request. Displays as one line of `name=value` pairs and a hint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// The device.
    pub device: DeviceOrdinal,
    /// What was asked for, in bytes.
    pub requested_bytes: u64,
    /// The block that would have served it, in bytes.
    pub block_bytes: u64,
    /// Bytes of the blocks that callers hold.
    pub live_bytes: u64,
    /// How many blocks callers hold.
    pub live_blocks: u64,
    /// Bytes free in the cache.
    pub cached_bytes: u64,
    /// The largest free run in the cache, in bytes.
    pub largest_free_bytes: u64,
    /// Bytes of freed blocks that another stream may still use.
    pub pending_bytes: u64,
    /// Physical bytes held from the driver.
    pub reserved_bytes: u64,
    /// The most that may be held, in bytes, if there is a limit.
    pub limit_bytes: Option<u64>,
    /// What the driver has free, in bytes; `None` if the query failed.
    pub driver_free_bytes: Option<u64>,
    /// All memory of the device, in bytes; `None` if the query failed.
    pub driver_total_bytes: Option<u64>,
    /// 1 − `largest_free_bytes` / `cached_bytes`, in [0, 1].
    pub fragmentation_index: f64,
    /// The setting, as `NAME=value`, with which mostly less memory is lost in pieces; `None` if it is
    /// in force, or there is none.
    pub finer: Option<&'static str>,
}

impl Shortage {
    /// What the reader can do about it: what the figures prove, and the setting that mostly helps.
    pub fn hint(&self) -> Cow<'static, str> {
        let wanted = self.block_bytes;
        let would_fit = |bytes: u64| self.reserved_bytes.saturating_add(wanted) <= bytes;
        let total = self.driver_total_bytes.unwrap_or(u64::MAX);
        // Managed memory may be more.
        let most = total.max(self.limit_bytes.unwrap_or(0));
        let hint = if self.cached_bytes >= wanted {
            return self.with_finer(
                "enough is cached, but in pieces: free neighbouring blocks together, or allocate \
                 the largest blocks first",
            );
        } else if wanted > most {
            "it is larger than the device: split it"
        } else if self.limit_bytes.is_some_and(|limit| !would_fit(limit)) {
            "the limit in force stops it: raise GENESIS_MEMORY_LIMIT or GENESIS_MEMORY_FRACTION, \
             GENESIS_MANAGED for managed memory, or what is set for the device from outside \
             (`genesis options` lists it)"
        } else if would_fit(total) {
            "it would fit, but part of the device is held by others: other processes, or other \
             libraries in this one"
        } else if self.live_bytes.saturating_add(wanted) <= total {
            return self.with_finer(
                "cached memory that cannot be given back now leaves too little room: parts of \
                 segments with live blocks, private pools, blocks that streams still use",
            );
        } else {
            "live blocks leave too little room: use less at a time; GENESIS_PROFILE=memory.html \
             shows who holds them"
        };
        hint.into()
    }

    /// `hint`, and the setting that mostly helps.
    fn with_finer(&self, hint: &'static str) -> Cow<'static, str> {
        match self.finer {
            Some(finer) => {
                format!("{hint}; with {finer} mostly less is lost this way, for more driver calls")
                    .into()
            }
            None => hint.into(),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = |bytes: Option<u64>| bytes.map_or("none".to_owned(), |b| b.to_string());
        write!(
            formatter,
            "out of memory: device={} requested_bytes={} ({}) live_bytes={} live_blocks={} \
             cached_bytes={} largest_free_bytes={} pending_bytes={} reserved_bytes={} \
             limit_bytes={} driver_free_bytes={} driver_total_bytes={} fragmentation_index={:.3} \
             hint: {}",
            self.device,
            self.requested_bytes,
            Bytes(self.requested_bytes),
            self.live_bytes,
            self.live_blocks,
            self.cached_bytes,
            self.largest_free_bytes,
            self.pending_bytes,
            self.reserved_bytes,
            optional(self.limit_bytes),
            optional(self.driver_free_bytes),
            optional(self.driver_total_bytes),
            self.fragmentation_index,
            self.hint(),
        )
    }
}
