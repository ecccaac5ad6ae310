//! The steps of pausing and resuming, for one extent of a tag at a time: see `super`.

use super::super::choice::Choice;
use super::super::elastic::Kept;
use super::super::lane::Lane;
use super::super::paused_extent::{Contents, PausedExtent};
use super::super::state::{DeviceHeap, Extents};
use crate::base::lock::assert_none_held;
use crate::base::size::Bytes;
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use crate::driver::{self, Call, Code, DriverError};
use crate::memory::Refusal;

/// A copy of a lane's record, for the pause or resume under way.
pub(super) struct Piece<'a> {
    pub(super) device: DeviceHeap<'a>,
    pub(super) extents: &'a Extents,
    pub(super) lane: &'a Lane,
    pub(super) record: PausedExtent,
    /// Whether its extent was created by the resume under way.
    pub(super) is_new: bool,
}

/// A thread that waits for others to unmap views yields at most this often.
const YIELDS: usize = 1 << 16;

impl Piece<'_> {
    /// Maps the extent at its record's address, with access, unless it is mapped there.
    pub(super) fn map(&self) -> driver::Result<()> {
        let PausedExtent { address, bytes, memory, needs_access, .. } = self.record;
        let Some(id) = memory else { return Ok(()) };
        assert_none_held();
        let is_mapped = self.extents.store.extents().at(address) == Some(id);
        let mapped = match is_mapped {
            true if !needs_access => return Ok(()),
            true => self.extents.store.allow_access(address, bytes),
            false => self.extents.store.map(&[id], self.lane.index, address),
        };
        if let Some(record) = self.lane.lock().record_mut(address) {
            record.needs_access = mapped.is_err();
        }
        mapped
    }

    /// Unmaps every view of the piece's extent.
    pub(super) fn unmap(&self) -> driver::Result<()> {
        let Piece { device, extents, lane, record, .. } = self;
        let Some(id) = record.memory else { return Ok(()) };
        let next = || extents.store.extents().get(id)?.shadows.first().copied();
        for _ in 0..YIELDS {
            let Some(view) = next() else {
                if !extents.store.extents().has_views(id) {
                    return Ok(());
                }
                // Another thread is unmapping the last.
                std::thread::yield_now();
                continue;
            };
            if (view.lane, view.address) == (lane.index, record.address) {
                assert_none_held();
                extents.store.unmap(id, view.address)?;
                continue;
            }
            match extents.try_unmap_shadow(*device, id, view, |_| true) {
                Ok(()) => {}
                Err(Kept::Driver(error)) => return Err(error),
                // Another thread is unmapping the shadow, because there are too many.
                Err(Kept::InUse) => std::thread::yield_now(),
            }
        }
        Err(DriverError { call: Call::Unmap, code: Code::NOT_READY })
    }

    /// Releases the piece's extent, which has no view; if the driver refuses, it rests.
    pub(super) fn give_memory_up(&self, contents: Contents) {
        let Piece { device, extents, lane, record, .. } = self;
        let not_needed = {
            let mut state = lane.lock();
            if let Some(record) = state.record_mut(record.address) {
                record.memory = None;
                record.contents = contents;
            }
            state.drop_if_empty(record.address)
        };
        if let Some(id) = record.memory {
            extents.destroy(*device, id);
        }
        if let Some(host_address) = not_needed {
            device.free_host(host_address);
        }
    }

    /// Creates an extent for the piece; returns false if its last block was freed meanwhile.
    pub(super) fn create(&mut self) -> Result<bool> {
        let Piece { device, extents, lane, record, .. } = &*self;
        let create = || extents.store.create(&device.ledger, record.bytes, record.class);
        let is_shortage = |refusal: &Refusal| match refusal {
            Refusal::Limit => true,
            Refusal::Driver(error) | Refusal::AddressSpace(error) => error.is_out_of_memory(),
        };
        let created = match create() {
            Err(refusal) if is_shortage(&refusal) => {
                device.release(Choice::All);
                create()
            }
            created => created,
        };
        let id = created.map_err(|refusal| match refusal {
            Refusal::Driver(error) if !error.is_out_of_memory() => failed(error),
            _ => self.no_memory(),
        })?;
        let is_wanted = {
            let mut state = lane.lock();
            extents.store.extents().set_aside(id);
            let found = state.record_mut(record.address);
            found.map(|record| record.memory = Some(id)).is_some()
        };
        if is_wanted {
            (self.record.memory, self.is_new) = (Some(id), true);
        } else {
            extents.discard(*device, id);
        }
        Ok(is_wanted)
    }

    fn no_memory(&self) -> Error {
        let Piece { device, record, .. } = self;
        let (bytes, reserved) = (Bytes(record.bytes), Bytes(device.ledger.reserved_bytes()));
        let message = format!(
            "device {}: no {bytes} for what is paused: {reserved} are reserved, with nothing \
             cached that could go back",
            device.ordinal
        );
        Error::new(Status::OutOfMemory, message)
    }
}

/// Releases the memory of the tag's records, after saving it if `keep_contents`.
pub(super) fn vacate(mut pieces: Vec<Piece<'_>>, keep_contents: bool) -> Result<()> {
    pieces.retain(|piece| piece.record.memory.is_some());
    let mut saved = Vec::new();
    let vacated = save(&pieces, keep_contents, &mut saved)
        .and_then(|()| pieces.iter().try_for_each(Piece::unmap));
    if let Err(error) = vacated {
        for (piece, contents) in pieces.iter().zip(saved) {
            if let Contents::Saved(host_address) = contents
                && piece.record.contents == Contents::InMemory
            {
                piece.device.free_host(host_address);
            }
        }
        return Err(failed(error));
    }
    for (piece, contents) in pieces.iter().zip(saved) {
        piece.give_memory_up(contents);
    }
    Ok(())
}

/// Copies the live bytes of the pieces to host memory if `keep_contents`. Adds to `saved` where
/// the contents of each piece will be; after an error only of those done.
fn save(
    pieces: &[Piece<'_>],
    keep_contents: bool,
    saved: &mut Vec<Contents>,
) -> driver::Result<()> {
    for piece in pieces {
        let PausedExtent { contents, live, .. } = &piece.record;
        let live_bytes = piece.record.live_bytes();
        if *contents != Contents::InMemory {
            saved.push(*contents);
            continue;
        }
        if !keep_contents || live_bytes == 0 {
            saved.push(Contents::Dropped);
            continue;
        }
        piece.map()?;
        let driver = &piece.device.driver;
        assert_none_held();
        let mut host_address = driver.host_allocate(live_bytes)?;
        saved.push(Contents::Saved(host_address));
        for range in live {
            let bytes = range.end - range.start;
            driver.copy_to_host(host_address, range.start, bytes)?;
            host_address += bytes;
        }
    }
    Ok(())
}

/// After a failed resume: releases the memory that was created for it.
pub(super) fn send_back(pieces: &[Piece<'_>]) {
    for piece in pieces.iter().filter(|piece| piece.is_new) {
        match piece.unmap() {
            Ok(()) => piece.give_memory_up(piece.record.contents),
            Err(error) => piece.device.log_kept_memory(error),
        }
    }
}

/// All memory is back with its contents: makes the blocks live and free again.
pub(super) fn settle_in(pieces: &[Piece<'_>]) {
    for piece in pieces {
        if let Some(record) = piece.lane.lock().record_mut(piece.record.address) {
            record.contents = Contents::InMemory;
        }
    }
    bring_home(pieces);
    for piece in pieces.iter().filter(|piece| piece.record.memory.is_some()) {
        if let Contents::Saved(host_address) = piece.record.contents {
            piece.device.free_host(host_address);
        }
    }
}
/// Makes the blocks of the pieces' lanes live and free again where contents are in memory.
pub(super) fn bring_home(pieces: &[Piece<'_>]) {
    // The pieces of a lane are consecutive.
    for of_lane in pieces.chunk_by(|piece, next| piece.lane.index == next.lane.index) {
        let Piece { device, lane, extents, .. } = of_lane[0];
        lane.bring_home(&mut lane.lock(), &mut extents.store.extents(), &device.ledger);
    }
}

/// Copies the saved bytes back.
pub(super) fn restore_contents(pieces: &[Piece<'_>]) -> Result<()> {
    for piece in pieces.iter().filter(|piece| piece.record.memory.is_some()) {
        let Contents::Saved(mut host_address) = piece.record.contents else { continue };
        for range in &piece.record.live {
            let bytes = range.end - range.start;
            let driver = &piece.device.driver;
            driver.copy_to_device(range.start, host_address, bytes).map_err(failed)?;
            host_address += bytes;
        }
    }
    Ok(())
}

/// The error returned for a driver's error: `Busy` if a stream is captured.
pub(super) fn failed(error: DriverError) -> Error {
    match error.code {
        Code::STREAM_CAPTURE_UNSUPPORTED => Error::new(Status::Busy, error.to_string()),
        _ => error.into(),
    }
}

impl DeviceHeap<'_> {
    /// Frees pinned host memory, now or, if the driver may not be called or refuses, later.
    pub(super) fn free_host(self, host_address: u64) {
        self.unpinned.lock().push(host_address);
        self.unpin();
    }

    pub(super) fn unpin(self) {
        if self.pools.is_routing() {
            return;
        }
        assert_none_held();
        let waiting = std::mem::take(&mut *self.unpinned.lock());
        for host_address in waiting {
            if let Err(error) = self.driver.host_free(host_address) {
                self.unpinned.lock().push(host_address);
                if !error.is_shutdown() {
                    let ordinal = self.ordinal;
                    let message = format_args!("device {ordinal}: {error}; it stays pinned");
                    self.heap.log.write(LogLevel::Error, &message);
                }
            }
        }
    }
}
