//! Memory made ready before it is asked for: a number of bytes, or what the plan of an earlier run
//! names (`super::plan`). It becomes free memory of lanes; all else is as if it had been used and
//! freed.
//!
//! **Streams to come.** The streams of a plan have not come yet, so its lanes are made for *streams
//! to come*, when the device is opened. The first stream that makes a request gets the first of
//! them, with what is ready there, the second one the second. Until then their memory can be taken
//! and released as that of any other lane: no stream ever used it.
//!
//! **Requests meanwhile** do not wait. They take what is ready, or grow as always; what they grow by
//! is made ready no more, because the device then holds as much as the plan says.
//!
//! **Shortage.** At a limit, or if the driver has no more, the rest of the plan is left out. What is
//! ready stays.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::lane::Lane;
use super::owner::LaneKey;
use super::plan::{DeviceModel, DevicePlan};
use super::pools::PoolNumber;
use super::state::{Backing, Climb, DeviceHeap, NO_STREAM};
use crate::base::size::LARGEST_REQUEST_BYTES;
use crate::base::{Error, Result, Status, StreamHandle};
use crate::order::StreamKey;

/// A plan on its way to a device.
#[derive(Clone, Copy)]
pub(super) struct Making<'a> {
    pub(super) device: DeviceHeap<'a>,
    pub(super) plan: &'a DevicePlan,
    /// Set by another thread once the rest is to be left out.
    pub(super) is_over: &'a AtomicBool,
}

impl<'a> DeviceHeap<'a> {
    /// Makes lanes for the next `count` streams. Calls no driver.
    pub(super) fn expect_streams(self, count: usize) -> Result<()> {
        (0..count as u64).try_for_each(|number| {
            let key = LaneKey { stream: StreamKey::of_coming(number), pool: PoolNumber::COMMON };
            let (lane, state) = self.enter(key, StreamHandle::LEGACY)?;
            drop(state);
            self.coming.lock().push(lane.index);
            Ok(())
        })
    }

    /// The lane of the stream that came, or will come, after `number` others.
    fn expected(self, number: usize) -> Option<&'a Lane> {
        let index = self.state.coming.lock().get(number).copied()?;
        self.heap.lanes.get(index)
    }

    /// What decides which plans are for the device.
    pub(super) fn model(self) -> DeviceModel {
        DeviceModel {
            name: self.name.clone(),
            total_bytes: self.ledger.total_bytes(),
            pool_type: self.pool_type,
            granule_bytes: self.backing.extents().map_or(1, |extents| extents.granule_bytes()),
        }
    }

    /// `Heap::plan` of the device: as it is now, or was when most was held.
    pub(super) fn plan(self) -> DevicePlan {
        let now = self.plan_now();
        let kept = self.kept_plan.lock().clone();
        let most = kept.filter(|kept| kept.held_bytes() > now.held_bytes()).unwrap_or(now);
        match &self.state.backing {
            Backing::Segments(_) => most,
            Backing::Extents(extents) => extents.judged(most),
        }
    }

    /// Cached memory is about to be released on request: keeps what is held now, if it is the most so
    /// far and the process wants a plan.
    pub(super) fn keep_plan(self) {
        if self.heap.settings.lock().plan.is_none() {
            return;
        }
        let now = self.plan_now();
        let mut kept = self.kept_plan.lock();
        if kept.as_ref().is_none_or(|kept| now.held_bytes() >= kept.held_bytes()) {
            *kept = Some(now);
        }
    }

    fn plan_now(self) -> DevicePlan {
        // What was made for a stream that never came was not needed.
        let was_needed = |lane: &&Lane| !lane.pool().is_private() && !lane.stream().is_coming();
        let lanes: Vec<&Lane> = self.lanes().filter(was_needed).collect();
        let (lanes, extents) = match &self.state.backing {
            Backing::Segments(segments) => (segments.plan(&lanes), Vec::new()),
            Backing::Extents(extents) => extents.plan(&lanes),
        };
        let (device, model, peak_bytes) = (self.ordinal, self.model(), self.most_live_bytes(0));
        DevicePlan { device, model, peak_bytes, needs_finer: false, lanes, extents }
    }

    /// `Heap::make_ready` of the device.
    pub(super) fn make_ready(self, plan: &DevicePlan, is_over: &AtomicBool) -> Result<()> {
        let model = self.model();
        if plan.model != model {
            let message = format!("it is for {:?}, and this is {model:?}", plan.model);
            return Err(Error::invalid_argument(message));
        }
        plan.check().map_err(Error::invalid_argument)?;
        self.expected_peak_bytes.fetch_max(plan.peak_bytes, Relaxed);
        let making = Making { device: self, plan, is_over };
        let made = match &self.state.backing {
            Backing::Segments(segments) => segments.make_ready(making),
            Backing::Extents(extents) => extents.make_ready(making),
        };
        self.settle();
        made
    }

    /// [`Self::preallocate`] for the first stream that comes.
    pub(super) fn preallocate_for_first(self, bytes: u64) -> Result<()> {
        self.expected(0).map_or(Ok(()), |lane| self.preallocate(lane, bytes))
    }

    /// `Heap::preallocate` of the device.
    pub(super) fn preallocate(self, lane: &Lane, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.pool_type.cuts_blocks() {
            let message = format!("{} reuses blocks of the same size only", self.pool_type.name());
            return Err(Error::new(Status::NotSupported, message));
        }
        if bytes > LARGEST_REQUEST_BYTES {
            return Err(self.too_large(bytes));
        }
        let is_made = self.climbing(lane, bytes, |climb| match &self.state.backing {
            Backing::Segments(segments) => segments.preallocate(climb),
            Backing::Extents(extents) => extents.preallocate(climb),
        })?;
        self.settle();
        if is_made { Ok(()) } else { Err(self.short_of(bytes)) }
    }

    /// Calls `act` with a climb for `bytes`, which is no request and names no stream.
    pub(super) fn climbing<T>(
        self,
        lane: &Lane,
        bytes: u64,
        act: impl FnOnce(&Climb<'_>) -> T,
    ) -> T {
        lane.begin_climb(&mut lane.lock());
        let climb = Climb {
            device: self,
            lane,
            stream: StreamHandle::LEGACY,
            requested_bytes: bytes,
            block_bytes: bytes,
            is_alone: false,
            captures_before: self.captures_before(),
            number: NO_STREAM,
        };
        let result = self.attempts.attempt(|| act(&climb)).result;
        lane.end_climb(false);
        result
    }

    #[cold]
    fn short_of(self, bytes: u64) -> Error {
        let (held, most) = (self.ledger.reserved_bytes(), self.usable_bytes());
        let message = format!(
            "device {}: no {bytes} bytes beforehand: {held} are held, of at most {most}",
            self.ordinal
        );
        Error::new(Status::OutOfMemory, message)
    }
}

impl<'a> Making<'a> {
    /// The lane of that number in the plan.
    pub(super) fn lane(&self, number: usize) -> Option<&'a Lane> {
        self.device.expected(number)
    }

    /// Returns true if `bytes` more are still wanted: what the program has got for itself counts.
    pub(super) fn wants(&self, bytes: u64) -> bool {
        let held_bytes = self.device.ledger.reserved_bytes();
        self.goes_on() && held_bytes.saturating_add(bytes) <= self.plan.held_bytes()
    }

    /// Returns true if the rest is still wanted.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_over.load(Relaxed)
    }
}
