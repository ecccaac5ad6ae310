//! Where a block goes: the free blocks of a lane, and which of them serves a request.
//!
//! | `GENESIS_POOL_TYPE` | sizes ([`Sizing`]) | free blocks |
//! |---|---|---|
//! | `Naive` | as requested | none are kept |
//! | `Round`, `Exact` | MXNet's | by exact size, newest first ([`buckets`]) |
//! | `Caching` | PyTorch's | best fit ([`best_fit`]), cut and joined by a rule ([`caching`]) |
//! | `Arena` | classes, large: 512-byte units | pools of sizes, large: from the start ([`arena`]) |
//! | `Elastic` | 512-byte units, or classes | [`segregated`] fit, large: best fit ([`elastic`]) |
//!
//! What Caching, Arena and Elastic share is [`joined`]; what [`best_fit`] and [`lists`] share is
//! [`bins`].
//!
//! A strategy holds the free blocks of one lane and is used under that lane's lock. It calls no
//! driver and knows nothing of streams.

mod arena;
mod best_fit;
#[cfg(test)]
mod best_fit_tests;
mod bins;
mod buckets;
mod caching;
#[cfg(test)]
mod caching_tests;
mod elastic;
mod first_fit;
mod joined;
mod lists;
#[cfg(test)]
mod placement_tests;
mod segregated;
#[cfg(test)]
mod segregated_tests;
mod size_pools;
mod sizes;
mod sizing;
#[cfg(test)]
mod tests;
mod wilderness;

pub use joined::SplitFree;
pub use sizing::Sizing;
#[cfg(feature = "ablations")]
pub use wilderness::forget_wilderness;

use arena::Arena;
use buckets::Buckets;
use caching::Caching;
use elastic::Elastic;

use std::ops::RangeInclusive;

use crate::base::size::SizeClass;
use crate::config::{PoolType, Settings};
use crate::memory::{Block, BlockTable, Slot, State};

/// The free blocks of one lane.
#[derive(Debug)]
pub enum Strategy {
    /// Keeps nothing for reuse; a block is free only until it is returned to the driver.
    Naive,
    /// Round and Exact.
    Buckets(Buckets),
    /// Caching.
    Caching(Caching),
    /// Arena.
    Arena(Arena),
    /// Elastic.
    Elastic(Elastic),
}

impl Strategy {
    /// The strategy that `settings` ask for, with no free block.
    pub fn new(settings: &Settings) -> Self {
        match settings.strategy.pool_type {
            PoolType::Naive => Self::Naive,
            PoolType::Round | PoolType::Exact => Self::Buckets(Buckets::new()),
            PoolType::Caching => Self::Caching(Caching::new(settings.max_split_size_bytes)),
            PoolType::Arena => Self::Arena(Arena::new()),
            PoolType::Elastic => Self::Elastic(Elastic::new()),
        }
    }

    /// Returns true if this is the strategy that `settings` ask for.
    pub fn suits(&self, settings: &Settings) -> bool {
        match (self, settings.strategy.pool_type) {
            (Self::Caching(caching), PoolType::Caching) => {
                caching.cuts_by(settings.max_split_size_bytes)
            }
            (Self::Naive, PoolType::Naive)
            | (Self::Buckets(_), PoolType::Round | PoolType::Exact)
            | (Self::Arena(_), PoolType::Arena)
            | (Self::Elastic(_), PoolType::Elastic) => true,
            _ => false,
        }
    }

    /// Returns true if freed blocks are kept for reuse.
    #[inline]
    pub fn keeps_blocks(&self) -> bool {
        !matches!(self, Self::Naive)
    }

    /// Takes out a free block for `block_bytes`, cut to size, if there is one.
    #[inline(always)]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        match self {
            Self::Elastic(elastic) => elastic.take(blocks, block_bytes),
            other => other.take_of_other(blocks, block_bytes),
        }
    }

    /// [`Self::take`] of all but Elastic, the default, whose calls are inlined there.
    #[inline(never)]
    fn take_of_other(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        match self {
            Self::Naive | Self::Elastic(_) => None,
            Self::Buckets(buckets) => buckets.take(blocks, block_bytes),
            Self::Caching(caching) => caching.take(blocks, block_bytes),
            Self::Arena(arena) => arena.take(blocks, block_bytes),
        }
    }

    /// Calls `visit` with the free blocks that could serve `bytes.start()` and have at most
    /// `bytes.end()`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        match self {
            Self::Naive => {}
            Self::Buckets(buckets) => buckets.visit(blocks, *bytes.start(), visit),
            Self::Caching(caching) => {
                caching.visit(blocks, &[SizeClass::of(*bytes.start())], bytes, visit);
            }
            Self::Arena(arena) => {
                arena.visit(blocks, &[SizeClass::of(*bytes.start())], bytes, visit);
            }
            Self::Elastic(elastic) => elastic.visit(blocks, &SizeClass::ALL, bytes, visit),
        }
    }

    /// The free block that `[address, address + bytes)` lies in, if it is in the wilderness: that is found
    /// by address. Only Elastic has one.
    pub fn wild_around(&self, blocks: &BlockTable, address: u64, bytes: u64) -> Option<Slot> {
        match self {
            Self::Elastic(elastic) => elastic.wild_around(blocks, address, bytes),
            _ => None,
        }
    }

    /// [`Self::visit`] of the free blocks outside of the wilderness.
    pub fn visit_rest(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        match self {
            Self::Elastic(elastic) => elastic.visit_rest(blocks, bytes, visit),
            other => other.visit(blocks, bytes, visit),
        }
    }

    /// Cuts a block that is not in here to `block_bytes`, and takes in the rest. Only Caching and
    /// Arena do: their segments are larger than a block.
    pub fn cut(&mut self, blocks: &mut BlockTable, slot: Slot, block_bytes: u64) {
        match self {
            Self::Caching(caching) => caching.cut(blocks, slot, block_bytes),
            Self::Arena(arena) => arena.cut(blocks, slot, block_bytes),
            Self::Naive | Self::Buckets(_) | Self::Elastic(_) => {}
        }
    }

    /// From now on, the memory of views that blocks have left is expected to come back to them, or not:
    /// only Elastic has such views.
    pub fn expect_views(&mut self, do_return: bool) {
        if let Self::Elastic(elastic) = self {
            elastic.expect_views(do_return);
        }
    }

    /// Takes in a block, which becomes free and may be joined with its neighbours.
    pub fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.give_of(blocks.get(slot).class, blocks, slot);
    }

    /// [`Self::give`] of a block of `class`.
    #[inline(always)]
    pub fn give_of(&mut self, class: SizeClass, blocks: &mut BlockTable, slot: Slot) {
        blocks.get_mut(slot).state = State::Free;
        match self {
            Self::Elastic(elastic) => elastic.give_of(class, blocks, slot),
            other => other.give_to_other(blocks, slot),
        }
    }

    /// [`Self::give`] of all but Elastic.
    #[inline(never)]
    fn give_to_other(&mut self, blocks: &mut BlockTable, slot: Slot) {
        match self {
            Self::Naive | Self::Elastic(_) => {}
            Self::Buckets(buckets) => buckets.give(blocks, slot),
            Self::Caching(caching) => caching.give(blocks, slot),
            Self::Arena(arena) => arena.give(blocks, slot),
        }
    }

    /// Takes out a particular free block.
    pub fn withdraw(&mut self, blocks: &mut BlockTable, slot: Slot) {
        match self {
            Self::Naive => {}
            Self::Buckets(buckets) => buckets.withdraw(blocks, slot),
            Self::Caching(caching) => caching.withdraw(blocks, slot),
            Self::Elastic(elastic) => elastic.withdraw(blocks, slot),
            Self::Arena(arena) => arena.withdraw(blocks, slot),
        }
    }

    /// The largest free block, in bytes. Linear in the number of blocks for Round and Exact.
    pub fn largest_free_bytes(&self, blocks: &BlockTable) -> u64 {
        match self {
            Self::Caching(caching) => return caching.largest_bytes(blocks),
            Self::Arena(arena) => return arena.largest_bytes(blocks),
            Self::Elastic(elastic) => return elastic.largest_bytes(blocks),
            Self::Naive | Self::Buckets(_) => {}
        }
        let free = blocks.iter().filter(|(_, block)| block.state == State::Free);
        free.map(|(_, block)| block.bytes).max().unwrap_or(0)
    }

    /// PyTorch's statistic of inactive split blocks: the free blocks of `class` that are parts of
    /// segments. Only Caching, Arena and Elastic have such blocks.
    pub fn split(&self, class: SizeClass) -> SplitFree {
        match self {
            Self::Caching(caching) => caching.split(class),
            Self::Arena(arena) => arena.split(class),
            Self::Elastic(elastic) => elastic.split(class),
            Self::Naive | Self::Buckets(_) => SplitFree::default(),
        }
    }

    /// Makes the peaks of [`Self::split`] the current values.
    pub fn reset_peaks(&mut self) {
        match self {
            Self::Caching(caching) => caching.reset_peaks(),
            Self::Arena(arena) => arena.reset_peaks(),
            Self::Elastic(elastic) => elastic.reset_peaks(),
            Self::Naive | Self::Buckets(_) => {}
        }
    }

    /// Checks that exactly the free blocks are in here, and the structures that hold them.
    pub fn validate(&self, blocks: &BlockTable) -> Result<(), String> {
        let free = blocks.iter().filter(|(_, block)| block.state == State::Free).count();
        let held = match self {
            Self::Naive => free,
            Self::Buckets(buckets) => buckets.validate(blocks)?,
            Self::Caching(caching) => caching.validate(blocks)?,
            Self::Arena(arena) => arena.validate(blocks)?,
            Self::Elastic(elastic) => elastic.validate(blocks)?,
        };
        if held != free {
            return Err(format!("{held} blocks held as free, {free} are"));
        }
        Ok(())
    }
}
