//! Page-locked host memory: which pieces there are, and which streams use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::touch::Touch;

/// Marks the key by which the race detector knows a piece: its address. Keys of device memory are
/// small numbers.
const KEY: u64 = 1 << 63;

/// The pieces of pinned memory, by address. `bytes` is the sum of their sizes.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    pieces: BTreeMap<u64, HostPiece>,
    bytes: u64,
}

/// A piece of pinned memory.
#[derive(Debug)]
pub(crate) struct HostPiece {
    pub(crate) bytes: u64,
    /// The last touch of each stream, while the detector is on.
    pub(crate) touched: Vec<Arc<Touch>>,
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
    pub(crate) fn drain(&mut self) -> BTreeMap<u64, HostPiece> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Returns true if the sum is right and no two pieces overlap.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut previous_end = 0;
        let disjoint = self.pieces.iter().all(|(&address, piece)| {
            let is_apart = previous_end <= address;
            previous_end = address + piece.bytes;
            is_apart
        });
        disjoint && self.bytes == self.pieces.values().map(|piece| piece.bytes).sum::<u64>()
    }

    pub(crate) fn insert(&mut self, address: u64, bytes: u64) {
        self.pieces.insert(address, HostPiece { bytes, touched: Vec::new() });
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<HostPiece> {
        let piece = self.pieces.remove(&address)?;
        self.bytes -= piece.bytes;
        Some(piece)
    }

    /// Returns true if a piece has bytes in `[address, address + bytes)`.
    pub(crate) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.pieces.range(..address + bytes).next_back();
        before.is_some_and(|(&start, piece)| start + piece.bytes > address)
    }

    /// Returns true if `[address, address + bytes)` lies in one piece.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        self.containing(address).is_some_and(|(start, piece)| {
            let end = (address - start).checked_add(bytes);
            end.is_some_and(|end| end <= piece.bytes)
        })
    }

    /// The piece that contains `address`, with its start.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &HostPiece)> {
        let (&start, piece) = self.pieces.range(..=address).next_back()?;
        (address - start < piece.bytes).then_some((start, piece))
    }

    pub(crate) fn get_mut(&mut self, address: u64) -> Option<&mut HostPiece> {
        self.pieces.get_mut(&address)
    }

    /// Forgets what the race detector noted on pieces.
    pub(crate) fn forget_touches(&mut self) {
        self.pieces.values_mut().for_each(|piece| piece.touched.clear());
    }

    /// The key by which the race detector knows the piece at `address`.
    pub(crate) const fn key(address: u64) -> u64 {
        KEY | address
    }
}
