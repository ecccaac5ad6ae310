//! Memory shared with other processes: what a block consists of, and mapping that of others.
//!
//! | backing | a block is sent as | and arrives as |
//! |---|---|---|
//! | segments | the driver's handle of its segment, and an offset | the segment, opened |
//! | extents | a file descriptor for each extent under it, and an offset | the extents, side by side |
//!
//! A shared block is live until nobody holds it (`shared_blocks`). A live block keeps its memory,
//! so what was sent stays true.
//!
//! Memory of another process is nothing of this heap: it has no lane, and no limit counts it, as
//! the other process counts it. It is unmapped after a wait for all work of the device, because
//! the process that sent it may use it again as soon as it is told.

use std::ops::Range;
use std::os::fd::OwnedFd;

use super::shared_blocks::{Freed, Kept, Released, Remains, ShareId};
use super::state::{DeviceHeap, Heap};
use super::tags::Chosen;
use crate::base::lock::assert_none_held;
use crate::base::{DeviceOrdinal, Error, Result, Status, blocking};
use crate::config::LogLevel;
use crate::driver::{self, HandleOptions, MemoryHandle, SegmentHandle, Shareable};
use crate::memory::State;

/// A block that is shared, and held once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBlock {
    /// The share.
    pub id: ShareId,
    /// First byte.
    pub address: u64,
    /// Size of the block, in bytes.
    pub bytes: u64,
    /// The device.
    pub device: DeviceOrdinal,
}

/// A block's memory on its way to another process.
#[derive(Debug)]
pub enum Outgoing {
    /// The segment that it is a part of.
    Segment {
        /// The driver's handle of the segment.
        handle: SegmentHandle,
        /// Where the block starts in it, in bytes.
        offset_bytes: u64,
    },
    /// The extents that it lies in.
    Extents {
        /// Their descriptors and sizes in bytes, in the order of addresses.
        files: Vec<(OwnedFd, u64)>,
        /// Where the block starts in the first one, in bytes.
        offset_bytes: u64,
    },
}

/// The same, in the process that it was sent to.
pub type Incoming = Outgoing;

/// Memory of another process, mapped into this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// A segment, opened at this address.
    Segment(u64),
    /// Extents in a reservation of their own.
    Extents {
        /// First byte of the reservation.
        address: u64,
        /// Its size, in bytes.
        bytes: u64,
    },
}

impl Imported {
    /// The first byte.
    pub fn address(&self) -> u64 {
        match *self {
            Self::Segment(address) | Self::Extents { address, .. } => address,
        }
    }
}

impl Heap {
    /// Shares the live block that starts at `address`, or holds its share once more.
    ///
    /// `ForeignPointer` and `DoubleFree` as for freeing; `Busy` for a paused block.
    pub fn share(&self, address: u64) -> Result<SharedBlock> {
        let (device, bytes) = self.live_block(address)?;
        // Before the share: a free that comes later must see it.
        self.policy.heed_sharing();
        let freed = || Error::new(Status::DoubleFree, format!("{address:#x} is already free"));
        let id = self.shared.hold(address).ok_or_else(freed)?;
        // A pause that did not see the share has set the block aside by now.
        if let Err(error) = self.live_block(address) {
            self.unshare(address, id)?;
            return Err(error);
        }
        Ok(SharedBlock { id, address, bytes, device })
    }

    /// Holds the share `id` of the block at `address` once more; false if it is over.
    pub fn share_again(&self, address: u64, id: ShareId) -> bool {
        self.shared.hold_on(address, id)
    }

    /// Ends one hold of the share `id` of the block at `address`. Returns true if it was the last;
    /// if the block's owner has freed it, it is freed now, with the errors of freeing.
    pub fn unshare(&self, address: u64, id: ShareId) -> Result<bool> {
        match self.shared.release(address, id) {
            Released::Held => Ok(false),
            Released::Over => Ok(true),
            Released::Freed => self.free(address).map(|()| true),
        }
    }

    /// The memory of a shared block, for another process. `NotSupported` if it cannot be shared;
    /// the message says why.
    pub fn send(&self, block: &SharedBlock) -> Result<Outgoing> {
        assert_none_held();
        self.device(block.device)?.send(block.address..block.address + block.bytes)
    }

    /// Fails as [`Self::send`] would, without making all of its handles.
    pub fn check_sendable(&self, block: &SharedBlock) -> Result<()> {
        assert_none_held();
        // The memory under the first byte is of the same kind as the rest.
        self.device(block.device)?.send(block.address..block.address + 1).map(|_| ())
    }

    /// Maps memory of another process for `device`.
    ///
    /// `DriverFailed` and `OutOfMemory` (of address space) import nothing. What the driver then does
    /// not take back is tried again at the next call.
    pub fn receive(&self, device: DeviceOrdinal, memory: &Incoming) -> Result<Imported> {
        assert_none_held();
        let device = self.device(device)?;
        device.clear_remains();
        match memory {
            Outgoing::Segment { handle, .. } => {
                let opened = blocking(|| device.driver.open_allocation(handle))?;
                Ok(Imported::Segment(opened))
            }
            Outgoing::Extents { files, .. } => device.map_files(files),
        }
    }

    /// Waits for all work of `device` that may use memory of another process. `Busy` while a stream
    /// of the device may be captured.
    pub fn wait_for_users(&self, device: DeviceOrdinal) -> Result<()> {
        assert_none_held();
        self.device(device)?.wait_for_users()
    }

    /// Unmaps what [`Self::receive`] mapped, after a wait for all work of `device`. On an error it
    /// stays mapped: `Busy` while a stream of the device may be captured.
    pub fn dismiss(&self, device: DeviceOrdinal, memory: Imported) -> Result<()> {
        assert_none_held();
        let device = self.device(device)?;
        device.wait_for_users()?;
        device.clear_remains();
        match memory {
            Imported::Segment(address) => {
                Ok(device.outside_captures(|| device.driver.close_allocation(address))?)
            }
            Imported::Extents { address, bytes } => {
                Ok(device.outside_captures(|| device.unmap_files(address, bytes))?)
            }
        }
    }

    /// The owner frees the block at `address`. Returns true if it is kept for other processes;
    /// `DoubleFree` if it was before.
    pub(super) fn keep_for_others(&self, address: u64) -> Result<bool> {
        match self.shared.keep(address) {
            Freed::Unshared => Ok(false),
            Freed::Kept => Ok(true),
            Freed::Again => {
                let message = format!("{address:#x} is already free, and kept for another process");
                let error = Error::new(Status::DoubleFree, message);
                self.log.write(LogLevel::Error, &error);
                Err(error)
            }
        }
    }

    /// `Busy` if another process has a block of one of the pools of a tag.
    pub(super) fn refuse_shared(&self, chosen: &Chosen) -> Result<()> {
        let is_chosen = |&address: &u64| {
            let found = self.find(address);
            let device = found.and_then(|(lane, _)| Some((lane, self.opened(lane.device)?)));
            device.is_some_and(|(lane, device)| chosen.mark(&device.pools, lane.pool()).is_some())
                && chosen.range().contains(&address)
        };
        match self.shared.addresses().into_iter().find(is_chosen) {
            None => Ok(()),
            Some(address) => {
                let message = format!("the block at {address:#x} is shared with another process");
                Err(Error::new(Status::Busy, message))
            }
        }
    }

    /// The device and size of the live block that starts at `address`.
    fn live_block(&self, address: u64) -> Result<(DeviceOrdinal, u64)> {
        let found = self.find(address).and_then(|(lane, slot)| {
            let state = lane.lock();
            state.blocks.find(slot, address).map(|block| (lane.device, block.bytes, block.state))
        });
        match found {
            Some((device, bytes, State::Live)) => Ok((device, bytes)),
            Some((_, _, State::Paused)) => {
                Err(Error::new(Status::Busy, format!("the block at {address:#x} is paused")))
            }
            _ => Err(self.not_live(address)),
        }
    }
}

impl DeviceHeap<'_> {
    fn wait_for_users(self) -> Result<()> {
        if self.may_capture() {
            let message = "memory of another process stays mapped while a stream is captured";
            return Err(Error::new(Status::Busy, message));
        }
        Ok(self.synchronize()?)
    }

    fn send(self, block: Range<u64>) -> Result<Outgoing> {
        let pieces = self.extents_under(&block);
        if self.is_managed() {
            let message = "managed memory cannot be shared with other processes";
            return Err(Error::new(Status::NotSupported, message));
        }
        if pieces.is_empty() {
            let segment = self.heap.segment_containing(block.start)?;
            let handle = self.driver.share_allocation(segment.start).map_err(|error| {
                let what = "its segment cannot be shared with other processes";
                Error::new(Error::from(error).status, format!("{what}: {error}"))
            })?;
            return Ok(Outgoing::Segment { handle, offset_bytes: block.start - segment.start });
        }
        let is_shareable = |options: HandleOptions| options.shareable == Shareable::PosixFd;
        if !self.backing.extents().is_some_and(|extents| is_shareable(extents.store.options())) {
            let message = "Elastic's memory was not made to be shared with other processes: \
                           set GENESIS_HANDLE_TYPE=posix before the first allocation";
            return Err(Error::new(Status::NotSupported, message));
        }
        let offset_bytes = block.start - pieces[0].0;
        let mut files = Vec::with_capacity(pieces.len());
        for (_, handle, bytes) in pieces {
            files.push((self.driver.export(handle)?, bytes));
        }
        Ok(Outgoing::Extents { files, offset_bytes })
    }

    /// The views that a live block lies in, as address, handle and bytes; none if it is not made
    /// of extents.
    fn extents_under(self, block: &Range<u64>) -> Vec<(u64, MemoryHandle, u64)> {
        let Some(extents) = self.backing.extents() else { return Vec::new() };
        let table = extents.store.extents();
        let views = table.touching(block.clone());
        let views = views.into_iter().filter_map(|(address, id)| {
            table.get(id).map(|extent| (address, extent.handle, extent.bytes))
        });
        views.collect()
    }

    /// Maps extents of another process side by side, in a reservation of their own.
    fn map_files(self, files: &[(OwnedFd, u64)]) -> Result<Imported> {
        let bytes = files.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        let bytes = bytes.filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or_else(|| Error::invalid_argument("a block without memory"))?;
        let address = self.driver.reserve(bytes, 0)?;
        let mut remains = Remains { address, bytes, mapped_bytes: 0 };
        let mut mapped = Ok(());
        for (file, bytes) in files {
            mapped = self.map_file(file, &mut remains, *bytes);
            if mapped.is_err() {
                break;
            }
        }
        let peers = self.backing.extents().map(|extents| extents.store.peers());
        let peers = peers.unwrap_or_default();
        let mapped = mapped.and_then(|()| self.driver.set_access(address, bytes, &peers));
        if let Err(error) = mapped {
            self.clear(remains);
            return Err(error.into());
        }
        Ok(Imported::Extents { address, bytes })
    }

    fn map_file(self, file: &OwnedFd, remains: &mut Remains, bytes: u64) -> driver::Result<()> {
        let handle = self.driver.import(file)?;
        let mapped = self.driver.map(remains.address + remains.mapped_bytes, bytes, handle);
        remains.mapped_bytes += if mapped.is_ok() { bytes } else { 0 };
        // The mapping keeps the memory.
        if self.driver.release(handle).is_err() {
            self.heap.remains.lock().handles.push((self.ordinal, handle));
        }
        mapped
    }

    /// Unmaps and unreserves; keeps what the driver does not take back.
    fn clear(self, mut remains: Remains) {
        let Remains { address, bytes, mapped_bytes } = remains;
        if mapped_bytes > 0 && self.driver.unmap(address, mapped_bytes).is_ok() {
            remains.mapped_bytes = 0;
        }
        if remains.mapped_bytes > 0 || self.driver.unreserve(address, bytes).is_err() {
            self.heap.remains.lock().ranges.push((self.ordinal, remains));
        }
    }

    /// Tries again to return what the driver did not take back.
    fn clear_remains(self) {
        let (handles, ranges) = {
            let mut remains = self.heap.remains.lock();
            let Kept { handles, ranges } = &mut *remains;
            let own_handles: Vec<_> = handles.extract_if(.., |one| one.0 == self.ordinal).collect();
            let own_ranges: Vec<_> = ranges.extract_if(.., |one| one.0 == self.ordinal).collect();
            (own_handles, own_ranges)
        };
        for (ordinal, handle) in handles {
            if self.driver.release(handle).is_err() {
                self.heap.remains.lock().handles.push((ordinal, handle));
            }
        }
        ranges.into_iter().for_each(|(_, remains)| self.clear(remains));
    }

    /// Undoes [`Self::map_files`].
    fn unmap_files(self, address: u64, bytes: u64) -> driver::Result<()> {
        self.driver.unmap(address, bytes)?;
        self.clear(Remains { address, bytes, mapped_bytes: 0 });
        Ok(())
    }
}
