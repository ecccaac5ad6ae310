//! Under debugging, the blocks of a fixed-size pool: each is a block of the source.

use std::collections::HashMap;

use super::slabs::Owner;
use crate::base::Status;

/// What is handed out, and what was.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// By address: the block of the source, and who uses it; nobody after a free, until the address
    /// is handed out again.
    blocks: HashMap<u64, (u64, Option<Owner>)>,
    live: u64,
    peak_live: u64,
}

impl Apart {
    pub(super) fn add(&mut self, address: u64, block: u64, owner: Owner) {
        self.blocks.insert(address, (block, Some(owner)));
        self.live += 1;
        self.peak_live = self.peak_live.max(self.live);
    }

    /// Frees a block: `ForeignPointer`, `DoubleFree`.
    pub(super) fn remove(&mut self, address: u64) -> Result<(u64, Owner), Status> {
        let (block, owner) = self.blocks.get_mut(&address).ok_or(Status::ForeignPointer)?;
        let owner = owner.take().ok_or(Status::DoubleFree)?;
        self.live -= 1;
        Ok((*block, owner))
    }

    /// Takes back a block that could not be freed.
    pub(super) fn restore(&mut self, address: u64, owner: Owner) {
        if let Some(&(block, None)) = self.blocks.get(&address) {
            self.add(address, block, owner);
        }
    }

    pub(super) fn has(&self, address: u64) -> bool {
        self.blocks.contains_key(&address)
    }

    pub(super) fn live_and_peak(&self) -> (u64, u64) {
        (self.live, self.peak_live)
    }

    /// Those that are handed out.
    pub(super) fn blocks_of_source(&self) -> impl Iterator<Item = u64> {
        self.blocks.values().filter(|(_, owner)| owner.is_some()).map(|&(block, _)| block)
    }
}
