//! Pausing a tag: its physical memory goes back to the driver and its addresses stay, until it is
//! resumed with the contents it had or without.
//!
//! | pausing | resuming |
//! |---|---|
//! | wait for the devices | new extents of the same sizes |
//! | under each lane's lock: blocks paused, extents set aside | mapped where the old ones were |
//! | wait again, for what was queued in between | live bytes back from pinned host memory |
//! | live bytes to pinned host memory, if wanted | under each lane's lock: blocks live and free |
//! | unmap every view, also those left in other lanes | |
//! | release | |
//!
//! Both do all of it or nothing. What can be undone comes first: pausing unmaps last, when
//! everything is saved, and resuming gives the saved bytes up last. An extent that the driver
//! does not take back when all are unmapped rests until it is needed, and the tag is paused all
//! the same. If the driver refuses even to undo, nothing is lost: the records (`paused`) keep
//! what memory there is, and the next resume goes on from there.
//!
//! Meanwhile other threads may do anything, also with blocks of the tag: those they free do not
//! come back, and what they allocate is new memory that is not paused. One thread at a time
//! pauses or resumes.

mod records;
mod tags;

pub(super) use records::PausedExtent;
pub(super) use tags::Tags;

use super::Heap;
use super::device::DeviceHeap;
use super::elastic::{Extents, Kept};
use super::lane::Lane;
use super::lane_guard::LaneGuard;
use super::pools::PoolNumber;
use super::release::Choice;
use crate::base::lock::assert_none_held;
use crate::base::size::Bytes;
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use crate::driver::{self, Call, Code, DriverError};
use crate::memory::{Refusal, Slot};
use crate::observe::Action;
use records::Contents;
use tags::Transition;

/// A record of a lane, as it was when it was looked at, on its way.
struct Piece<'a> {
    device: DeviceHeap<'a>,
    extents: &'a Extents,
    lane: &'a Lane,
    record: PausedExtent,
    /// Whether its extent was made by the resume under way.
    is_new: bool,
}

/// Views that other threads are unmapping are waited for; each gives its processor up so often.
const YIELDS: usize = 1 << 16;

impl Heap {
    /// Gives the physical memory of the tag `name` back, on all devices: what is cached, and
    /// what is live. Live blocks keep their addresses; their contents come back with
    /// [`Self::resume`] if `keep_contents`, else they are undefined then. Until then no work may
    /// touch them; freeing them is fine. What is paused already stays as it is.
    ///
    /// Waits for all devices. `InvalidArgument` for an unknown tag. `Busy`, where nothing has
    /// changed: while a private pool is begun; where freed blocks of the tag still wait for a
    /// stream; while another thread pauses or resumes; and while a stream captures outside of
    /// any pool, which that spoils, as every wait does. After any other failure everything is as
    /// it was, unless the driver refused that too: then the tag is paused with its memory held,
    /// and to resume it makes it whole.
    pub fn pause(&self, name: &str, keep_contents: bool) -> Result<()> {
        self.require_elastic()?;
        let tag = self.tags.find(name)?;
        let _transition = self.begin_transition()?;
        let lanes: Vec<&Lane> = self.lanes.iter().filter(|lane| lane.pool() == tag).collect();
        if !lanes.iter().any(|lane| lane.lock().has_memory()) {
            return Ok(());
        }
        self.ready_for_pause(&lanes);
        self.wait_for_all()?;
        let paused = self.set_aside(tag, &lanes).and_then(|()| {
            self.wait_for_all()?;
            self.vacate(tag, keep_contents)
        });
        if paused.is_err() {
            self.take_back(tag);
        }
        if paused.is_ok() {
            self.notes.of_tag(Action::Pause, name);
        }
        self.settle_all();
        paused
    }

    /// Makes the memory of the tag `name` what it was before [`Self::pause`]: at the same
    /// addresses, with the contents that were kept. Does nothing where nothing is paused.
    ///
    /// `OutOfMemory` if the limits or the driver do not have as much, after what is cached has
    /// gone back; `Busy` and `InvalidArgument` as for pausing. After a failure the tag is still
    /// paused, with what was saved.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.require_elastic()?;
        let tag = self.tags.find(name)?;
        let _transition = self.begin_transition()?;
        let mut pieces = self.pieces(tag);
        if pieces.is_empty() {
            return Ok(());
        }
        self.refuse_while_capturing()?;
        let brought = self.bring_memory(&mut pieces).and_then(|()| restore_contents(&pieces));
        match brought {
            Ok(()) => {
                self.settle_in(&pieces);
                self.tags.count_resume(name);
                self.notes.of_tag(Action::Resume, name);
            }
            Err(_) => self.send_back(&pieces),
        }
        self.settle_all();
        brought
    }

    /// Frees a paused block: its memory does not come back.
    #[cold]
    pub(super) fn free_paused(
        &self,
        lane: &Lane,
        mut guard: LaneGuard<'_>,
        slot: Slot,
    ) -> Result<()> {
        let state = &mut *guard;
        lane.count_free(state, slot);
        let saved = lane.forget_paused(state, slot);
        drop(guard);
        if let Some(device) = self.opened(lane.device) {
            for host_address in saved {
                device.free_host(host_address);
            }
            device.settle();
        }
        Ok(())
    }

    /// Begins to pause or to resume, after what an earlier time has left to be done.
    fn begin_transition(&self) -> Result<Transition<'_>> {
        let transition = self.tags.begin_transition()?;
        self.paged().for_each(|(device, _)| device.unpin());
        Ok(transition)
    }

    /// The devices in use, with their extents.
    fn paged(&self) -> impl Iterator<Item = (DeviceHeap<'_>, &Extents)> {
        self.opened_devices().filter_map(|device| Some((device, device.state.backing.extents()?)))
    }

    fn refuse_while_capturing(&self) -> Result<()> {
        match self.paged().find(|(device, _)| device.may_capture()) {
            None => Ok(()),
            Some((device, _)) => {
                let what = match device.pools.is_routing() {
                    true => "a private pool is begun",
                    false => "a stream is captured",
                };
                let message = format!("device {}: {what}", device.ordinal);
                Err(Error::new(Status::Busy, message))
            }
        }
    }

    /// Waits for every device in use: work of one may use memory of another.
    fn wait_for_all(&self) -> Result<()> {
        self.refuse_while_capturing()?;
        self.paged().try_for_each(|(device, _)| device.synchronize()).map_err(failed)
    }

    fn settle_all(&self) {
        self.paged().for_each(|(device, _)| device.settle());
    }

    /// The records of the tag, as they are now.
    fn pieces(&self, tag: PoolNumber) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for (device, extents) in self.paged() {
            for lane in device.lanes().filter(|lane| lane.pool() == tag) {
                let records = lane.lock().paused.clone();
                pieces.extend(records.into_iter().map(|record| {
                    let is_new = false;
                    Piece { device, extents, lane, record, is_new }
                }));
            }
        }
        pieces
    }

    fn set_aside(&self, tag: PoolNumber, lanes: &[&Lane]) -> Result<()> {
        for lane in lanes {
            let Some(device) = self.opened(lane.device) else { continue };
            let Some(extents) = device.state.backing.extents() else { continue };
            let mut state = lane.lock();
            // It may have been given to another stream meanwhile.
            if lane.pool() == tag && !lane.set_aside(&mut state, &mut extents.store.extents()) {
                let message = format!(
                    "device {}: freed blocks of the tag still wait for a stream",
                    lane.device
                );
                return Err(Error::new(Status::Busy, message));
            }
        }
        Ok(())
    }

    /// Gives the memory of the tag's records back, saved if it is to be.
    fn vacate(&self, tag: PoolNumber, keep_contents: bool) -> Result<()> {
        let mut pieces = self.pieces(tag);
        pieces.retain(|piece| piece.record.memory.is_some());
        let mut saved = Vec::new();
        let vacated = self
            .save(&pieces, keep_contents, &mut saved)
            .and_then(|()| pieces.iter().try_for_each(|piece| self.unmap_piece(piece)));
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
            self.give_memory_up(piece, contents);
        }
        Ok(())
    }

    /// Copies the live bytes of the pieces to host memory, if they are to be kept; `saved` gets
    /// where the contents of each will be, as far as it comes.
    fn save(
        &self,
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

    /// Unmaps every view of the piece's extent.
    fn unmap_piece(&self, piece: &Piece<'_>) -> driver::Result<()> {
        let Piece { device, extents, lane, record, .. } = piece;
        let Some(id) = record.memory else { return Ok(()) };
        let next = || extents.store.extents().get(id)?.shadows.first().copied();
        for _ in 0..YIELDS {
            let Some(view) = next() else {
                if !extents.store.extents().has_views(id) {
                    return Ok(());
                }
                // Another thread is about the last.
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
                // Another thread has found the shadow to be one too many, and is about it.
                Err(Kept::InUse) => std::thread::yield_now(),
            }
        }
        Err(DriverError { call: Call::Unmap, code: Code::NOT_READY })
    }

    /// The piece's extent has no view: it goes back to the driver, or rests.
    fn give_memory_up(&self, piece: &Piece<'_>, contents: Contents) {
        let Piece { device, extents, lane, record, .. } = piece;
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

    /// Pausing has failed: blocks whose contents are in memory are live again, once that is
    /// mapped where it was. If it cannot be, they stay paused.
    fn take_back(&self, tag: PoolNumber) {
        let mut pieces = self.pieces(tag);
        pieces.retain(|piece| piece.record.contents == Contents::InMemory);
        if let Err(error) = pieces.iter().try_for_each(Piece::map) {
            let message = format_args!("{error}; the tag stays paused, with its memory held");
            self.log.write(LogLevel::Error, &message);
            return;
        }
        bring_home(&pieces);
    }

    /// Memory for the pieces that have none, mapped.
    fn bring_memory(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        for (device, _) in self.paged() {
            let away = pieces
                .iter()
                .filter(|piece| piece.device.ordinal == device.ordinal)
                .filter(|piece| piece.record.memory.is_none());
            let missing_bytes = away.map(|piece| piece.record.bytes).sum();
            if missing_bytes > 0 {
                device.make_room(missing_bytes);
            }
        }
        for piece in pieces {
            if piece.record.memory.is_none() && !self.create_for(piece)? {
                continue;
            }
            piece.map().map_err(failed)?;
        }
        Ok(())
    }

    /// A new extent for the piece; `false` if its last block has been freed meanwhile.
    fn create_for(&self, piece: &mut Piece<'_>) -> Result<bool> {
        let Piece { device, extents, lane, record, .. } = &*piece;
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
            _ => self.no_memory(piece),
        })?;
        let is_wanted = {
            let mut state = lane.lock();
            extents.store.extents().set_aside(id);
            let found = state.record_mut(record.address);
            found.map(|record| record.memory = Some(id)).is_some()
        };
        if is_wanted {
            (piece.record.memory, piece.is_new) = (Some(id), true);
        } else {
            extents.discard(*device, id);
        }
        Ok(is_wanted)
    }

    fn no_memory(&self, piece: &Piece<'_>) -> Error {
        let Piece { device, record, .. } = piece;
        let (bytes, reserved) = (Bytes(record.bytes), Bytes(device.ledger.reserved_bytes()));
        let message = format!(
            "device {}: no {bytes} for what is paused: {reserved} are reserved, with nothing \
             cached that could go back",
            device.ordinal
        );
        Error::new(Status::OutOfMemory, message)
    }

    /// Resuming has failed: the memory that was made for it goes back.
    fn send_back(&self, pieces: &[Piece<'_>]) {
        for piece in pieces.iter().filter(|piece| piece.is_new) {
            match self.unmap_piece(piece) {
                Ok(()) => self.give_memory_up(piece, piece.record.contents),
                Err(error) => {
                    let ordinal = piece.device.ordinal;
                    let message = format_args!("device {ordinal}: {error}; the memory is kept");
                    self.log.write(LogLevel::Error, &message);
                }
            }
        }
    }

    /// All memory is back, with its contents: the blocks are live and free.
    fn settle_in(&self, pieces: &[Piece<'_>]) {
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
}

impl DeviceHeap<'_> {
    /// Gives pinned host memory back, now or, if that cannot be, with what follows it.
    fn free_host(self, host_address: u64) {
        self.unpinned.lock().push(host_address);
        self.unpin();
    }

    fn unpin(self) {
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

impl Piece<'_> {
    /// Maps the extent where it is to be, with access, unless it is there.
    fn map(&self) -> driver::Result<()> {
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
}

/// The blocks of the pieces' lanes are live and free again where contents are in memory.
fn bring_home(pieces: &[Piece<'_>]) {
    // Those of a lane stand together.
    for of_lane in pieces.chunk_by(|piece, next| piece.lane.index == next.lane.index) {
        let Piece { device, lane, extents, .. } = of_lane[0];
        lane.bring_home(&mut lane.lock(), &mut extents.store.extents(), &device.ledger);
    }
}

/// Copies what was saved back.
fn restore_contents(pieces: &[Piece<'_>]) -> Result<()> {
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

/// What a driver's error means here.
fn failed(error: DriverError) -> Error {
    match error.code {
        Code::STREAM_CAPTURE_UNSUPPORTED => Error::new(Status::Busy, error.to_string()),
        _ => error.into(),
    }
}
