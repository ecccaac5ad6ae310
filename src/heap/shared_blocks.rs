//! The blocks that other processes have: who holds them, and what their owner freed meanwhile; and
//! what is left of memory of other processes.
//!
//! A *share* is one block made known to other processes, from its first hold to its last release.
//! While it is held the block stays live: freeing it only marks the share, and the last release
//! frees it. So no memory that another process has mapped is handed out again.
//!
//! ```text
//!   hold  ┌── held = 1, 2, … ──┐ last release: the block is its owner's alone, or
//!         └── free: is_freed ──┘               is_freed: freed now
//! ```
//!
//! **Invariants**: held > 0 for every share; its block is live; numbers are never reused.
//! **Locks**: one, a leaf.

use std::collections::HashMap;

use crate::base::DeviceOrdinal;
use crate::base::lock::{Lock, rank};
use crate::driver::MemoryHandle;

/// The number of a share.
pub type ShareId = u64;

/// The shares of a heap, by the address of the block.
#[derive(Debug, Default)]
pub(super) struct SharedBlocks {
    table: Lock<Table, { rank::LEAF }>,
}

#[derive(Debug, Default)]
struct Table {
    shares: HashMap<u64, Share>,
    last_id: ShareId,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    id: ShareId,
    held: u64,
    is_freed: bool,
}

/// What a release leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The share is held on.
    Held,
    /// The share is over; the owner has the block.
    Over,
    /// The share is over, and the owner has freed the block.
    Freed,
}

/// What an owner's free of a block means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// It is not shared.
    Unshared,
    /// It is kept for other processes.
    Kept,
    /// It was freed before, and is kept.
    Again,
}

/// What the driver did not take back of memory of other processes, and is to be asked again.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) handles: Vec<(DeviceOrdinal, MemoryHandle)>,
    pub(super) ranges: Vec<(DeviceOrdinal, Remains)>,
}

/// A reservation, of which the first `mapped_bytes` are mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remains {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) mapped_bytes: u64,
}

impl SharedBlocks {
    /// Holds the share of the block at `address`, which is live; makes one if there is none. `None`
    /// if the owner has freed the block.
    pub(super) fn hold(&self, address: u64) -> Option<ShareId> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let share = table.shares.entry(address).or_insert_with(|| {
            table.last_id += 1;
            Share { id: table.last_id, held: 0, is_freed: false }
        });
        if share.is_freed {
            return None;
        }
        share.held += 1;
        Some(share.id)
    }

    /// Holds the share `id` once more, also if the owner has freed the block. Returns false if it
    /// is over.
    pub(super) fn hold_on(&self, address: u64, id: ShareId) -> bool {
        let mut table = self.table.lock();
        let share = table.shares.get_mut(&address).filter(|share| share.id == id);
        share.map(|share| share.held += 1).is_some()
    }

    /// Ends one hold of the share `id`.
    pub(super) fn release(&self, address: u64, id: ShareId) -> Released {
        let mut table = self.table.lock();
        let Some(share) = table.shares.get_mut(&address).filter(|share| share.id == id) else {
            return Released::Over;
        };
        share.held -= 1;
        if share.held > 0 {
            return Released::Held;
        }
        let is_freed = share.is_freed;
        table.shares.remove(&address);
        if is_freed { Released::Freed } else { Released::Over }
    }

    /// The owner frees the block at `address`, which is kept if it is shared.
    pub(super) fn keep(&self, address: u64) -> Freed {
        match self.table.lock().shares.get_mut(&address) {
            None => Freed::Unshared,
            Some(share) if share.is_freed => Freed::Again,
            Some(share) => {
                share.is_freed = true;
                Freed::Kept
            }
        }
    }

    /// The addresses of all shared blocks.
    pub(super) fn addresses(&self) -> Vec<u64> {
        self.table.lock().shares.keys().copied().collect()
    }
}
