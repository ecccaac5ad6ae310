//! Segments: memory that the driver allocates as one, under addresses of its choice
//! (`cuMemAlloc`).
//!
//! Small segments share the driver's pages ([`SharedPages`]). Whether the driver will find room
//! in one or take a new one cannot be known, so a whole page is charged before the driver is
//! asked. The limit is never exceeded; in return, within one page of the limit a small segment
//! may be refused although there was room.
//!
//! The driver may allocate *managed* memory (`cuMemAllocManaged`), whose pages move; it takes its
//! pages when they are touched, and whole ones of them count here. A store may have a
//! [`SegmentSource`] in place of the driver: functions of the caller's.
//!
//! Every function may call the driver, so the caller holds no lock.

use std::fmt::Debug;
use std::sync::Arc;

use super::Segment;
use super::directory::is_representable;
use super::ledger::{Ledger, Refusal};
use super::shared_pages::SharedPages;
use crate::base::StreamHandle;
use crate::base::size::SizeClass;
use crate::driver::{self, Advice, Call, Code, Device, DriverError, Location};

/// A source has no memory.
const SHORT: DriverError = DriverError { call: Call::Allocate, code: Code::OUT_OF_MEMORY };

/// Where segments come from, if not from the driver. Any thread may call it; it must not allocate
/// from the heap that it serves.
pub trait SegmentSource: Debug + Send + Sync {
    /// The address of `bytes` new bytes, for use on `stream`; `None` if there are none.
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Option<u64>;

    /// Takes back what [`Self::allocate`] returned, with no work on it under way.
    fn free(&self, address: u64, bytes: u64);
}

/// Gets the segments of one device from its driver, and releases them.
#[derive(Debug)]
pub struct SegmentStore {
    driver: Arc<dyn Device>,
    origin: Origin,
    shared: SharedPages,
}

/// Where the segments of a store come from.
#[derive(Debug)]
enum Origin {
    Driver,
    /// The driver, as managed memory.
    Managed,
    Source(Arc<dyn SegmentSource>),
}

impl SegmentStore {
    /// The store of the device behind `driver`.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        let shared = SharedPages::new(driver.page_bytes());
        Self { driver, origin: Origin::Driver, shared }
    }

    /// The store of managed memory of the device behind `driver`.
    pub fn managed(driver: Arc<dyn Device>) -> Self {
        Self { origin: Origin::Managed, ..Self::new(driver) }
    }

    /// A store of memory of the device behind `driver` that comes from `source`.
    pub fn with_source(driver: Arc<dyn Device>, source: Arc<dyn SegmentSource>) -> Self {
        Self { driver, origin: Origin::Source(source), shared: SharedPages::new(0) }
    }

    /// Returns true if segments do not come from the driver.
    pub fn has_source(&self) -> bool {
        matches!(self.origin, Origin::Source(_))
    }

    /// Returns true if segments are managed memory.
    pub fn is_managed(&self) -> bool {
        matches!(self.origin, Origin::Managed)
    }

    /// Brings a segment that was just acquired to the device, in the order of `stream`, unless that is
    /// captured: its pages are then there before they are first touched. Only for managed memory,
    /// of which no larger segment than the device is brought.
    pub fn bring(&self, segment: Segment, device_bytes: u64, stream: StreamHandle) {
        let Segment { address, bytes, .. } = segment;
        if self.is_managed() && bytes <= device_bytes {
            let location = Location::Device(self.driver.ordinal());
            // Without it the pages come when they are touched.
            let _ = self.driver.prefetch_outside_capture(address, bytes, location, stream);
        }
    }

    /// How many bytes are charged for a segment of `bytes`.
    pub fn charged_bytes(&self, bytes: u64) -> u64 {
        let held_bytes = self.driver.footprint_bytes(bytes);
        match self.shared.page_bytes() {
            0 => held_bytes,
            page_bytes => held_bytes.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX),
        }
    }

    /// Gets a segment of `bytes` for blocks of `class`, first used on `stream`.
    pub fn acquire(
        &self,
        ledger: &Ledger,
        (bytes, class): (u64, SizeClass),
        stream: StreamHandle,
    ) -> Result<Segment, Refusal> {
        let charged_bytes = self.charged_bytes(bytes);
        ledger.charge(charged_bytes)?;
        match self.allocate_aligned(bytes, stream) {
            Ok(address) => {
                if self.shared.has(bytes) && !self.shared.enter(address) {
                    // The page is charged already.
                    ledger.refund(charged_bytes);
                }
                ledger.count(self.driver.footprint_bytes(bytes), class, address);
                Ok(Segment { address, bytes, class })
            }
            Err(error) => {
                ledger.refund(charged_bytes);
                Err(Refusal::Driver(error))
            }
        }
    }

    /// Releases a segment to the driver, which waits for all work of the device. On an error
    /// the segment is still held and counted.
    pub fn release(&self, ledger: &Ledger, segment: Segment) -> driver::Result<()> {
        let Segment { address, bytes, class } = segment;
        let held_bytes = self.driver.footprint_bytes(bytes);
        ledger.release(held_bytes, class, address, || {
            match &self.origin {
                Origin::Source(source) => source.free(address, bytes),
                Origin::Driver | Origin::Managed => self.driver.free(address)?,
            }
            let is_page_shared = self.shared.has(bytes) && !self.shared.leave(address);
            Ok(if is_page_shared { 0 } else { self.charged_bytes(bytes) })
        })
    }

    /// Managed memory, which the driver is to keep on the device as far as it can.
    fn allocate_managed(&self, bytes: u64) -> driver::Result<u64> {
        let address = self.driver.allocate_managed(bytes)?;
        let location = Location::Device(self.driver.ordinal());
        // Without the advice, pages stay where they were last used.
        let _ = self.driver.advise(address, bytes, Advice::PreferredLocation(true), location);
        Ok(address)
    }

    /// Drivers promise 256-byte alignment and in fact align to 512; one that does not cannot be
    /// used.
    fn allocate_aligned(&self, bytes: u64, stream: StreamHandle) -> driver::Result<u64> {
        let address = match &self.origin {
            Origin::Source(source) => source.allocate(bytes, stream).ok_or(SHORT)?,
            Origin::Driver => self.driver.allocate(bytes)?,
            Origin::Managed => self.allocate_managed(bytes)?,
        };
        if address != 0 && is_representable(address) {
            return Ok(address);
        }
        // The address is useless whether or not it is taken back.
        match &self.origin {
            Origin::Source(source) => source.free(address, bytes),
            Origin::Driver | Origin::Managed => drop(self.driver.free(address)),
        }
        Err(DriverError { call: Call::Allocate, code: Code::NOT_SUPPORTED })
    }
}

#[cfg(test)]
#[path = "segment_store_tests.rs"]
mod tests;
