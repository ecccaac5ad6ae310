//! What a device's memory consists of: the one place where it matters which.
//!
//! | backing | strategies | a miss takes | goes back to the driver |
//! |---|---|---|---|
//! | [`Segments`] | Naive, Round, Exact, Caching | a segment of another lane, or a new one | whole segments |
//! | [`Extents`] | Elastic | memory from wherever it is free, mapped where it is needed | extents |
//!
//! Each has the rungs of the ladder that bring memory to a lane, and what giving it back takes.
//! Whatever else a heap does is the same for both. A further source of memory is a further variant.

use std::sync::Arc;

use super::choice::Choice;
use super::lane::Lane;
use super::state::{Backing, Climb, DeviceHeap, Extents, Messages, Pressure, Rung, Segments};
use crate::base::{DeviceOrdinal, Result};
use crate::config::{LogLevel, PoolType, Settings};
use crate::driver::{self, Device};
use crate::memory::Segment;
use crate::observe::DeviceEvents;

impl Backing {
    /// What the strategy of `settings` needs on the device behind `driver`. Where Elastic cannot
    /// be had, `settings` say Caching afterwards.
    pub(super) fn open(
        driver: &Arc<dyn Device>,
        settings: &mut Settings,
        events: DeviceEvents,
        messages: &mut Messages,
    ) -> Result<Self> {
        if settings.strategy.pool_type == PoolType::Elastic {
            if let Some(extents) = Extents::open(driver, settings, events)? {
                return Ok(Self::Extents(extents));
            }
            let message = "has no virtual memory management: Caching instead of Elastic";
            messages.push((LogLevel::Warn, format!("device {} {message}", driver.ordinal())));
            settings.strategy.pool_type = PoolType::Caching;
        }
        Ok(Self::Segments(Segments::new(Arc::clone(driver))))
    }

    /// The extents, if it is made of them.
    pub(super) fn extents(&self) -> Option<&Extents> {
        match self {
            Self::Segments(_) => None,
            Self::Extents(extents) => Some(extents),
        }
    }

    /// A block of at least this many bytes is never taken from what a lane has free.
    pub(super) fn always_missed_bytes(&self) -> u64 {
        match self {
            Self::Segments(_) => u64::MAX,
            Self::Extents(extents) => extents.single_handle_bytes(),
        }
    }

    /// Serves a request that its lane does not.
    pub(super) fn serve(&self, climb: &Climb<'_>, pressure: Pressure) -> Rung {
        match self {
            Self::Segments(segments) => segments.serve(climb, pressure),
            Self::Extents(extents) => extents.serve(climb, pressure),
        }
    }

    /// Whether pieces of free memory are put together for one request, whichever lanes they are
    /// in; else one piece has to be large enough.
    pub(super) fn gathers(&self) -> bool {
        matches!(self, Self::Extents(_))
    }

    /// What memory for `bytes` takes of the device.
    pub(super) fn charged_bytes(&self, bytes: u64) -> u64 {
        match self {
            Self::Segments(segments) => segments.charged_bytes(bytes),
            Self::Extents(extents) => extents.charged_bytes(bytes),
        }
    }

    /// Gives cached memory back as `choice` says; returns the bytes released. No stream is captured.
    pub(super) fn release(&self, device: DeviceHeap<'_>, choice: Choice) -> u64 {
        match self {
            Self::Segments(segments) => segments.release(device, choice),
            Self::Extents(extents) => extents.release(device, choice),
        }
    }

    /// Gives a segment that leaves `lane` back to the driver, or else to the lane.
    pub(super) fn release_segment(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        segment: Segment,
    ) -> Result<()> {
        match self {
            Self::Segments(segments) => segments.release_segment(device, lane, segment),
            Self::Extents(_) => {
                // Elastic keeps every block; nothing leaves one by one.
                lane.end_leave(Some(segment));
                Ok(())
            }
        }
    }

    /// Lets `peer` access the memory, what is held and what will be.
    pub(super) fn add_peer(&self, driver: &dyn Device, peer: DeviceOrdinal) -> driver::Result<()> {
        match self {
            Self::Segments(_) => driver.add_peer(peer),
            Self::Extents(extents) => extents.add_peer(peer),
        }
    }

    /// Checks what is kept beside the lanes; returns the bytes held that are in no lane.
    pub(super) fn validate(&self, device: DeviceHeap<'_>) -> std::result::Result<u64, String> {
        match self {
            Self::Segments(_) => Ok(0),
            Self::Extents(extents) => extents.validate(device),
        }
    }
}
