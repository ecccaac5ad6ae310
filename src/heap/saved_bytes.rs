//! The bytes of paused memory, where they are kept: host memory or a file.
//!
//! Records of paused extents share them (`super::paused_extent`). When the last is gone, they are
//! *waste*: the device frees them as soon as the driver may be called. So they may be dropped
//! anywhere, also under a lock.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::base::lock::{Lock, rank};
use crate::driver::{self, Device, Pages};

/// Where bytes are kept.
#[derive(Debug)]
pub(super) enum Place {
    /// Host memory.
    Memory(HostBytes),
    /// A file without a name.
    File(File),
}

/// Pages, and which of them are page-locked.
#[derive(Debug)]
pub(super) struct HostBytes {
    pub(super) pages: Pages,
    /// The parts that are locked, by their addresses.
    locked: Lock<Vec<u64>, { rank::LEAF }>,
}

/// Places that nobody needs any more.
pub(super) type Waste = Arc<Lock<Vec<Place>, { rank::LEAF }>>;

/// Bytes of a device's paused memory.
#[derive(Debug)]
pub(super) struct SavedBytes {
    place: Option<Place>,
    waste: Waste,
}

/// Some of them.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    pub(super) bytes: Arc<SavedBytes>,
    /// Where they begin.
    pub(super) offset: u64,
    /// The program's number for what they are.
    pub(super) version: Option<u64>,
}

impl HostBytes {
    pub(super) fn new(pages: Pages) -> Self {
        Self { pages, locked: Lock::default() }
    }

    /// Page-locks a part, unless it is.
    pub(super) fn lock(&self, driver: &dyn Device, part: &Range<u64>) -> driver::Result<()> {
        let address = self.pages.address() + part.start;
        if self.locked.lock().contains(&address) {
            return Ok(());
        }
        driver.host_register(address, part.end - part.start)?;
        self.locked.lock().push(address);
        Ok(())
    }

    /// Undoes [`Self::lock`] for all parts, as far as the driver lets it.
    pub(super) fn unlock(&self, driver: &dyn Device) -> driver::Result<()> {
        let next = || self.locked.lock().last().copied();
        while let Some(address) = next() {
            driver.host_unregister(address)?;
            self.locked.lock().retain(|other| *other != address);
        }
        Ok(())
    }

    /// How many parts are locked.
    pub(super) fn locked_parts(&self) -> u64 {
        self.locked.lock().len() as u64
    }
}

impl SavedBytes {
    pub(super) fn new(place: Place, waste: &Waste) -> Self {
        Self { place: Some(place), waste: Arc::clone(waste) }
    }

    /// The host memory that they are in.
    pub(super) fn memory(&self) -> Option<&HostBytes> {
        match &self.place {
            Some(Place::Memory(memory)) => Some(memory),
            _ => None,
        }
    }

    /// The file that they are in.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.place {
            Some(Place::File(file)) => Some(file),
            _ => None,
        }
    }
}

impl Drop for SavedBytes {
    fn drop(&mut self) {
        self.waste.lock().extend(self.place.take());
    }
}

impl Saved {
    /// The address of their first byte, if they are in host memory.
    pub(super) fn address(&self) -> Option<u64> {
        Some(self.bytes.memory()?.pages.address() + self.offset)
    }
}
