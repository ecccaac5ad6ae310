//! Peers: the other devices that may access a device's memory.
//!
//! `cuCtxEnablePeerAccess` does not cover memory of `cuMemCreate`: each mapping lists the devices
//! that may access it, and a plain copy or a kernel of another device faults (PyTorch's caching
//! allocator says so of its expandable segments; llama.cpp#4606). So the heap introduces all
//! devices that a process uses to each other: when the second is opened and, whenever memory is
//! mapped, those whose primary context has become active meanwhile. A process with one device pays
//! nothing. If the other device only reads, and became active after the last mapping, the program
//! must call `Heap::enable_peer_access` (the preload library does).
//!
//! Plain allocations of the driver are left to the program, which enables access by CUDA's own
//! calls, as it would without this library.
//!
//! An introduction that fails is tried again at the next mapping; no request fails because of it.

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
    /// `Heap::enable_peer_access` for the device of `peer`, which is another one.
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

    /// Called when the device is opened: lets it and the devices in use access each other's memory.
    /// Log messages are added to `messages`.
    pub(super) fn introduce_all(self, messages: &mut Messages) {
        for other in self.heap.opened_devices() {
            messages.extend(self.introduce(other.ordinal));
            messages.extend(other.introduce(self.ordinal));
        }
    }

    /// Called before memory of the device is mapped: introduces it to devices that the process has
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

    /// Lets `peer` access the memory of the device, if this library can; returns the message to
    /// log.
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
