//! Free blocks by exact size, last in first out: the structure behind Round and Exact.
//!
//! A hash table maps a block size to the newest free block of that size; the blocks of a size
//! form a doubly linked list through their links. A size whose list has become empty keeps
//! its entry, so a steady program changes no entry at all. When the table fills up it is rebuilt
//! without the empty entries, so it grows with the sizes in use and not with history.
//!
//! ```text
//! entries[i].newest = the head of the list of entries[i].block_bytes, or NO_SLOT
//! links = [newer, older];  newer of the head = older of the last = NO_SLOT
//! used = entries with block_bytes ≠ 0  ≤  half of all entries
//! ```
//!
//! Used under its lane's lock. Blocks are neither cut nor joined.

use crate::base::hash::spread;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

const NEWER: usize = 0;
const OLDER: usize = 1;
const INITIAL_ENTRIES: usize = 64;

/// The free blocks of one lane.
#[derive(Debug)]
pub struct Buckets {
    /// Open addressing with linear probing. Their number is a power of two.
    entries: Vec<Bucket>,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// 0 marks an entry never used.
    block_bytes: u64,
    newest: Slot,
}

const UNUSED: Bucket = Bucket { block_bytes: 0, newest: NO_SLOT };

impl Buckets {
    /// No free block.
    pub fn new() -> Self {
        Self { entries: vec![UNUSED; INITIAL_ENTRIES], used: 0 }
    }

    /// Takes out the newest free block of exactly `block_bytes`.
    #[inline]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        let index = self.probe(block_bytes);
        let slot = self.entries[index].newest;
        if slot == NO_SLOT {
            return None;
        }
        let older = blocks.get(slot).links[OLDER];
        self.entries[index].newest = older;
        if older != NO_SLOT {
            blocks.get_mut(older).links[NEWER] = NO_SLOT;
        }
        Some(slot)
    }

    /// Calls `visit` with the free blocks of exactly `block_bytes`, the newest first.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        block_bytes: u64,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let mut slot = self.entries[self.probe(block_bytes)].newest;
        while slot != NO_SLOT {
            let block = blocks.get(slot);
            visit(slot, block);
            slot = block.links[OLDER];
        }
    }

    /// Takes in a free block.
    #[inline]
    pub fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let block_bytes = blocks.get(slot).bytes;
        let mut index = self.probe(block_bytes);
        if self.entries[index].block_bytes == 0 {
            index = self.add(block_bytes);
        }
        let older = self.entries[index].newest;
        blocks.get_mut(slot).links = [NO_SLOT, older];
        if older != NO_SLOT {
            blocks.get_mut(older).links[NEWER] = slot;
        }
        self.entries[index].newest = slot;
    }

    /// Takes out a particular free block.
    pub fn withdraw(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { bytes, links, .. } = *blocks.get(slot);
        if links[NEWER] == NO_SLOT {
            let index = self.probe(bytes);
            self.entries[index].newest = links[OLDER];
        } else {
            blocks.get_mut(links[NEWER]).links[OLDER] = links[OLDER];
        }
        if links[OLDER] != NO_SLOT {
            blocks.get_mut(links[OLDER]).links[NEWER] = links[NEWER];
        }
    }

    /// The number of free blocks here, after checking the lists.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut count = 0;
        for bucket in &self.entries {
            let mut newer = NO_SLOT;
            let mut slot = bucket.newest;
            while slot != NO_SLOT {
                let block = blocks.get(slot);
                if block.bytes != bucket.block_bytes || block.links[NEWER] != newer {
                    return Err(format!("block {slot} is in the wrong bucket: {block:?}"));
                }
                count += 1;
                newer = slot;
                slot = block.links[OLDER];
            }
        }
        Ok(count)
    }

    /// Where `block_bytes` is, or where it would be added.
    #[inline]
    fn probe(&self, block_bytes: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut index = (spread(block_bytes) >> 32) as usize & mask;
        loop {
            let found = self.entries[index].block_bytes;
            if found == block_bytes || found == 0 {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, block_bytes: u64) -> usize {
        if (self.used + 1) * 2 > self.entries.len() {
            self.rebuild();
        }
        let index = self.probe(block_bytes);
        self.entries[index].block_bytes = block_bytes;
        self.used += 1;
        index
    }

    /// Drops empty buckets, and doubles the table if the rest fills more than a quarter of it.
    fn rebuild(&mut self) {
        let kept: Vec<Bucket> =
            self.entries.iter().copied().filter(|bucket| bucket.newest != NO_SLOT).collect();
        let doubled = (kept.len() + 1) * 4 > self.entries.len();
        let capacity = self.entries.len() << u32::from(doubled);
        self.entries.clear();
        self.entries.resize(capacity, UNUSED);
        self.used = kept.len();
        for bucket in kept {
            let index = self.probe(bucket.block_bytes);
            self.entries[index] = bucket;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::size::SizeClass;
    use crate::memory::{Directory, Segment};

    #[test]
    fn newest_first_and_exact_only() {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let mut buckets = Buckets::new();
        let slots: Vec<Slot> = (1..=600u64)
            .map(|n| {
                blocks.insert(Segment {
                    address: n << 30,
                    bytes: (n % 300 + 1) * 512,
                    class: SizeClass::Small,
                })
            })
            .collect();
        for &slot in &slots {
            buckets.give(&mut blocks, slot);
        }
        assert_eq!(buckets.validate(&blocks), Ok(600));
        assert_eq!(buckets.take(&mut blocks, 301 * 512), None);
        assert_eq!(buckets.take(&mut blocks, 2 * 512), Some(slots[300]));
        assert_eq!(buckets.take(&mut blocks, 2 * 512), Some(slots[0]));
        assert_eq!(buckets.take(&mut blocks, 2 * 512), None);
        buckets.withdraw(&mut blocks, slots[1]);
        buckets.withdraw(&mut blocks, slots[302]);
        assert_eq!(buckets.validate(&blocks), Ok(596));
        assert_eq!(buckets.take(&mut blocks, 3 * 512), Some(slots[301]));
        assert_eq!(buckets.take(&mut blocks, 4 * 512), Some(slots[2]));
    }

    #[test]
    fn sizes_no_longer_used_take_no_room() {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let mut buckets = Buckets::new();
        for n in 1..10_000u64 {
            let slot = blocks.insert(Segment {
                address: 1 << 30,
                bytes: n * 512,
                class: SizeClass::Small,
            });
            buckets.give(&mut blocks, slot);
            assert_eq!(buckets.take(&mut blocks, n * 512), Some(slot));
            blocks.remove(slot);
        }
        assert_eq!(buckets.entries.len(), INITIAL_ENTRIES);
    }
}
