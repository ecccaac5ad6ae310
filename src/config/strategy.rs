//! The settings of a strategy, of which each kind of memory has its own: device memory, pageable
//! and pinned host memory.

use super::settings::PoolType;
use crate::base::size::MIB;

/// A strategy and the numbers of Round and Exact. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StrategySettings {
    /// The strategy.
    pub pool_type: PoolType,
    /// Round and Exact: the part of all memory kept free of cached blocks, in percent.
    pub reserve_percent: f64,
    /// Round and Exact: the smallest block, and Exact's rounding; a power of two, at least 512.
    pub page_size_bytes: u64,
    /// Round: the largest power of two used as a block size, as an exponent.
    pub round_linear_cutoff: u32,
    /// Exact: requests above this are rounded to a multiple of it.
    pub large_alloc_round_size_bytes: u64,
}

impl StrategySettings {
    /// The strategy `pool_type` with the default numbers.
    pub const fn new(pool_type: PoolType) -> Self {
        Self {
            pool_type,
            reserve_percent: 5.0,
            page_size_bytes: 4096,
            round_linear_cutoff: 24,
            large_alloc_round_size_bytes: 2 * MIB,
        }
    }
}

/// A kind of host memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// The process's own memory.
    Pageable = 0,
    /// Locked in place, so that a GPU can copy from and to it while the host continues.
    Pinned = 1,
}

impl HostKind {
    /// Both kinds, by number.
    pub(crate) const ALL: [Self; 2] = [Self::Pageable, Self::Pinned];

    /// The words for it in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable host memory",
            Self::Pinned => "pinned host memory",
        }
    }
}
