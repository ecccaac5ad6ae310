//! Peers: other devices that may access the memory of one.
//!
//! Memory of `cuMemCreate` is not reached by `cuCtxEnablePeerAccess`: each mapping names who may
//! access it, and a plain copy or a kernel of another device faults (PyTorch's caching allocator
//! says so of its expandable segments; llama.cpp#4606). So all devices that a process uses are
//! introduced to each other: as the second one is opened; and, wherever memory is mapped, those whose
//! primary context has become active meanwhile. A process that uses one device pays nothing. A
//! program whose other device only reads, and became active after the last mapping was made, says so
//! (`Heap::enable_peer_access`; the preload library does).
//!
//! Plain allocations of the driver are left to the program, which enables access to them by CUDA's
//! own means, as it would without this library.
//!
//! An introduction that fails is tried again with the next mapping; nobody's request fails for it.

use std::sync::atomic::Ordering::Relaxed;

use super::state::{DeviceHeap, Introductions, Messages};
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::LogLevel;
use crate::driver::{self, Device};

fn bit(device: DeviceOrdinal) -> u64 {
    1u64.checked_shl(device.0).unwrap_or(0)
}

impl Introductions {
    fn is_settled(&self, device: DeviceOrdinal) -> bool {
        let bit = bit(device);
        bit == 0 || self.settled.load(Relaxed) & bit != 0
    }
}

impl DeviceHeap<'_> {
    /// `Heap::enable_peer_access`, for the device behind `peer`, which is another one.
    pub(super) fn enable_peer_access(self, peer: &dyn Device) -> Result<()> {
        let (device, peer_ordinal) = (self.ordinal, peer.ordinal());
        let not_supported = |what: &str| {
            let message =
                format!("device {device} cannot be accessed by device {peer_ordinal}: {what}");
            Error::new(Status::NotSupported, message)
        };
        let Some(extents) = self.backing.extents() else {
            return Err(not_supported("it has no virtual memory management"));
        };
        if !peer.can_access_peer(device)? {
            return Err(not_supported("the driver knows no way"));
        }
        Ok(extents.add_peer(peer_ordinal)?)
    }

    /// The device is in use from now on: it and those in use already may access each other's
    /// memory. What is to be logged goes to `messages`.
    pub(super) fn introduce_all(self, messages: &mut Messages) {
        for other in self.heap.opened_devices() {
            messages.extend(self.introduce(other.ordinal));
            messages.extend(other.introduce(self.ordinal));
        }
    }

    /// Introduces the device, of which memory is about to be mapped, to those that the process has
    /// begun to use without this library.
    pub(super) fn meet_peers(self) {
        let others = self.heap.devices.iter().filter(|slot| {
            let is_known = self.introductions.is_settled(slot.driver.ordinal());
            !is_known && (slot.state.get().is_some() || slot.driver.is_in_use() == Ok(true))
        });
        for (level, message) in others.filter_map(|slot| self.introduce(slot.driver.ordinal())) {
            self.heap.log.write(level, &message);
        }
    }

    /// Lets `peer` access the memory of the device, if that is up to this library; returns what is
    /// to be logged.
    fn introduce(self, peer: DeviceOrdinal) -> Option<(LogLevel, String)> {
        let introductions = &self.introductions;
        if peer == self.ordinal || introductions.is_settled(peer) {
            return None;
        }
        let Err(error) = self.try_to_introduce(peer) else {
            introductions.settled.fetch_or(bit(peer), Relaxed);
            return None;
        };
        let before = introductions.failed.fetch_or(bit(peer), Relaxed);
        let message =
            format!("device {}: device {peer} cannot access its memory yet: {error}", self.ordinal);
        (before & bit(peer) == 0 && !error.is_shutdown()).then_some((LogLevel::Warn, message))
    }

    fn try_to_introduce(self, peer: DeviceOrdinal) -> driver::Result<()> {
        let Some(slot) = self.heap.devices.get(peer.index()) else { return Ok(()) };
        if !slot.driver.can_access_peer(self.ordinal)? {
            return Ok(());
        }
        self.backing.add_peer(&*self.driver, peer)
    }
}
