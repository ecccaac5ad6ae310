//! Segments: memory that the driver allocates as one, under addresses of its choice
//! (`cuMemAlloc`).
//!
//! Small segments share the driver's pages ([`SharedPages`]). Whether the driver will find room
//! in one or take a new one cannot be known, so a whole page is charged before the driver is
//! asked. The limit is never exceeded; in return, within one page of the limit a small segment
//! may be refused although there was room.
//!
//! Every function may call the driver, so the caller holds no lock.

use std::sync::Arc;

use super::Segment;
use super::directory::is_representable;
use super::ledger::{Ledger, Refusal};
use super::shared_pages::SharedPages;
use crate::base::size::SizeClass;
use crate::driver::{self, Call, Code, Device, DriverError};

/// Gets the segments of one device from its driver, and releases them.
#[derive(Debug)]
pub struct SegmentStore {
    driver: Arc<dyn Device>,
    shared: SharedPages,
}

impl SegmentStore {
    /// The store of the device behind `driver`.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        let shared = SharedPages::new(driver.page_bytes());
        Self { driver, shared }
    }

    /// How many bytes are charged for a segment of `bytes`.
    pub fn charged_bytes(&self, bytes: u64) -> u64 {
        let held_bytes = self.driver.footprint_bytes(bytes);
        match self.shared.page_bytes() {
            0 => held_bytes,
            page_bytes => held_bytes.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX),
        }
    }

    /// Gets a segment of `bytes` for blocks of `class`.
    pub fn acquire(
        &self,
        ledger: &Ledger,
        bytes: u64,
        class: SizeClass,
    ) -> Result<Segment, Refusal> {
        let charged_bytes = self.charged_bytes(bytes);
        ledger.charge(charged_bytes)?;
        match self.allocate_aligned(bytes) {
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
            self.driver.free(address)?;
            let is_page_shared = self.shared.has(bytes) && !self.shared.leave(address);
            Ok(if is_page_shared { 0 } else { self.charged_bytes(bytes) })
        })
    }

    /// Drivers promise 256-byte alignment and in fact align to 512; one that does not cannot be
    /// used.
    fn allocate_aligned(&self, bytes: u64) -> driver::Result<u64> {
        let address = self.driver.allocate(bytes)?;
        if address != 0 && is_representable(address) {
            return Ok(address);
        }
        // The address is useless whether or not the driver takes it back.
        let _ = self.driver.free(address);
        Err(DriverError { call: Call::Allocate, code: Code::NOT_SUPPORTED })
    }
}
