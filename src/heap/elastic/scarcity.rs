//! Memory that becomes *scarce*: hardly any is left of the device, and about as much lies in pieces.
//!
//! The free part of an extent that is partly in use cannot be moved. So a device that a program fills may
//! have as much free as a request needs, and still not serve it. Finer extents leave smaller pieces, but
//! they cost driver time, for nothing where a device has room for the program. How much it will need,
//! nobody knows at its start. So extents become finer once memory is scarce:
//!
//! ```text
//! scarce    once less than device / SCARCE_PART is left, and more than three quarters of that, and than
//!           device / LEAST_PIECES_PART, lies in pieces;
//!           or once a request had to be served over edges (`edges`), or was refused although as much
//!           was free, in pieces
//! extent    at most device / FINEST_PART from then on
//! ```
//!
//! That alone changes little, because what fills the device by then is coarse. So at the next trough of
//! each large lane all free memory of the device goes back, once; and once more whenever a request of the
//! lane left hardly anything since ([`NARROW_PART`]), or needed edges, because what was in use then may be
//! free now, and coarse. Its blocks get finer extents in the next cycle, in a new layout. This costs a second
//! or two of driver time each time, at worst, and the host waits for the work that may still use that memory;
//! but the next higher peak of the program may not fit otherwise.
//!
//! Restless lanes (`heap::moves`) would move finer extents for as long as they run, and keep theirs. Private
//! pools have no part in this: what they have serves nobody else, and does not go back.

use std::sync::atomic::Ordering::Relaxed;

use super::super::choice::Choice;
use super::super::lane::{Lane, LaneState};
use super::super::state::{Climb, DeviceHeap, Extents};
use super::ablation::Part;
use crate::base::size::Bytes;
use crate::config::{ElasticPolicy, LogLevel};

/// Memory is scarce once less than this part of the device is left …
const SCARCE_PART: u64 = 64;
/// … and this part lies in pieces: less would hardly serve a request.
const LEAST_PIECES_PART: u64 = 512;
/// The driver is asked how much is left once less than this part seems to be.
const ASKED_PART: u64 = 16;
/// Hardly anything is left once less than this part of the device can still be created or moved.
const NARROW_PART: u64 = 512;
/// Once memory is scarce an extent is at most this part of the device.
const FINEST_PART: u64 = 8192;
/// Extents are too coarse that have at least so many times as much.
const TOO_COARSE: u64 = 2;
/// A large lane holds at least this part of the device, so there are at most so many.
const LARGE_LANE_PART: u64 = 8;

impl Extents {
    /// Follows whether memory is scarce, after extents of the sizes `created` have come into being.
    pub(super) fn follow_scarcity(&self, device: DeviceHeap<'_>, created: &[u64]) {
        if created.is_empty() || self.policy != ElasticPolicy::Balanced || self.is_scarce() {
            return;
        }
        let device_bytes = device.usable_bytes();
        let left_bytes = really_left_bytes(device);
        if left_bytes < device_bytes / SCARCE_PART
            && self.bytes_in_pieces(device)
                > (left_bytes / 4 * 3).max(device_bytes / LEAST_PIECES_PART)
        {
            self.become_scarce(device);
        }
    }

    /// A request was refused although as much was free, in pieces.
    pub(in super::super) fn note_in_pieces(&self, device: DeviceHeap<'_>) {
        self.was_in_pieces.store(true, Relaxed);
        self.become_scarce(device);
    }

    /// A request of `lane` leaves `spare_bytes()` of all that can be created or moved for it: if that is hardly
    /// anything, what is coarse is in the way of the next one.
    pub(super) fn note_spare(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        spare_bytes: impl FnOnce() -> u64,
    ) {
        if self.is_scarce() && spare_bytes() < device.usable_bytes() / NARROW_PART {
            lane.lock().is_cut_anew = false;
        }
    }

    /// Memory is scarce, if it was not: a request was served over edges, for example, and would otherwise have
    /// been refused, or nearly.
    pub(super) fn become_scarce(&self, device: DeviceHeap<'_>) {
        if self.policy == ElasticPolicy::Balanced && !self.is_scarce.swap(true, Relaxed) {
            device.heap.log.write(
                LogLevel::Info,
                &format_args!(
                    "device {}: memory is scarce; extents of at most {} from now on",
                    device.ordinal,
                    Bytes(self.finest_bytes(device))
                ),
            );
        }
    }

    fn is_scarce(&self) -> bool {
        self.is_scarce.load(Relaxed) && Part::Scarcity.is_in()
    }

    /// The most bytes of an extent of a lane that is restless or not, if memory is scarce.
    pub(super) fn most_if_scarce(&self, device: DeviceHeap<'_>, is_restless: bool) -> Option<u64> {
        (self.is_scarce() && !is_restless).then(|| self.finest_bytes(device))
    }

    fn finest_bytes(&self, device: DeviceHeap<'_>) -> u64 {
        let granule_bytes = self.store.granule_bytes();
        (device.usable_bytes() / FINEST_PART).max(1).next_multiple_of(granule_bytes)
    }

    /// The free bytes of extents that are partly in use.
    fn bytes_in_pieces(&self, device: DeviceHeap<'_>) -> u64 {
        let common = device.lanes().filter(|lane| !lane.pool().is_private());
        let free_bytes: u64 = common.map(|lane| lane.counters.inactive_bytes()).sum();
        free_bytes.saturating_sub(self.whole_bytes(device, 0))
    }

    /// The bytes of wholly free extents of at least `least_bytes`.
    fn whole_bytes(&self, device: DeviceHeap<'_>, least_bytes: u64) -> u64 {
        let mut whole_bytes = 0;
        for lane in device.lanes().filter(|lane| !lane.pool().is_private()) {
            let state = lane.lock();
            let extents = self.store.extents();
            state.visit_free_extents(&extents, self.store.granule_bytes(), |_, _, id| {
                let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
                whole_bytes += if bytes < least_bytes { 0 } else { bytes };
            });
        }
        whole_bytes
    }

    /// Returns true if the device's free memory is to go back at the next trough of `lane`.
    pub(in super::super) fn needs_new_cut(
        &self,
        device: DeviceHeap<'_>,
        lane: &Lane,
        state: &LaneState,
    ) -> bool {
        let is_large = || lane.counters.held_bytes() >= device.usable_bytes() / LARGE_LANE_PART;
        self.is_scarce()
            && !state.is_cut_anew
            && !state.moves.are_restless()
            && !lane.pool().is_private()
            && is_large()
    }

    /// Gives the device's free memory back if the lane needs that, so that it comes again in finer extents;
    /// unless hardly any of it is coarse. Then, and while a stream may be captured, a later trough is waited
    /// for. Returns true if it may have waited for the device.
    pub(super) fn cut_anew_if_due(&self, climb: &Climb<'_>) -> bool {
        let Climb { device, lane, .. } = *climb;
        if !self.needs_new_cut(device, lane, &lane.lock()) {
            return false;
        }
        climb.look_for_capture();
        if device.may_capture() {
            return false;
        }
        let coarse_bytes = self.whole_bytes(device, TOO_COARSE * self.finest_bytes(device));
        let is_coarse = coarse_bytes >= device.usable_bytes() / SCARCE_PART;
        if is_coarse {
            device.release(Choice::All);
        }
        // Nothing went back if a capture has begun meanwhile.
        lane.lock().is_cut_anew = is_coarse && !device.may_capture();
        is_coarse
    }
}

/// How much of the device is left, in bytes, without what contexts and other libraries have. The driver is
/// asked only where this process holds nearly all: if others did, they would take what goes back.
fn really_left_bytes(device: DeviceHeap<'_>) -> u64 {
    let device_bytes = device.usable_bytes();
    let left_bytes = device_bytes.saturating_sub(device.ledger.reserved_bytes());
    if left_bytes >= device_bytes / ASKED_PART {
        return left_bytes;
    }
    left_bytes.min(device.driver_free_bytes().unwrap_or(u64::MAX))
}
