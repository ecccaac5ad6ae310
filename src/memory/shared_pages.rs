//! The driver's pages that small allocations lie in, as far as allocations of ours do.
//!
//! `cuMemAlloc` packs small allocations into pages, and a page is taken whole while anything lies
//! in it. Which page it was tells the address. A driver that keeps a page in which nothing lies
//! any more gives it up for whoever wants memory, so such pages are not known here.
//!
//! One small lock, on the way from and to the driver only.

use std::collections::HashMap;

use crate::base::lock::{Lock, rank};

/// How many allocations lie in each page.
#[derive(Debug)]
pub struct SharedPages {
    page_bytes: u64,
    counts: Lock<HashMap<u64, u32>, { rank::DEVICE }>,
}

impl SharedPages {
    /// Pages of `page_bytes`, aligned to as many; 0: there are none.
    pub fn new(page_bytes: u64) -> Self {
        Self { page_bytes, counts: Lock::default() }
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Whether an allocation of `bytes` lies in such a page.
    pub fn has(&self, bytes: u64) -> bool {
        bytes < self.page_bytes
    }

    /// There is an allocation at `address`; says whether its page is new.
    pub fn enter(&self, address: u64) -> bool {
        let mut counts = self.counts.lock();
        let count = counts.entry(address / self.page_bytes).or_default();
        *count += 1;
        *count == 1
    }

    /// The allocation at `address` is gone; says whether its page is.
    pub fn leave(&self, address: u64) -> bool {
        let page = address / self.page_bytes;
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&page) else { return false };
        *count -= 1;
        let is_empty = *count == 0;
        if is_empty {
            counts.remove(&page);
        }
        is_empty
    }
}
