//! Page-locked host memory: which pieces there are.

use std::collections::BTreeMap;

/// The pieces of pinned memory, by address. `bytes` is the sum of their sizes.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    pieces: BTreeMap<u64, u64>,
    bytes: u64,
}

impl HostMemory {
    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Their sizes together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes and returns every piece.
    pub(crate) fn drain(&mut self) -> BTreeMap<u64, u64> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Returns true if the sum is right and no two pieces overlap.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut previous_end = 0;
        let disjoint = self.pieces.iter().all(|(&address, &bytes)| {
            let is_apart = previous_end <= address;
            previous_end = address + bytes;
            is_apart
        });
        disjoint && self.bytes == self.pieces.values().sum::<u64>()
    }

    pub(crate) fn insert(&mut self, address: u64, bytes: u64) {
        self.pieces.insert(address, bytes);
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<u64> {
        let bytes = self.pieces.remove(&address)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// Returns true if a piece has bytes in `[address, address + bytes)`.
    pub(crate) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.pieces.range(..address + bytes).next_back();
        before.is_some_and(|(&start, &piece_bytes)| start + piece_bytes > address)
    }

    /// Returns true if `[address, address + bytes)` lies in one piece.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        self.pieces.range(..=address).next_back().is_some_and(|(&start, &piece_bytes)| {
            let end = (address - start).checked_add(bytes);
            end.is_some_and(|end| end <= piece_bytes)
        })
    }
}
