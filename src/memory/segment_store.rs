//! Segments: memory that the driver allocates as one, under addresses of its choice
//! (`cuMemAlloc`).
//!
//! Small segments share the driver's pages ([`SharedPages`]). Whether the driver will find room
//! in one or take a new one cannot be known, so a whole page is charged before the driver is
//! asked. The limit is never exceeded; in return, within one page of the limit a small segment
//! may be refused although there was room.
//!
//! A store may have a [`SegmentSource`] in place of the driver: functions of the caller's.
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
use crate::driver::{self, Call, Code, Device, DriverError};

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
    source: Option<Arc<dyn SegmentSource>>,
    shared: SharedPages,
}

impl SegmentStore {
    /// The store of the device behind `driver`.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        let shared = SharedPages::new(driver.page_bytes());
        Self { driver, source: None, shared }
    }

    /// A store of memory of the device behind `driver` that comes from `source`.
    pub fn with_source(driver: Arc<dyn Device>, source: Arc<dyn SegmentSource>) -> Self {
        Self { driver, source: Some(source), shared: SharedPages::new(0) }
    }

    /// Returns true if segments do not come from the driver.
    pub fn has_source(&self) -> bool {
        self.source.is_some()
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
            match &self.source {
                Some(source) => source.free(address, bytes),
                None => self.driver.free(address)?,
            }
            let is_page_shared = self.shared.has(bytes) && !self.shared.leave(address);
            Ok(if is_page_shared { 0 } else { self.charged_bytes(bytes) })
        })
    }

    /// Drivers promise 256-byte alignment and in fact align to 512; one that does not cannot be
    /// used.
    fn allocate_aligned(&self, bytes: u64, stream: StreamHandle) -> driver::Result<u64> {
        let address = match &self.source {
            Some(source) => source.allocate(bytes, stream).ok_or(SHORT)?,
            None => self.driver.allocate(bytes)?,
        };
        if address != 0 && is_representable(address) {
            return Ok(address);
        }
        // The address is useless whether or not it is taken back.
        match &self.source {
            Some(source) => source.free(address, bytes),
            None => drop(self.driver.free(address)),
        }
        Err(DriverError { call: Call::Allocate, code: Code::NOT_SUPPORTED })
    }
}
