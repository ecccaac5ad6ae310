//! The gate between waits and captures: every wait for a device, every query of a stream and every
//! release of memory passes here, and fails while a stream may be captured (`captures` has the rules).

use std::sync::Arc;

use super::attempts::wait_until;
use super::captures::{Wait, begin_wait, forbidden};
use super::pools::{PoolFilter, PoolId, PoolUse};
use super::state::{Climb, DeviceHeap, DeviceSlot, Heap};
use crate::base::sync::atomic::{Ordering::SeqCst, fence};
use crate::base::{DeviceOrdinal, Result, StreamHandle, blocking};
use crate::driver;
use crate::order::{Contexts, EventCache};

impl Heap {
    /// Runs `wait`, a wait for work of `device` on behalf of memory that is not the heap's; during a
    /// capture, returns the error that the driver would. The device need not be in use here.
    pub fn wait_outside_captures(
        &self,
        device: DeviceOrdinal,
        wait: &mut dyn FnMut() -> driver::Result<()>,
    ) -> driver::Result<()> {
        let slot = self.slot(device).map_err(|_| forbidden())?;
        let _wait = slot.begin_wait()?;
        // This invalidates no capture, and finds those that synchronise with the legacy stream.
        if slot.driver.stream_is_capturing(StreamHandle::LEGACY)? {
            return Err(forbidden());
        }
        blocking(wait)
    }
}

impl DeviceSlot {
    /// Returns true if a stream of the device may be captured now. The device may not be in use yet.
    fn may_capture(&self) -> bool {
        let is_routing = || self.state.get().is_some_and(|state| state.pools.is_routing());
        self.captures.is_any() || is_routing()
    }

    /// Begins a wait for the device, which may not be in use yet.
    fn begin_wait(&self) -> driver::Result<Wait> {
        begin_wait(&self.captures, || self.may_capture())
    }
}

impl<'a> DeviceHeap<'a> {
    /// Returns true if a stream of the device may be captured now.
    pub(super) fn may_capture(self) -> bool {
        self.pools.is_routing() || self.captures.is_any()
    }

    /// The device, and the others whose contexts use its memory: a capture on any of them may forbid to
    /// wait for that memory.
    fn slots_waited_for(self) -> impl Iterator<Item = &'a DeviceSlot> {
        let own = self.heap.slot(self.ordinal).ok();
        own.into_iter().chain(self.slots_of(self.contexts.others()))
    }

    /// How many captures that matter to the device had become known before those that may be under way now;
    /// wraps around.
    pub(super) fn captures_before(self) -> u32 {
        let before = |slot: &DeviceSlot| {
            // In this order: one that becomes known in between does so later.
            let known = slot.captures.known();
            known.wrapping_sub(u32::from(slot.may_capture()))
        };
        self.slots_waited_for().map(before).fold(0, u32::wrapping_add)
    }

    /// Returns true if there have been captures that matter to the device since `before`, or are some; but not
    /// if this thread has begun one.
    pub(super) fn others_captured(self, before: u32) -> bool {
        let known = self.slots_waited_for().map(|slot| slot.captures.known());
        let is_any = known.fold(0, u32::wrapping_add) != before || self.may_hold_back();
        is_any && !self.heap.devices.iter().any(|slot| slot.captures.is_begun_here())
    }

    /// Returns true if a capture may forbid to wait for the memory of the device.
    fn may_hold_back(self) -> bool {
        self.slots_waited_for().any(DeviceSlot::may_capture)
    }

    /// Waits for captures to end, as [`wait_until`]; returns true if none is left.
    pub(super) fn let_captures_end(self) -> bool {
        wait_until(|| {
            let states = self.slots_waited_for().filter_map(|slot| slot.state.get());
            states.for_each(|state| DeviceHeap { heap: self.heap, state }.look_for_ends());
            !self.may_hold_back()
        })
    }

    /// Begins a wait for the device, a query of a stream or a release of memory; it lasts until the
    /// result is dropped. Fails while a stream of the device may be captured.
    pub(super) fn begin_wait(self) -> driver::Result<Wait> {
        begin_wait(&self.captures, || self.may_capture())
    }

    /// Runs `act`, which captures forbid; during a capture, returns the error that the driver
    /// would.
    pub(super) fn outside_captures(
        self,
        act: impl FnOnce() -> driver::Result<()>,
    ) -> driver::Result<()> {
        let _wait = self.begin_wait()?;
        blocking(act)
    }

    /// The other devices whose contexts are among `others`.
    fn slots_of(
        self,
        others: impl IntoIterator<Item: AsRef<EventCache>>,
    ) -> impl Iterator<Item = &'a DeviceSlot> {
        let ordinals = others.into_iter().map(|events| events.as_ref().driver().ordinal());
        let ordinals = ordinals.filter(move |&ordinal| ordinal != self.ordinal);
        ordinals.filter_map(move |ordinal| self.heap.slot(ordinal).ok())
    }

    /// [`Self::begin_wait`] for the other devices whose contexts are among `others`.
    fn begin_waits_for(self, others: &[Arc<EventCache>]) -> driver::Result<Vec<Wait>> {
        self.slots_of(others).map(DeviceSlot::begin_wait).collect()
    }

    /// Waits for the other contexts that use the memory of the device, because `cuMemFree` waits
    /// only for its own. The caller has begun a wait for the device.
    pub(super) fn wait_for_other_contexts(self) -> driver::Result<()> {
        let others = self.contexts.others();
        let _waits = self.begin_waits_for(&others)?;
        Contexts::synchronize_others(&others)
    }

    /// Waits for all work of all contexts that use the memory of the device.
    pub(super) fn wait_for_contexts(self) -> driver::Result<()> {
        let _wait = self.begin_wait()?;
        let others = self.contexts.others();
        let _waits = self.begin_waits_for(&others)?;
        // This invalidates no capture, and finds those that synchronise with the legacy stream.
        if self.driver.stream_is_capturing(StreamHandle::LEGACY)? {
            return Err(forbidden());
        }
        blocking(|| self.contexts.synchronize(&others))
    }

    /// Checks whether captures that were only seen have ended. It asks only about streams that last
    /// as long as the process: others may be destroyed at any moment. All streams of
    /// PyTorch's hooks are taken to last here, although others made some, which may be gone: a capture whose
    /// end is never found would forbid all waits.
    pub(super) fn look_for_ends(self) {
        if self.captures.seen.load(SeqCst) == 0 || !self.heap.policy.identifies_streams() {
            return;
        }
        for lane in self.lanes().filter(|lane| lane.was_capturing()) {
            let handle = lane.stream().lasting_handle();
            let has_ended = |handle| self.driver.stream_is_capturing(handle) == Ok(false);
            if handle.is_some_and(has_ended) {
                self.captures.see(false, |now| lane.set_capturing(now));
            }
        }
    }

    /// Waits until the device is idle: then every stream can use every freed block. Returns false
    /// if it could not wait, for example because a stream is captured.
    pub(super) fn wait_for_device(self) -> bool {
        !self.may_capture() && self.synchronize().is_ok()
    }

    /// Waits until all work that may use the memory of the device is complete. Fails while a stream
    /// may be captured.
    pub(super) fn synchronize(self) -> driver::Result<()> {
        let lanes = || self.lanes();
        let epochs: Vec<u32> = lanes().map(|lane| lane.lock().fence.end_epoch()).collect();
        self.wait_for_contexts()?;
        for (lane, epoch) in lanes().zip(epochs) {
            lane.device_was_idle(epoch, self.contexts.own());
        }
        Ok(())
    }

    /// `Heap::begin_pool` of the device.
    pub(super) fn begin_pool(
        self,
        pool: PoolId,
        filter: PoolFilter,
        purpose: PoolUse,
    ) -> Result<()> {
        self.pools.begin(pool, filter, purpose)?;
        if purpose == PoolUse::Capture {
            self.captures.begin_here();
            fence(SeqCst);
            self.captures.become_known();
        }
        Ok(())
    }

    /// `Heap::end_pool` of the device.
    pub(super) fn end_pool(self, pool: PoolId) -> Result<()> {
        if self.pools.end(pool)? == PoolUse::Capture {
            self.captures.end_here();
            self.capture_has_ended();
        }
        Ok(())
    }
}

impl Climb<'_> {
    /// Checks whether the stream of a request that may need the driver is captured, because the
    /// capture may not have been announced.
    pub(super) fn look_for_capture(&self) {
        let Climb { device, lane, stream, .. } = *self;
        // An announced capture counts until its end is announced.
        if device.pools.is_routing() || device.captures.is_told() {
            return;
        }
        // A driver that cannot tell has no captures.
        if device.driver.stream_is_capturing(stream) == Ok(true) {
            device.captures.see(true, |now| lane.set_capturing(now));
            device.captures.become_known();
        } else if lane.was_capturing() {
            device.captures.see(false, |now| lane.set_capturing(now));
        }
        device.look_for_ends();
    }
}
