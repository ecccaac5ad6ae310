//! The steps of pausing and resuming, for one extent of a tag at a time: see `super`.

use std::path::Path;
use std::sync::Arc;

use super::super::choice::Choice;
use super::super::elastic::Kept;
use super::super::lane::Lane;
use super::super::paused_extent::{Contents, KeptCopy, PausedExtent};
use super::super::saved_bytes::{Place, Saved};
use super::super::state::{DeviceHeap, Extents};
use super::progress::Meter;
use super::transfer::{self, Run, can_save_again, refused, runs_of, save_again};
use crate::base::lock::assert_none_held;
use crate::base::size::Bytes;
use crate::base::sync::waiting;
use crate::base::{Backup, Error, Result, Status};
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
                waiting::yield_now();
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
                Err(Kept::InUse) => waiting::yield_now(),
            }
        }
        Err(DriverError { call: Call::Unmap, code: Code::NOT_READY })
    }

    /// Releases the piece's extent, which has no view; if the driver refuses, it rests.
    pub(super) fn give_memory_up(&self, contents: Contents) {
        let Piece { device, extents, lane, record, .. } = self;
        {
            let mut state = lane.lock();
            if let Some(record) = state.record_mut(record.address) {
                record.memory = None;
                record.contents = contents;
            }
            state.drop_if_empty(record.address);
        }
        if let Some(id) = record.memory {
            extents.destroy(*device, id);
        }
    }

    /// Creates an extent for the piece, the first of `rest_bytes` that the device needs; returns false
    /// if its last block was freed meanwhile.
    pub(super) fn create(&mut self, rest_bytes: u64) -> Result<bool> {
        let Piece { device, extents, lane, record, .. } = &*self;
        let size = (record.bytes, record.class);
        let create = || extents.store.create(&device.ledger, size, record.communication.as_ref());
        let is_shortage = |refusal: &Refusal| match refusal {
            Refusal::Limit => true,
            Refusal::Driver(error) | Refusal::AddressSpace(error) => error.is_out_of_memory(),
        };
        let mut created = create();
        if created.as_ref().is_err_and(is_shortage) {
            device.release(Choice::All);
            created = create();
        }
        if created.as_ref().is_err_and(is_shortage) {
            device.ask_neighbours(rest_bytes, || {
                created = create();
                !created.as_ref().is_err_and(is_shortage)
            });
        }
        let id = created.map_err(|refusal| match refusal {
            Refusal::Driver(error) if !error.is_out_of_memory() => refused(error),
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

    /// What was kept of the piece at the last resume, if it serves again: as it is, if it has the
    /// same version and the lane has handed nothing out since; or with the bytes copied anew.
    fn save_as_before(&self, version: Option<u64>, meter: &Meter) -> Result<Option<Saved>> {
        let PausedExtent { live, tick, .. } = &self.record;
        let Some(kept) = self.lane.lock().take_kept(live) else { return Ok(None) };
        let saved = Saved { version, ..kept.saved };
        if version.is_some() && kept.saved.version == version && kept.tick == *tick {
            meter.advance(self.record.live_bytes());
            return Ok(Some(saved));
        }
        if !can_save_again(&saved) {
            return Ok(None);
        }
        self.map().map_err(refused)?;
        let runs: Vec<Run> = runs_of(&self.record, saved.offset).collect();
        save_again(self.device, &runs, &saved, meter)?;
        Ok(Some(saved))
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

/// What to do with the contents of memory that is paused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeping {
    /// Where they are kept; `None`: as its tag was begun.
    pub backup: Option<Backup>,
    /// The program's number for what they are: what was saved under the same number need not be
    /// saved again if no block of the tag has come or gone since.
    pub version: Option<u64>,
}

/// Releases the memory of the pieces, after saving their contents.
pub(super) fn vacate(mut pieces: Vec<Piece<'_>>, keeping: Keeping, folder: &Path) -> Result<()> {
    pieces.retain(|piece| piece.record.memory.is_some());
    let saved = save(&pieces, keeping, folder)?;
    pieces.iter().try_for_each(Piece::unmap).map_err(refused)?;
    for (piece, contents) in pieces.iter().zip(saved) {
        piece.give_memory_up(contents);
    }
    Ok(())
}

/// Where the contents of each piece are from now on.
fn save(pieces: &[Piece<'_>], keeping: Keeping, folder: &Path) -> Result<Vec<Contents>> {
    let backup_of = |piece: &Piece<'_>| keeping.backup.unwrap_or(piece.record.mark.backup);
    let is_kept = |piece: &&Piece<'_>| {
        piece.record.contents.is_in_memory() && backup_of(piece) != Backup::None
    };
    let total_bytes = pieces.iter().filter(is_kept).map(|piece| piece.record.live_bytes()).sum();
    let meter = Meter::begin("pausing", total_bytes, shows_progress(pieces));
    let mut saved: Vec<Option<Contents>> = Vec::new();
    let mut wanted = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let backup = backup_of(piece);
        saved.push(match &piece.record.contents {
            Contents::InMemory if backup == Backup::None || piece.record.live.is_empty() => {
                Some(Contents::Dropped)
            }
            Contents::InMemory => {
                piece.save_as_before(keeping.version, &meter)?.map(Contents::Saved)
            }
            contents => Some(contents.clone()),
        });
        if saved[index].is_none() {
            piece.map().map_err(refused)?;
            wanted.push((piece.device.ordinal, backup, index));
        }
    }
    wanted.sort_by_key(|&(device, backup, index)| (device, backup as u8, index));
    for alike in wanted.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
        let (mut runs, mut offsets, mut end) = (Vec::new(), Vec::new(), 0);
        for &(_, _, index) in alike {
            offsets.push((index, end));
            runs.extend(runs_of(&pieces[index].record, end));
            end += pieces[index].record.live_bytes();
        }
        let device = pieces[alike[0].2].device;
        let kind = (alike[0].1, folder);
        let bytes = Arc::new(transfer::save(device, &runs, kind, &meter)?);
        for (index, offset) in offsets {
            let (bytes, version) = (Arc::clone(&bytes), keeping.version);
            saved[index] = Some(Contents::Saved(Saved { bytes, offset, version }));
        }
    }
    Ok(saved.into_iter().map(|contents| contents.unwrap_or(Contents::Dropped)).collect())
}

/// Whether users want to see how far it is.
fn shows_progress(pieces: &[Piece<'_>]) -> bool {
    pieces.first().is_some_and(|piece| piece.device.heap.settings().shows_progress)
}

/// After a failed resume: releases the memory that was created for it.
pub(super) fn send_back(pieces: &[Piece<'_>]) {
    for piece in pieces.iter().filter(|piece| piece.is_new) {
        match piece.unmap() {
            Ok(()) => piece.give_memory_up(piece.record.contents.clone()),
            Err(error) => piece.device.log_kept_memory(error),
        }
    }
}

/// All memory is back with its contents: makes the blocks live and free again. What was saved under
/// a version stays for the next pause; if the heap `retains`, so does the rest.
pub(super) fn settle_in(pieces: &[Piece<'_>], retains: bool) {
    for piece in pieces {
        let mut state = piece.lane.lock();
        let Some(record) = state.record_mut(piece.record.address) else { continue };
        record.contents = Contents::InMemory;
        let saved = piece.record.contents.saved();
        if let Some(saved) = saved.filter(|saved| retains || saved.version.is_some()) {
            let (live, tick) = (record.live.clone(), record.tick);
            state.kept.push(KeptCopy { live, tick, saved: saved.clone() });
        }
    }
    bring_home(pieces);
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
    let back = pieces.iter().filter(|piece| piece.record.memory.is_some());
    let mut saved: Vec<(&Piece<'_>, &Saved)> =
        back.filter_map(|piece| Some((piece, piece.record.contents.saved()?))).collect();
    saved.sort_by_key(|(_, saved)| (Arc::as_ptr(&saved.bytes) as usize, saved.offset));
    let total_bytes = saved.iter().map(|(piece, _)| piece.record.live_bytes()).sum();
    let meter = Meter::begin("resuming", total_bytes, shows_progress(pieces));
    for alike in saved.chunk_by(|one, next| Arc::ptr_eq(&one.1.bytes, &next.1.bytes)) {
        let runs = alike.iter().flat_map(|(piece, saved)| runs_of(&piece.record, saved.offset));
        let runs: Vec<Run> = runs.collect();
        transfer::restore(alike[0].0.device, &runs, alike[0].1, &meter)?;
    }
    Ok(())
}

impl DeviceHeap<'_> {
    /// Frees what is no longer needed of saved bytes; what the driver refuses, or may not be asked
    /// for now, later.
    pub(super) fn clear_waste(self) {
        assert_none_held();
        let Ok(_wait) = self.begin_wait() else { return };
        let waste = std::mem::take(&mut *self.waste.lock());
        for place in waste {
            let Place::Memory(memory) = &place else { continue };
            let Err(error) = memory.unlock(&*self.driver) else { continue };
            self.waste.lock().push(place);
            if !error.is_shutdown() {
                let ordinal = self.ordinal;
                self.heap.log.write(
                    LogLevel::Error,
                    &format_args!("device {ordinal}: {error}; it stays page-locked"),
                );
            }
        }
    }
}
