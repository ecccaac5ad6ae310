//! Where the pages of managed memory are.
//!
//! A page is one granule. The manual speaks of pages of the processor's size, but NVIDIA's
//! driver keeps and evicts blocks of 2 MiB (`uvm_va_block`). It is in one place: nowhere until
//! something touches or prefetches it, on the host, or on one device. Invariants:
//! - the pages of an allocation are those of its address range;
//! - a device counts each page there as used; `order` has them by when they were last used.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Where a page can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Host,
    Device(u32),
}

/// What the program has told of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Advised {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Location>,
    /// The devices that map it wherever it is, as a bit set.
    pub(crate) accessed_by: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Page {
    pub(crate) place: Option<Location>,
    pub(crate) advised: Advised,
    /// When it was last used.
    stamp: u64,
}

/// The pages of all managed memory of a machine.
#[derive(Debug, Default)]
pub(crate) struct ManagedPages {
    pages: HashMap<u64, Page>,
    /// The pages on each device, the one used longest ago first.
    order: HashMap<u32, BTreeMap<u64, u64>>,
    stamp: u64,
    /// How many pages are on the host.
    on_host: u64,
}

impl ManagedPages {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// New pages at these addresses, nowhere.
    pub(crate) fn add(&mut self, addresses: impl Iterator<Item = u64>) {
        self.pages.extend(addresses.map(|address| (address, Page::default())));
    }

    /// Ends a page; returns where it was.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Location> {
        let page = self.pages.get(&address).copied()?;
        self.leave(&page);
        self.pages.remove(&address);
        page.place
    }

    pub(crate) fn get(&self, address: u64) -> Option<Page> {
        self.pages.get(&address).copied()
    }

    pub(crate) fn advise(&mut self, address: u64, change: &dyn Fn(&mut Advised)) {
        if let Some(page) = self.pages.get_mut(&address) {
            change(&mut page.advised);
        }
    }

    /// Puts a page into a place; it was used now.
    pub(crate) fn put(&mut self, address: u64, place: Location) {
        let Some(page) = self.pages.get(&address).copied() else { return };
        self.leave(&page);
        self.stamp += 1;
        let stamp = self.stamp;
        match place {
            Location::Host => self.on_host += 1,
            Location::Device(device) => {
                self.order.entry(device).or_default().insert(stamp, address);
            }
        }
        self.pages.insert(address, Page { place: Some(place), stamp, ..page });
    }

    fn leave(&mut self, page: &Page) {
        match page.place {
            Some(Location::Host) => self.on_host -= 1,
            Some(Location::Device(device)) => {
                self.order.entry(device).or_default().remove(&page.stamp);
            }
            None => {}
        }
    }

    /// The page of `device` that was used longest ago.
    pub(crate) fn oldest(&self, device: u32) -> Option<u64> {
        self.order.get(&device)?.first_key_value().map(|(_, &address)| address)
    }

    /// How many pages are on `device`.
    pub(crate) fn count_on(&self, device: u32) -> u64 {
        self.order.get(&device).map_or(0, |order| order.len() as u64)
    }

    pub(crate) fn count_on_host(&self) -> u64 {
        self.on_host
    }

    /// The addresses of all pages, in no order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }
}

/// The pages of `page_bytes` that `range` touches, by address.
pub(crate) fn pages_of(range: Range<u64>, page_bytes: u64) -> impl Iterator<Item = u64> {
    let first = range.start & !(page_bytes - 1);
    (first..range.end).step_by(page_bytes as usize)
}
