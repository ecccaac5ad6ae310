//! The settings of a strategy, of which each kind of memory has its own: device memory, pageable
//! and pinned host memory.

use crate::base::size::MIB;

/// Where a block goes: the value of `GENESIS_POOL_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolType {
    /// Every request goes to the driver.
    Naive,
    /// MXNet's *Round*: powers of two up to a cutoff, then its multiples.
    Round,
    /// MXNet's *Naive*: page-rounded sizes, reused exactly.
    Exact,
    /// Best fit in segments, with cutting and joining.
    Caching,
    /// Pools of fixed sizes for small blocks, arenas that are reset when empty for large ones.
    Arena,
    /// Best fit in addresses under which memory is moved without waiting.
    Elastic,
}

impl PoolType {
    /// Every pool type, in the order in which they are listed to users.
    pub const ALL: &[Self] =
        &[Self::Naive, Self::Round, Self::Exact, Self::Caching, Self::Arena, Self::Elastic];

    /// The word for it in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "Naive",
            Self::Round => "Round",
            Self::Exact => "Exact",
            Self::Caching => "Caching",
            Self::Arena => "Arena",
            Self::Elastic => "Elastic",
        }
    }

    /// Returns true if blocks are cut from larger memory, and joined again.
    pub const fn cuts_blocks(self) -> bool {
        matches!(self, Self::Caching | Self::Arena | Self::Elastic)
    }
}

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
