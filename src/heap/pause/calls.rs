//! Begins and ends tags, and pauses and resumes them: see `super`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use super::super::lane::{Lane, LaneGuard};
use super::super::pools::{Mark, PoolId};
use super::super::state::{DeviceHeap, Extents, Heap};
use super::super::tags::{Chosen, Known, Transition};
use super::pieces::{Keeping, Piece, bring_home, restore_contents, send_back, settle_in, vacate};
use super::transfer::refused;
use crate::base::{Backup, DeviceOrdinal, Error, Result, Status};
use crate::config::{LogLevel, PoolType};
use crate::memory::{Slot, State};
use crate::observe::Action;

/// What a profile calls a pause of all tags.
const ALL_TAGS: &str = "all tags";

impl Heap {
    /// Until the matching [`Self::end_tag`] the calling thread's allocations have the tag `name`.
    /// Tags nest: a block is paused with the innermost, and counts for all. A request that a
    /// private pool's filter takes belongs to that pool and to no tag. A block keeps the tags it
    /// was allocated with.
    pub fn begin_tag(&self, name: &str) -> Result<()> {
        require_name(name)?;
        self.begin_tag_with(name, Backup::None)
    }

    /// [`Self::begin_tag`] for allocations of which `backup` says what is kept while they are paused,
    /// if whoever pauses them does not. The empty name is no tag.
    pub fn begin_tag_with(&self, name: &str, backup: Backup) -> Result<()> {
        self.tags.begin(name, backup, || self.tags_begin())
    }

    /// Gives threads that have begun no tag the tag `name`; the empty name is no tag.
    pub fn set_default_tag(&self, name: &str, backup: Backup) {
        self.tags.set_default(name, backup, || self.tags_begin());
    }

    /// From now on the memory of a private pool of `device`, live and free, is paused with the tag
    /// `name`; the empty name is no tag. Until the pool's last use ends. `InvalidArgument` if nobody
    /// holds it.
    ///
    /// If a graph was captured from the pool, free memory in it is kept as well, because the graph
    /// writes there. Memory that is not the device's own (`super::own_memory`) is never paused.
    pub fn set_pool_tag(
        &self,
        device: DeviceOrdinal,
        pool: PoolId,
        name: &str,
        backup: Backup,
    ) -> Result<()> {
        let pools = &self.device(device)?.state.pools;
        if name.is_empty() {
            return pools.set_mark(pool, None);
        }
        let tag = self.with_tag(name, |_, position| position)?;
        pools.set_mark(pool, Some(Mark { tag, backup }))
    }

    /// Runs `then` with the registry and the position of the tag `name`, known from now on.
    pub(in super::super) fn with_tag<T>(
        &self,
        name: &str,
        then: impl FnOnce(&mut Known, u32) -> T,
    ) -> Result<T> {
        require_name(name)?;
        Ok(self.tags.with_position(name, || self.tags_begin(), then))
    }

    /// Called when the first tag of all becomes known.
    fn tags_begin(&self) {
        self.policy.heed_tags();
        self.opened_devices().for_each(|device| device.pools.set_tagged(true));
    }

    /// Ends the innermost tag that the calling thread has begun.
    pub fn end_tag(&self) -> Result<()> {
        self.tags.end()
    }

    /// How often the tag `name` was resumed. A caller that has registered its memory with other
    /// devices must do so again when this has changed. `InvalidArgument` for an unknown tag.
    pub fn generation(&self, name: &str) -> Result<u64> {
        self.tags.generation(name)
    }

    /// Pausing, and access by peers, need Elastic.
    pub(in super::super) fn require_elastic(&self) -> Result<()> {
        let pool_type = self.settings.lock().strategy.pool_type;
        if pool_type == PoolType::Elastic {
            return Ok(());
        }
        let message = format!("{pool_type:?} does not do this: only Elastic does");
        Err(Error::new(Status::NotSupported, message))
    }

    /// [`Self::pause_tags`] of one tag, with its contents in page-locked memory or dropped.
    pub fn pause(&self, name: &str, keep_contents: bool) -> Result<()> {
        let backup = if keep_contents { Backup::Pinned } else { Backup::None };
        self.pause_tags(Some(name), Keeping { backup: Some(backup), version: None })
    }

    /// [`Self::resume_tags`] of one tag.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.resume_tags(Some(name))
    }

    /// Releases the physical memory of the tag `name`, or of all tags, on all devices, cached and
    /// live, and that of private pools with the tag. Live blocks keep their addresses.
    /// [`Self::resume_tags`] restores their contents as `keeping` says; what is not kept is
    /// undefined then. Until then no work may touch the blocks; they may be freed. What is already
    /// paused stays as it is.
    ///
    /// Waits for all devices. `InvalidArgument` for an unknown tag. `Busy`, with nothing changed:
    /// while a private pool is begun; while freed blocks of the tag still wait for a stream;
    /// while another process has a block of the tag; while another thread pauses or resumes; and
    /// while a stream captures outside of any pool (the wait spoils that capture, as every wait
    /// does). Any other failure is undone. If the driver refuses that too, the tag is paused with
    /// its memory held, and a resume repairs it.
    pub fn pause_tags(&self, name: Option<&str>, keeping: Keeping) -> Result<()> {
        self.require_elastic()?;
        let chosen = self.tags.choose(name)?;
        let _transition = self.begin_transition()?;
        let of_device =
            |device: DeviceHeap<'_>, lane: &Lane| chosen.mark(&device.pools, lane.pool()).is_some();
        let lanes: Vec<&Lane> = self
            .paged()
            .flat_map(|(device, _)| device.lanes().filter(move |lane| of_device(device, lane)))
            .collect();
        if !lanes.iter().any(|lane| lane.lock().has_memory()) {
            return Ok(());
        }
        self.pause_chosen(&chosen, &lanes, (keeping, name.unwrap_or(ALL_TAGS)))
    }

    /// Releases the memory of the block at `address`, and drops its contents. The block must have
    /// been allocated under a tag, and have its memory to itself ([`Self::allocate_alone`]).
    /// [`Self::resume_block`] brings it back, and so does a resume of its tag. Does nothing if the
    /// block is paused.
    ///
    /// Waits for all devices. `ForeignPointer` and `DoubleFree` as for a free; `InvalidArgument` for
    /// a block that shares its memory or has no tag; otherwise fails as [`Self::pause_tags`] does.
    pub fn pause_block(&self, address: u64) -> Result<()> {
        self.require_elastic()?;
        let Some((lane, chosen)) = self.choose_block(address, State::Live)? else { return Ok(()) };
        let Some(tag) = self.tags.name(lane.pool()) else {
            let message = format!("the block at {address:#x} was allocated under no tag");
            return Err(Error::invalid_argument(message));
        };
        let _transition = self.begin_transition()?;
        let dropped = Keeping { backup: Some(Backup::None), version: None };
        self.pause_chosen(&chosen, &[lane], (dropped, &tag))
    }

    /// Restores the memory of the block at `address`; its contents are undefined. Does nothing if
    /// the block is not paused. Fails as [`Self::resume_tags`] and a free do.
    pub fn resume_block(&self, address: u64) -> Result<()> {
        self.require_elastic()?;
        let Some((_, chosen)) = self.choose_block(address, State::Paused)? else { return Ok(()) };
        let _transition = self.begin_transition()?;
        self.resume_chosen(&chosen)
    }

    /// The block at `address` and its lane, if it is in the state `wanted`; `None` if it is handed
    /// out in another.
    fn choose_block(&self, address: u64, wanted: State) -> Result<Option<(&Lane, Chosen)>> {
        let found = self.find(address).and_then(|(lane, slot)| {
            let state = lane.lock();
            state.blocks.find(slot, address).map(|block| (lane, block.state, block.range()))
        });
        match found {
            Some((lane, state, range)) if state == wanted => {
                Ok(Some((lane, self.tags.choose(None)?.within(range))))
            }
            Some((_, State::Live | State::Paused, _)) => Ok(None),
            _ => Err(self.not_live(address)),
        }
    }

    /// Pauses what is chosen, which is in `lanes`; a profile calls it `name`.
    fn pause_chosen(
        &self,
        chosen: &Chosen,
        lanes: &[&Lane],
        (keeping, name): (Keeping, &str),
    ) -> Result<()> {
        self.ready_for_pause(lanes);
        self.wait_for_all()?;
        let folder = self.backup_folder();
        let paused = self.set_aside(chosen, lanes).and_then(|()| {
            self.refuse_shared(chosen)?;
            self.wait_for_all()?;
            vacate(self.pieces(chosen), keeping, &folder)
        });
        if paused.is_err() {
            self.take_back(chosen);
        }
        if paused.is_ok() {
            self.notes.of_tag(Action::Pause, name);
        }
        self.settle_all();
        paused
    }

    /// Restores the memory of the tag `name`, or of all tags, as it was before
    /// [`Self::pause_tags`]: at the same addresses, with the contents that were kept. Does nothing if
    /// nothing is paused.
    ///
    /// `OutOfMemory` if the limit or the driver does not allow as much, even after everything
    /// cached is released; `Busy` and `InvalidArgument` as for pausing. After a failure all of it
    /// is still paused, with its saved contents.
    pub fn resume_tags(&self, name: Option<&str>) -> Result<()> {
        self.require_elastic()?;
        let chosen = self.tags.choose(name)?;
        let _transition = self.begin_transition()?;
        self.resume_chosen(&chosen)
    }

    fn resume_chosen(&self, chosen: &Chosen) -> Result<()> {
        let mut pieces = self.pieces(chosen);
        if pieces.is_empty() {
            return Ok(());
        }
        self.refuse_while_capturing()?;
        let brought = self.bring_memory(&mut pieces).and_then(|()| restore_contents(&pieces));
        match brought {
            Ok(()) => {
                settle_in(&pieces, self.tags.retains.load(Relaxed));
                let tags: HashSet<u32> = pieces.iter().map(|piece| piece.record.mark.tag).collect();
                for tag in tags {
                    self.tags.count_resume(tag);
                    self.notes.of_tag(Action::Resume, &self.tags.name_at(tag));
                }
            }
            Err(_) => send_back(&pieces),
        }
        drop(pieces);
        self.settle_all();
        brought
    }

    /// Whether what was saved of memory stays after it was resumed, for the next pause.
    pub fn set_retains_backups(&self, retains: bool) {
        self.tags.retains.store(retains, Relaxed);
    }

    /// Returns true if what was saved stays after a resume.
    pub fn retains_backups(&self) -> bool {
        self.tags.retains.load(Relaxed)
    }

    /// Where `bytes` from `address` on, of one block that is paused or was, are kept in host memory.
    /// `None` if they are not: they were dropped or written to a file, or their copy was dropped
    /// after a resume. Valid until the block is freed or its tag is paused or resumed.
    pub fn backup_of(&self, address: u64, bytes: u64) -> Result<Option<u64>> {
        let block = self.block_containing(address)?;
        let Some((lane, _)) = self.find(block.address) else { return Ok(None) };
        let state = lane.lock();
        let last = address.saturating_add(bytes.max(1) - 1);
        let (first, last) = (state.saved_at(address), state.saved_at(last));
        Ok(first.zip(last).filter(|(first, last)| last - first == bytes.max(1) - 1).map(|at| at.0))
    }

    /// Frees a paused block: a resume does not restore it.
    #[cold]
    pub(in super::super) fn free_paused(
        &self,
        lane: &Lane,
        mut guard: LaneGuard<'_>,
        slot: Slot,
    ) -> Result<()> {
        let state = &mut *guard;
        lane.count_free(state, slot);
        let (number, requested_bytes) = (lane.pool(), state.blocks.get(slot).requested_bytes);
        lane.forget_paused(state, slot);
        drop(guard);
        if let Some(device) = self.opened(lane.device) {
            device.clear_waste();
            device.refund_tags(number, requested_bytes);
            device.settle();
        }
        Ok(())
    }

    /// Begins a pause or resume, and frees what earlier ones left: copies of memory whose blocks are
    /// all gone, too.
    fn begin_transition(&self) -> Result<Transition<'_>> {
        let transition = self.tags.begin_transition()?;
        for (device, _) in self.paged() {
            for lane in device.lanes() {
                let state = &mut *lane.lock();
                if !state.has_live() {
                    state.kept.clear();
                }
            }
            device.clear_waste();
        }
        Ok(transition)
    }

    /// Where files with the contents of paused memory are made.
    fn backup_folder(&self) -> PathBuf {
        let chosen = self.settings.lock().backup_folder.clone();
        chosen.map_or_else(std::env::temp_dir, PathBuf::from)
    }

    /// The devices in use that have extents, with these.
    fn paged(&self) -> impl Iterator<Item = (DeviceHeap<'_>, &Extents)> {
        self.opened_devices().filter_map(|device| Some((device, device.state.backing.extents()?)))
    }

    fn refuse_while_capturing(&self) -> Result<()> {
        self.paged().for_each(|(device, _)| device.look_for_ends());
        match self.paged().find(|(device, _)| device.may_capture()) {
            None => Ok(()),
            Some((device, _)) => {
                let what = if device.pools.is_routing() {
                    "a private pool is begun"
                } else {
                    "a stream is captured"
                };
                let message = format!("device {}: {what}", device.ordinal);
                Err(Error::new(Status::Busy, message))
            }
        }
    }

    /// Waits for every device in use: work of one device may use memory of another.
    fn wait_for_all(&self) -> Result<()> {
        self.refuse_while_capturing()?;
        self.paged().try_for_each(|(device, _)| device.synchronize()).map_err(refused)
    }

    fn settle_all(&self) {
        for (device, _) in self.paged() {
            device.clear_waste();
            device.settle();
        }
    }

    /// Copies of the records of what is chosen.
    fn pieces(&self, chosen: &Chosen) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for (device, extents) in self.paged() {
            for lane in device.lanes() {
                let state = lane.lock();
                let records = state.paused.iter().filter(|record| chosen.has_record(record));
                pieces.extend(records.map(|record| {
                    let (record, is_new) = (record.clone(), false);
                    Piece { device, extents, lane, record, is_new }
                }));
            }
        }
        pieces
    }

    fn set_aside(&self, chosen: &Chosen, lanes: &[&Lane]) -> Result<()> {
        for lane in lanes {
            let Some(device) = self.opened(lane.device) else { continue };
            let Some(extents) = device.state.backing.extents() else { continue };
            let mut state = lane.lock();
            // The lane may belong to another stream by now.
            let Some(mark) = chosen.mark(&device.pools, lane.pool()) else { continue };
            let is_fixed = lane.pool().is_private() && !device.pools.may_shrink(lane.pool());
            let table = &mut extents.store.extents();
            if chosen.is_block() && !lane.has_alone(&state, table, chosen.range()) {
                let address = chosen.range().start;
                let message =
                    format!("the block at {address:#x} does not have its memory to itself");
                return Err(Error::invalid_argument(message));
            }
            if !lane.set_aside(&mut state, table, (mark, is_fixed), chosen.range()) {
                let message = format!(
                    "device {}: freed blocks of the tag still wait for a stream",
                    lane.device
                );
                return Err(Error::new(Status::Busy, message));
            }
        }
        Ok(())
    }

    /// After a failed pause: maps memory that still has its contents where it was, and makes its
    /// blocks live again. If it cannot be mapped, they stay paused.
    fn take_back(&self, chosen: &Chosen) {
        let mut pieces = self.pieces(chosen);
        pieces.retain(|piece| piece.record.contents.is_in_memory());
        if let Err(error) = pieces.iter().try_for_each(Piece::map) {
            self.log.write(
                LogLevel::Error,
                &format_args!("{error}; the tag stays paused, with its memory held"),
            );
            return;
        }
        bring_home(&pieces);
    }

    /// Creates memory for the pieces that have none, and maps all of them.
    fn bring_memory(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        let mut rest_bytes: HashMap<DeviceOrdinal, u64> = HashMap::new();
        for piece in pieces.iter().filter(|piece| piece.record.memory.is_none()) {
            *rest_bytes.entry(piece.device.ordinal).or_default() += piece.record.bytes;
        }
        for (device, _) in self.paged() {
            if let Some(&bytes) = rest_bytes.get(&device.ordinal) {
                device.make_room(bytes);
            }
        }
        for piece in pieces {
            if piece.record.memory.is_none() {
                let rest_bytes = rest_bytes.entry(piece.device.ordinal).or_default();
                let is_wanted = piece.create(*rest_bytes)?;
                *rest_bytes -= piece.record.bytes;
                if !is_wanted {
                    continue;
                }
            }
            piece.map().map_err(refused)?;
        }
        Ok(())
    }
}

fn require_name(name: &str) -> Result<()> {
    if name.is_empty() { Err(Error::invalid_argument("a tag has a name")) } else { Ok(()) }
}
