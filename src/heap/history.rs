//! The history of blocks: where and when they were allocated and freed.
//!
//! By address it knows the live blocks allocated since debugging was switched on, and the last
//! [`MOST_FREED`] that were freed, each until its address is live again. It is used under a leaf
//! lock. All operations are logarithmic or better; they allocate host memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// How many frees are remembered.
const MOST_FREED: usize = 1 << 16;

/// How a block was handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Birth {
    /// The requested size, in bytes.
    pub(super) requested_bytes: u64,
    /// The size of the block, in bytes.
    pub(super) bytes: u64,
    /// The call site, by number; 0: not known.
    pub(super) site: u32,
    /// The time, by the heap's clock.
    pub(super) time: Duration,
    /// Whether all of it was filled with the pattern for fresh memory.
    pub(super) is_filled: bool,
}

/// A block that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// How it was handed out, if that is known.
    pub(super) birth: Option<Birth>,
    /// The size of the block, in bytes.
    pub(super) bytes: u64,
    /// The call site, by number; 0: not known.
    pub(super) site: u32,
    /// The time, by the heap's clock.
    pub(super) time: Duration,
}

/// The blocks of one heap.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    live: HashMap<u64, Birth>,
    freed: BTreeMap<u64, Numbered>,
    /// Address and number of each free, in order, also of those whose address is live again.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
}

#[derive(Debug)]
struct Numbered {
    number: u64,
    death: Death,
}

impl Ledger {
    /// Records that the block at `address` was handed out.
    pub(super) fn open(&mut self, address: u64, birth: Birth) {
        self.freed.remove(&address);
        self.live.insert(address, birth);
    }

    /// Records that the block of `bytes` at `address` is freed at `site`; returns its history.
    pub(super) fn close(&mut self, address: u64, bytes: u64, site: u32, time: Duration) -> Death {
        let death = Death { birth: self.live.remove(&address), bytes, site, time };
        let number = self.next_number;
        self.next_number += 1;
        self.freed.insert(address, Numbered { number, death });
        self.order.push_back((address, number));
        if self.order.len() > MOST_FREED
            && let Some((oldest, number)) = self.order.pop_front()
            && self.freed.get(&oldest).is_some_and(|freed| freed.number == number)
        {
            self.freed.remove(&oldest);
        }
        death
    }

    /// How the live block at `address` was handed out.
    pub(super) fn birth(&self, address: u64) -> Option<Birth> {
        self.live.get(&address).copied()
    }

    /// Records that the live block at `address` no longer holds its fill pattern.
    pub(super) fn forget_fill(&mut self, address: u64) {
        if let Some(birth) = self.live.get_mut(&address) {
            birth.is_filled = false;
        }
    }

    /// The remembered freed block in which `address` lay, with its start.
    pub(super) fn death_around(&self, address: u64) -> Option<(u64, Death)> {
        let (&start, freed) = self.freed.range(..=address).next_back()?;
        (address < start + freed.death.bytes).then_some((start, freed.death))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(12);

    #[test]
    fn a_block_is_known_until_its_address_is_live_again() {
        let mut ledger = Ledger::default();
        let birth = Birth { requested_bytes: 1000, bytes: 1024, site: 3, ..Birth::default() };
        ledger.open(0x1000, birth);
        assert_eq!((ledger.birth(0x1000), ledger.birth(0x1200)), (Some(birth), None));
        assert_eq!(ledger.death_around(0x1000), None);
        let death = ledger.close(0x1000, 1024, 4, NOON);
        assert_eq!(death, Death { birth: Some(birth), bytes: 1024, site: 4, time: NOON });
        assert_eq!(ledger.birth(0x1000), None);
        assert_eq!(ledger.death_around(0x13ff), Some((0x1000, death)));
        assert_eq!(ledger.death_around(0x1400), None);
        ledger.open(0x1000, birth);
        assert_eq!(ledger.death_around(0x1000), None);
        // A block that was live before debugging was switched on.
        assert_eq!(ledger.close(0x8000, 512, 0, NOON).birth, None);
    }

    #[test]
    fn so_many_frees_are_remembered_and_no_more() {
        let mut ledger = Ledger::default();
        let count = 3 * MOST_FREED as u64;
        for n in 1..=count {
            // Every third address is used again at once.
            let address = (n - u64::from(n % 3 == 0)) * 512;
            ledger.open(address, Birth::default());
            ledger.close(address, 512, n as u32, NOON);
        }
        assert_eq!(ledger.order.len(), MOST_FREED);
        assert!(ledger.freed.len() <= MOST_FREED && ledger.freed.len() > MOST_FREED / 2);
        assert_eq!(ledger.death_around(512), None);
        let (_, last) = ledger.death_around((count - 1) * 512).unwrap();
        assert_eq!(u64::from(last.site), count, "the later of two");
    }
}
