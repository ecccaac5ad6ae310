//! Tiers: pools of a few sizes, and an arena behind them for everything else.
//!
//! A request is served by the pool with the smallest blocks that are large enough and aligned for
//! it. If there is none, or that pool is full, the arena serves it. The arena is one chunk, reserved
//! at the start; it is empty again, all at once, when nothing of it is live any more. So nothing is
//! asked of the source after the start, and a request that finds no room is an error.
//!
//! Which pool serves a request, and which one an address is of, is mostly found by a table
//! ([`Shortcuts`]) and without a branch that depends on it: programs mix sizes, so no processor could
//! guess it. What the tables do not have, or not alone, is searched for.
//!
//! Blocks of the arena are in a table, so that double frees and foreign pointers are known there too.

use std::collections::HashSet;
use std::sync::Arc;

use super::access::Access;
use super::arena::{Arena, ArenaOptions};
use super::fixed_pool::{FixedPool, FixedPoolOptions};
use super::shortcuts::Shortcuts;
use super::source::{Source, Threads};
use crate::base::size::ALIGNMENT_BYTES;
use crate::base::{Error, Result, Status, StreamHandle};

/// A pool of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The size of its blocks, in bytes. They are aligned to the largest power of two that divides
    /// it, but to no more than 512.
    pub block_bytes: u64,
    /// How many there are.
    pub count: u32,
}

/// What tiers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiersStatistics {
    /// Blocks of the pools that are live.
    pub pool_blocks: u64,
    /// Blocks of the arena that are live.
    pub arena_blocks: u64,
    /// Used of the arena, in bytes.
    pub arena_used_bytes: u64,
    /// Held from the source, in bytes.
    pub held_bytes: u64,
    /// Requests that a full pool left to the arena.
    pub overflows: u64,
}

/// Pools by size over a source, with an arena behind. See the module's note.
#[derive(Debug)]
pub struct Tiers<S: Source> {
    shortcuts: Shortcuts,
    /// By the size of their blocks, rising.
    pools: Vec<FixedPool<S>>,
    /// The size and the alignment of each pool's blocks, in bytes.
    sizes: Vec<(u64, u64)>,
    /// The first byte of each pool's memory, and its length in bytes; empty under debugging.
    ranges: Vec<(u64, u64)>,
    arena: Option<Arena<S>>,
    /// The live blocks of the arena.
    arena_blocks: Access<HashSet<u64>>,
    source: Arc<S>,
}

impl<S: Source> Tiers<S> {
    /// Reserves all memory of the pools, and `arena_bytes` for an arena; 0: none.
    pub fn new(source: Arc<S>, tiers: &[Tier], arena_bytes: u64, threads: Threads) -> Result<Self> {
        let mut sorted = tiers.to_vec();
        sorted.sort_by_key(|tier| tier.block_bytes);
        if sorted.windows(2).any(|pair| pair[0].block_bytes == pair[1].block_bytes) {
            return Err(Error::invalid_argument("two tiers have blocks of the same size"));
        }
        let pool = |tier: &Tier| FixedPool::new(Arc::clone(&source), tier.options(threads));
        let pools = sorted.iter().map(pool).collect::<Result<Vec<_>>>()?;
        let sizes: Vec<(u64, u64)> = pools.iter().map(FixedPool::block_bytes).collect();
        let ranges = pools.iter().map(FixedPool::range).collect::<Result<Option<Vec<_>>>>()?;
        let ranges = ranges.unwrap_or_default();
        let front = |number: u32| pools.get(number as usize).and_then(FixedPool::front);
        let shortcuts = Shortcuts::new(&sizes, &ranges, front);
        let arena = (arena_bytes > 0).then(|| {
            let (chunk_bytes, limit_bytes) = (arena_bytes, arena_bytes);
            let options = ArenaOptions { threads, chunk_bytes, limit_bytes };
            Arena::new(Arc::clone(&source), options)
        });
        arena.iter().try_for_each(|arena| arena.reserve())?;
        let arena_blocks = Access::new(HashSet::new(), threads);
        Ok(Self { shortcuts, pools, sizes, ranges, arena, arena_blocks, source })
    }

    /// Allocates `bytes` for use on `stream`, which must exist until they are freed, or on the own
    /// stream. Returns address 0 for 0 bytes. An alignment of 0 is that of the tier, and in the
    /// arena the source's usual one. `LimitReached` if there is no room.
    pub fn allocate(
        &self,
        bytes: u64,
        alignment_bytes: u64,
        stream: Option<StreamHandle>,
    ) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let pool = self.pool_for(bytes, alignment_bytes);
        match pool.map(|pool| pool.try_allocate(stream)).transpose()?.flatten() {
            Some(address) => Ok(address),
            None => self.allocate_in_arena(bytes, alignment_bytes, stream, pool),
        }
    }

    /// [`Self::allocate`] on the own stream, of a block that was freed before; `None`, with nothing
    /// changed, if the tables find none.
    #[inline(always)]
    pub fn take_quickly(&self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        self.shortcuts.front_for(bytes, alignment_bytes)?.take()
    }

    /// [`Self::allocate`] on the own stream, of a block that the pool of the size has; `None`, with
    /// nothing changed, if there is none.
    #[inline]
    pub fn take(&self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        if bytes == 0 {
            return None;
        }
        self.pool_for(bytes, alignment_bytes)?.take_behind_access()
    }

    /// The pool with the smallest blocks that are large enough for `bytes`, which are not 0.
    #[inline]
    fn pool_for(&self, bytes: u64, alignment_bytes: u64) -> Option<&FixedPool<S>> {
        let found = self.shortcuts.number_for(bytes, alignment_bytes);
        let found = found.and_then(|number| self.pools.get(number as usize));
        found.or_else(|| self.search_for(bytes, alignment_bytes))
    }

    fn search_for(&self, bytes: u64, alignment_bytes: u64) -> Option<&FixedPool<S>> {
        let first = self.sizes.partition_point(|size| size.0 < bytes);
        let is_aligned = |index: &usize| alignment_bytes <= self.sizes[*index].1;
        self.pools.get((first..self.sizes.len()).find(is_aligned)?)
    }

    fn allocate_in_arena(
        &self,
        bytes: u64,
        alignment_bytes: u64,
        stream: Option<StreamHandle>,
        full: Option<&FixedPool<S>>,
    ) -> Result<u64> {
        let Some(arena) = &self.arena else {
            return Err(full.map_or_else(|| no_tier(bytes), FixedPool::full));
        };
        let address = match stream {
            None => arena.allocate(bytes, alignment_bytes),
            Some(stream) => arena.allocate_on(bytes, alignment_bytes, stream),
        }?;
        self.arena_blocks.with(|blocks| blocks.insert(address))?;
        Ok(address)
    }

    /// Frees the block at `address`; does nothing for address 0. Work of the stream that it was
    /// allocated on may still use it. `DoubleFree` and `ForeignPointer` change nothing.
    #[inline]
    pub fn free(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        match self.pool_of(address)? {
            Some(pool) => pool.free(address),
            None => self.free_in_arena(address),
        }
    }

    /// [`Self::free`] of a block of a pool that the own stream uses; false, with nothing changed, if the
    /// tables do not find its pool.
    #[inline(always)]
    pub fn put_quickly(&self, address: u64) -> bool {
        self.shortcuts.front_of(address).and_then(|front| front.put(address)).is_some()
    }

    /// [`Self::free`] of a block of a pool that the own stream uses; false, with nothing changed, for
    /// others.
    #[inline]
    pub fn put(&self, address: u64) -> bool {
        self.pool_around(address).is_some_and(|pool| pool.put_behind_access(address))
    }

    fn pool_of(&self, address: u64) -> Result<Option<&FixedPool<S>>> {
        if !self.ranges.is_empty() {
            return Ok(self.pool_around(address));
        }
        // Under debugging.
        for pool in &self.pools {
            if pool.has(address)? {
                return Ok(Some(pool));
            }
        }
        Ok(None)
    }

    /// The pool in whose memory `address` is; `None` under debugging.
    #[inline]
    fn pool_around(&self, address: u64) -> Option<&FixedPool<S>> {
        let is_in = |&(start, bytes): &(u64, u64)| address.wrapping_sub(start) < bytes;
        let number = self.shortcuts.number_of(address)? as usize;
        if self.ranges.get(number).is_some_and(is_in) {
            return self.pools.get(number);
        }
        self.pools.iter().zip(&self.ranges).find(|(_, range)| is_in(range)).map(|(pool, _)| pool)
    }

    fn free_in_arena(&self, address: u64) -> Result<()> {
        let Some(arena) = &self.arena else { return Err(not_live(address, false)) };
        if self.arena_blocks.with(|blocks| blocks.remove(&address))? {
            return arena.free_one();
        }
        Err(not_live(address, arena.has(address)?))
    }

    /// What they have.
    pub fn statistics(&self) -> Result<TiersStatistics> {
        let arena = self.arena.as_ref().map(Arena::statistics).transpose()?;
        let mut statistics = TiersStatistics {
            pool_blocks: 0,
            arena_blocks: self.arena_blocks.with(|blocks| blocks.len() as u64)?,
            arena_used_bytes: arena.map_or(0, |arena| arena.used_bytes),
            held_bytes: arena.map_or(0, |arena| arena.held_bytes),
            overflows: 0,
        };
        for pool in &self.pools {
            let pool = pool.statistics()?;
            statistics.pool_blocks += pool.live;
            statistics.held_bytes += pool.held_bytes;
            statistics.overflows += pool.refusals;
        }
        Ok(statistics)
    }

    /// Where their memory comes from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Which threads may call.
    pub fn threads(&self) -> Threads {
        self.arena_blocks.threads()
    }

    /// Checks every invariant; the error names the one that is broken.
    pub fn validate(&self) -> std::result::Result<(), String> {
        self.arena.iter().try_for_each(Arena::validate)?;
        self.pools.iter().try_for_each(FixedPool::validate)
    }
}

impl Tier {
    fn options(self, threads: Threads) -> FixedPoolOptions {
        let Self { block_bytes, count } = self;
        let alignment_bytes = (1 << block_bytes.trailing_zeros().min(63)).min(ALIGNMENT_BYTES);
        FixedPoolOptions { threads, block_bytes, alignment_bytes, count, growth: 0 }
    }
}

#[cold]
fn no_tier(bytes: u64) -> Error {
    let message = format!("no tier has blocks for {bytes} bytes, and there is no arena");
    Error::new(Status::LimitReached, message)
}

#[cold]
fn not_live(address: u64, is_of_arena: bool) -> Error {
    if is_of_arena {
        Error::new(Status::DoubleFree, format!("{address:#x} is not live any more"))
    } else {
        Error::new(Status::ForeignPointer, format!("{address:#x} is no block of the manager"))
    }
}
