//! Managed memory: segments whose pages move between the device and the host, so that a program can
//! hold more than the device has (`GENESIS_MANAGED`).
//!
//! - A new segment is advised to be on the device, and prefetched there on the stream that asked for
//!   it, so that its first use does not fault page by page.
//! - Before more is held than the device has, cached memory is released, what lay idle most first:
//!   otherwise the driver would carry bytes to the host that nobody needs.
//! - How much may be held is limited, because the driver does not: pages for which the host has no
//!   memory end some process.
//!
//! What is live, or beyond the device in sum, is the driver's to place; a program helps by advice
//! and prefetches of its own.
//!
//! Processes that share the device (`GENESIS_SHARE`) are not told of it. Counted there, it could be no
//! more than they leave, and they would be told that nothing is left where the driver evicts for them.
//!
//! Memory that is mapped cannot be managed, so there are segments and no extents: under Elastic, the
//! strategy is Caching. Everything else is as for all segments: the driver waits for work when it
//! takes one back.

use std::sync::Arc;

use super::choice::Choice;
use super::state::{DeviceHeap, Heap, Messages};
use crate::base::size::Bytes;
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle, blocking};
use crate::config::{LogLevel, Oversubscription, PoolType, Settings};
use crate::driver::host::HostMemory;
use crate::driver::{Advice, Device, Location};
use crate::memory::{Neighbours, SegmentStore};

/// How much of the machine's memory managed memory may use unless the user says.
const HOST_PART: u64 = 2;

/// How many bytes more than it has may be held of the device of `driver`; `None`: its memory is not
/// managed. Changes `settings` to a strategy of segments.
pub(super) fn beyond_bytes(
    driver: &dyn Device,
    settings: &mut Settings,
    messages: &mut Messages,
) -> Result<Option<u64>> {
    let bytes = match settings.managed {
        Oversubscription::Off => return Ok(None),
        Oversubscription::Most(bytes) => bytes,
        Oversubscription::Auto => HostMemory::pageable().memory_info()?.total_bytes / HOST_PART,
    };
    let ordinal = driver.ordinal();
    if !driver.has_managed()? {
        let message = "has no managed memory that may be more than it has: ordinary memory";
        messages.push((LogLevel::Warn, format!("device {ordinal} {message}")));
        return Ok(None);
    }
    let strategy = &mut settings.strategy.pool_type;
    let instead = if *strategy == PoolType::Elastic { ", Caching instead of Elastic" } else { "" };
    if *strategy == PoolType::Elastic {
        *strategy = PoolType::Caching;
    }
    let message = format!("device {ordinal}: managed memory, {} beyond its own", Bytes(bytes));
    messages.push((LogLevel::Info, message + instead));
    Ok(Some(bytes))
}

/// Managed memory has no neighbours; says so if `settings` ask for them.
pub(super) fn not_shared(
    ordinal: DeviceOrdinal,
    settings: &Settings,
    messages: &mut Messages,
) -> Option<Arc<dyn Neighbours>> {
    if settings.share.is_some() {
        let message = "managed memory is in no register: the driver evicts it for others";
        messages.push((LogLevel::Warn, format!("device {ordinal}: GENESIS_SHARE: {message}")));
    }
    None
}

impl DeviceHeap<'_> {
    /// Segments of the device, for the backing or for a private pool.
    pub(super) fn segment_store(self) -> SegmentStore {
        let driver = Arc::clone(&self.state.driver);
        if self.is_managed() { SegmentStore::managed(driver) } else { SegmentStore::new(driver) }
    }

    /// Releases cached memory, so that no more is held than the device has, before `segment_bytes`
    /// more are.
    pub(super) fn stay_on_device(self, segment_bytes: u64) {
        if self.is_managed() {
            let wanted_bytes = self.ledger.reserved_bytes().saturating_add(segment_bytes);
            let excess_bytes = wanted_bytes.saturating_sub(self.ledger.total_bytes());
            self.release(Choice::LeastNeeded { bytes: excess_bytes });
        }
    }

    /// The error of a call for managed memory.
    fn require_managed(self) -> Result<()> {
        if self.is_managed() {
            return Ok(());
        }
        let message = format!("the memory of device {} is not managed", self.ordinal);
        Err(Error::new(Status::NotSupported, message))
    }
}

impl Heap {
    /// Tells the driver of `[address, address + bytes)`, a part of one live block in managed memory.
    /// `NotSupported` if the block's memory is not managed; `InvalidArgument` if the range is not
    /// within one block.
    pub fn advise(
        &self,
        address: u64,
        bytes: u64,
        advice: Advice,
        location: Location,
    ) -> Result<()> {
        let device = self.managed_device(address, bytes, location)?;
        Ok(blocking(|| device.driver.advise(address, bytes, advice, location))?)
    }

    /// Brings `[address, address + bytes)`, a part of one live block in managed memory, to `location`,
    /// in the order of `stream`. Errors are as for [`Self::advise`]; during the capture of `stream`,
    /// `DriverFailed`, and the capture goes on.
    pub fn prefetch(
        &self,
        address: u64,
        bytes: u64,
        location: Location,
        stream: StreamHandle,
    ) -> Result<()> {
        let device = self.managed_device(address, bytes, location)?;
        Ok(blocking(|| device.driver.prefetch_outside_capture(address, bytes, location, stream))?)
    }

    fn managed_device(
        &self,
        address: u64,
        bytes: u64,
        location: Location,
    ) -> Result<DeviceHeap<'_>> {
        if let Location::Device(ordinal) = location {
            self.slot(ordinal)?;
        }
        let block = self.block_containing(address)?;
        let device: DeviceOrdinal = block.device;
        let device = self.device(device)?;
        device.require_managed()?;
        let end = block.address + block.allocated_bytes;
        if bytes == 0 || address.checked_add(bytes).is_none_or(|last| last > end) {
            let message = format!("{bytes} bytes from {address:#x} are not within a block");
            return Err(Error::invalid_argument(message));
        }
        Ok(device)
    }
}
