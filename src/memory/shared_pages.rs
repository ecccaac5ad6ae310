//! The driver's pages in which our small allocations lie.
//!
//! `cuMemAlloc` packs small allocations into pages. A page is held whole while anything lies in
//! it, and the address tells which page it is. The driver may keep an empty page but reuses it
//! when memory is needed, so empty pages are not counted here.
//!
//! One small lock, taken only on the way to and from the driver.

use std::collections::HashMap;

use crate::base::lock::{Lock, rank};

/// How many allocations lie in each page.
#[derive(Debug)]
pub struct SharedPages {
    page_bytes: u64,
    counts: Lock<HashMap<u64, u32>, { rank::DEVICE }>,
}

impl SharedPages {
    /// Pages of `page_bytes`, aligned to their size; 0: there are none.
    pub fn new(page_bytes: u64) -> Self {
        Self { page_bytes, counts: Lock::default() }
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Returns true if an allocation of `bytes` lies in such a page.
    pub fn has(&self, bytes: u64) -> bool {
        bytes < self.page_bytes
    }

    /// Counts an allocation at `address`; returns true if its page is new.
    pub fn enter(&self, address: u64) -> bool {
        let mut counts = self.counts.lock();
        let count = counts.entry(address / self.page_bytes).or_default();
        *count += 1;
        *count == 1
    }

    /// Uncounts the allocation at `address`; returns true if its page is now empty.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_held_while_anything_lies_in_it() {
        let pages = SharedPages::new(4096);
        assert_eq!(pages.page_bytes(), 4096);
        assert!(pages.has(4095) && !pages.has(4096));
        assert!(pages.enter(8192));
        assert!(!pages.enter(8192 + 512) && !pages.enter(12_288 - 512));
        assert!(pages.enter(12_288), "the next page");
        assert!(!pages.leave(8192) && !pages.leave(12_288 - 512));
        assert!(pages.leave(8192 + 512));
        assert!(!pages.leave(8192), "nothing is there");
        assert!(pages.enter(8192), "new again");
        assert!(!SharedPages::new(0).has(0), "there are none");
    }
}
