//! Peers: other devices that may access the memory of one.
//!
//! Memory of `cuMemCreate` is not reached by `cuCtxEnablePeerAccess`: each mapping names who may
//! access it, and a plain copy or a kernel of another device faults (PyTorch's caching allocator
//! says so of its expandable segments; llama.cpp#4606). So all devices that a process uses are
//! introduced to each other: as the second one is opened; and, wherever memory is mapped, those whose
//! primary context has become active meanwhile. A process that uses one device pays nothing. A
//! program whose other device only reads, and became active after the last mapping was made, says so
//! ([`Heap::enable_peer_access`]; the preload library does).
//!
//! Plain allocations of the driver are left to the program, which enables access to them by CUDA's
//! own means, as it would without this library.
//!
//! An introduction that fails is tried again with the next mapping; nobody's request fails for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Heap;
use super::device::DeviceHeap;
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::LogLevel;
use crate::driver;

/// What is to be said once nobody waits.
type Messages = Vec<(LogLevel, String)>;

/// Which devices one device was introduced to. Bits by ordinal; a device beyond them is not.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// Done, or impossible.
    settled: AtomicU64,
    /// Failed, of which was told.
    failed: AtomicU64,
}

fn bit(device: DeviceOrdinal) -> u64 {
    1u64.checked_shl(device.0).unwrap_or(0)
}

impl Introductions {
    fn is_settled(&self, device: DeviceOrdinal) -> bool {
        let bit = bit(device);
        bit == 0 || self.settled.load(Relaxed) & bit != 0
    }
}

impl Heap {
    /// From now on `peer` can access all memory of `device`: what is held, live or cached, and
    /// what will be. Does nothing if it can already, and for a device and itself.
    ///
    /// `NotSupported` under other strategies than Elastic, on a device without virtual memory
    /// management, and where the driver knows no way from `peer` to `device`. After a failure of
    /// the driver the peer is not enabled, though it may reach a part of what is held.
    pub fn enable_peer_access(&self, device: DeviceOrdinal, peer: DeviceOrdinal) -> Result<()> {
        self.require_elastic()?;
        let accessing = self.slot(peer)?;
        let held = self.device(device)?;
        if device == peer {
            return Ok(());
        }
        let not_supported = |what: &str| {
            let message = format!("device {device} cannot be accessed by device {peer}: {what}");
            Error::new(Status::NotSupported, message)
        };
        let Some(pages) = &held.pages else {
            return Err(not_supported("it has no virtual memory management"));
        };
        if !accessing.driver.can_access_peer(device)? {
            return Err(not_supported("the driver knows no way"));
        }
        Ok(pages.add_peer(peer)?)
    }

    /// A device is in use from now on: it and those in use already may access each other's memory.
    /// What there is to say of it goes to `messages`.
    pub(super) fn introduce_all(&self, device: &DeviceHeap, messages: &mut Messages) {
        for other in self.devices.iter().filter_map(|slot| slot.heap.get()) {
            messages.extend(self.introduce(device, other.ordinal));
            messages.extend(self.introduce(other, device.ordinal));
        }
    }

    /// Introduces `device`, of which memory is about to be mapped, to those that have come to be
    /// used without this library.
    pub(super) fn meet_peers(&self, device: &DeviceHeap) {
        let others = self.devices.iter().filter(|slot| {
            let is_known = device.introductions.is_settled(slot.driver.ordinal());
            !is_known && (slot.heap.get().is_some() || slot.driver.is_in_use() == Ok(true))
        });
        for (level, message) in
            others.filter_map(|slot| self.introduce(device, slot.driver.ordinal()))
        {
            self.log.write(level, &message);
        }
    }

    /// Lets `peer` access the memory of `device`, where that is this library's to say; gives what
    /// there is to be said of it.
    fn introduce(&self, device: &DeviceHeap, peer: DeviceOrdinal) -> Option<(LogLevel, String)> {
        if peer == device.ordinal || device.introductions.is_settled(peer) {
            return None;
        }
        let introductions = &device.introductions;
        let Err(error) = self.try_to_introduce(device, peer) else {
            introductions.settled.fetch_or(bit(peer), Relaxed);
            return None;
        };
        let before = introductions.failed.fetch_or(bit(peer), Relaxed);
        let message = format!(
            "device {}: device {peer} cannot access its memory yet: {error}",
            device.ordinal
        );
        (before & bit(peer) == 0 && !error.is_shutdown()).then_some((LogLevel::Warn, message))
    }

    fn try_to_introduce(&self, device: &DeviceHeap, peer: DeviceOrdinal) -> driver::Result<()> {
        let Some(slot) = self.devices.get(peer.index()) else { return Ok(()) };
        if !slot.driver.can_access_peer(device.ordinal)? {
            return Ok(());
        }
        match &device.pages {
            Some(pages) => pages.add_peer(peer),
            None => device.driver.add_peer(peer),
        }
    }
}
