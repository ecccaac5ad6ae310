//! What a device's memory consists of: segments or extents. Callers need not know which.
//!
//! | backing | strategies | memory for a miss | released |
//! |---|---|---|---|
//! | [`Segments`] | Naive, Round, Exact, Caching | another lane's or a new segment | segments |
//! | [`Extents`] | Elastic | free memory from anywhere, mapped where needed | extents |
//!
//! Each variant implements the rungs of the ladder that bring memory to a lane, and the release of
//! memory (of segments, only whole ones). Private pools may have segments of their own, beside either
//! (`own_memory`). All else is the same for both. A new source is a new
//! variant.

use std::sync::Arc;

use super::choice::Choice;
use super::lane::{Lane, LaneState};
use super::pool_memory::Segments;
use super::segments::release_own;
use super::state::{Backing, Climb, DeviceHeap, Extents, Messages, Pressure, Rung};
use crate::base::{DeviceOrdinal, Result};
use crate::config::{ElasticPolicy, LogLevel, PoolType, Settings};
use crate::driver::{self, Device};
use crate::memory::Segment;
use crate::observe::DeviceEvents;

impl Backing {
    /// Opens the backing that the strategy of `settings` needs on the device of `driver`. If the
    /// device cannot support Elastic, changes `settings` to Caching.
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
        Ok(Self::Segments(Segments::new(Arc::clone(driver), false)))
    }

    /// Returns the extents; `None` for segments.
    pub(super) fn extents(&self) -> Option<&Extents> {
        match self {
            Self::Segments(_) => None,
            Self::Extents(extents) => Some(extents),
        }
    }

    /// A block of at least this many bytes is never taken from a lane's free blocks.
    pub(super) fn always_missed_bytes(&self) -> u64 {
        match self {
            Self::Segments(_) => u64::MAX,
            Self::Extents(extents) => extents.single_handle_bytes(),
        }
    }

    /// Serves a request by a window that its lane knows: no call of the driver.
    pub(super) fn serve_as_known(&self, climb: &Climb<'_>) -> Option<u64> {
        self.extents()?.serve_as_known(climb)
    }

    /// Serves a request that its lane could not serve.
    pub(super) fn serve(&self, climb: &Climb<'_>, pressure: Pressure) -> Rung {
        if let Some(own) = climb.device.pools.own(climb.lane.pool()) {
            return own.segments.serve(climb, pressure);
        }
        match self {
            Self::Segments(segments) => segments.serve(climb, pressure),
            Self::Extents(extents) => extents.serve(climb, pressure),
        }
    }

    /// Returns true if there is something to do at a trough of the lane, whose state is `state`: memory that
    /// came into being there may be elsewhere, or its extents are to be laid or cut anew.
    pub(super) fn has_work_at_trough(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        state: &LaneState,
    ) -> bool {
        self.extents().is_some_and(|extents| {
            extents.may_have_strays(lane)
                || state.moves.need_new_layout()
                || extents.needs_new_cut(device, lane, state)
        })
    }

    /// The lane's live memory is at its usual low: extents return to where they came from. Returns true
    /// if that may have waited for the device.
    pub(super) fn come_home(&self, climb: &Climb<'_>) -> bool {
        match self {
            Self::Segments(_) => false,
            Self::Extents(extents) => extents.come_home(climb),
        }
    }

    /// Returns true if free memory of several lanes is put together for one request; otherwise one
    /// piece must be large enough.
    pub(super) fn gathers(&self) -> bool {
        matches!(self, Self::Extents(_))
    }

    /// Makes extents as small as they can be; returns true if there are extents, and they were to be larger.
    pub(super) fn make_finer(&mut self) -> bool {
        match self {
            Self::Segments(_) => false,
            Self::Extents(extents) => extents.make_finer(),
        }
    }

    /// The setting with which less memory is lost in pieces between live blocks, if there is one.
    pub(super) fn finer_setting(&self) -> Option<&'static str> {
        let is_coarse = self.extents()?.policy == ElasticPolicy::Balanced;
        is_coarse.then_some("GENESIS_ELASTIC_POLICY=fine")
    }

    /// The bytes that the ledger charges for `bytes` of memory.
    pub(super) fn charged_bytes(&self, bytes: u64) -> u64 {
        match self {
            Self::Segments(segments) => segments.charged_bytes(bytes),
            Self::Extents(extents) => extents.charged_bytes(bytes),
        }
    }

    /// Releases the cached memory that `choice` names; returns the bytes released. The caller has
    /// checked that no stream is captured.
    pub(super) fn release(&self, device: DeviceHeap<'_>, choice: Choice) -> u64 {
        match self {
            // The driver waits for all work when it takes a segment back.
            Self::Segments(_) if !choice.may_wait() => 0,
            Self::Segments(segments) => segments.release(device, choice),
            Self::Extents(extents) => {
                let own_bytes = release_own(device, choice);
                own_bytes + extents.release(device, choice.less(own_bytes))
            }
        }
    }

    /// Releases a segment taken from `lane` to the driver; if that fails, puts it back in the lane.
    pub(super) fn release_segment(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        segment: Segment,
    ) -> driver::Result<()> {
        match self {
            Self::Segments(segments) => segments.release_segment(device, lane, segment),
            Self::Extents(_) => {
                // Elastic keeps every block: blocks never leave one by one.
                lane.end_leave(Some(segment));
                Ok(())
            }
        }
    }

    /// Lets `peer` access all memory, held now or later.
    pub(super) fn add_peer(&self, driver: &dyn Device, peer: DeviceOrdinal) -> driver::Result<()> {
        match self {
            Self::Segments(_) => driver.add_peer(peer),
            Self::Extents(extents) => extents.add_peer(peer),
        }
    }

    /// The bytes held that are in no lane, because the driver did not take them back.
    pub(super) fn resting_bytes(&self) -> u64 {
        self.extents().map_or(0, |extents| extents.store.resting_bytes())
    }

    /// Checks what is kept outside the lanes; returns the bytes held there.
    pub(super) fn validate(&self, device: DeviceHeap<'_>) -> std::result::Result<u64, String> {
        match self {
            Self::Segments(_) => Ok(0),
            Self::Extents(extents) => extents.validate(device),
        }
    }
}
