//! Begins and ends tags, and pauses and resumes them: see `super`.

use std::collections::HashSet;

use super::super::lane::{Lane, LaneGuard};
use super::super::paused_extent::Contents;
use super::super::pools::PoolNumber;
use super::super::state::{DeviceHeap, Extents, Heap};
use super::super::tags::{Known, Transition};
use super::pieces::{Piece, bring_home, failed, restore_contents, send_back, settle_in, vacate};
use crate::base::{Error, Result, Status};
use crate::config::{LogLevel, PoolType};
use crate::memory::Slot;
use crate::observe::Action;

impl Heap {
    /// Until the matching [`Self::end_tag`] the calling thread's allocations have the tag `name`.
    /// Tags nest: a block is paused with the innermost, and counts for all. A request that a
    /// private pool's filter takes belongs to that pool and to no tag. A block keeps the tags it
    /// was allocated with.
    pub fn begin_tag(&self, name: &str) -> Result<()> {
        require_name(name)?;
        self.tags.begin(name, || self.tags_begin())
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

    /// Releases the physical memory of the tag `name` on all devices, cached and live. Live
    /// blocks keep their addresses. [`Self::resume`] restores their contents if `keep_contents`;
    /// otherwise they are undefined then. Until then no work may touch the blocks; they may be
    /// freed. What is already paused stays as it is.
    ///
    /// Waits for all devices. `InvalidArgument` for an unknown tag. `Busy`, with nothing changed:
    /// while a private pool is begun; while freed blocks of the tag still wait for a stream;
    /// while another process has a block of the tag; while another thread pauses or resumes; and
    /// while a stream captures outside of any pool (the wait spoils that capture, as every wait
    /// does). Any other failure is undone. If the driver refuses that too, the tag is paused with
    /// its memory held, and a resume repairs it.
    pub fn pause(&self, name: &str, keep_contents: bool) -> Result<()> {
        self.require_elastic()?;
        let tag = self.tags.find(name)?;
        let _transition = self.begin_transition()?;
        let devices = self.paged().map(|(device, _)| device);
        let lanes = devices.flat_map(DeviceHeap::lanes).filter(|lane| tag.contains(&lane.pool()));
        let lanes: Vec<&Lane> = lanes.collect();
        if !lanes.iter().any(|lane| lane.lock().has_memory()) {
            return Ok(());
        }
        self.ready_for_pause(&lanes);
        self.wait_for_all()?;
        let paused = self.set_aside(&tag, &lanes).and_then(|()| {
            self.refuse_shared(&tag)?;
            self.wait_for_all()?;
            vacate(self.pieces(&tag), keep_contents)
        });
        if paused.is_err() {
            self.take_back(&tag);
        }
        if paused.is_ok() {
            self.notes.of_tag(Action::Pause, name);
        }
        self.settle_all();
        paused
    }

    /// Restores the memory of the tag `name` as it was before [`Self::pause`]: at the same
    /// addresses, with the contents that were kept. Does nothing if nothing is paused.
    ///
    /// `OutOfMemory` if the limit or the driver does not allow as much, even after everything
    /// cached is released; `Busy` and `InvalidArgument` as for pausing. After a failure the tag
    /// is still paused, with its saved contents.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.require_elastic()?;
        let tag = self.tags.find(name)?;
        let _transition = self.begin_transition()?;
        let mut pieces = self.pieces(&tag);
        if pieces.is_empty() {
            return Ok(());
        }
        self.refuse_while_capturing()?;
        let brought = self.bring_memory(&mut pieces).and_then(|()| restore_contents(&pieces));
        match brought {
            Ok(()) => {
                settle_in(&pieces);
                self.tags.count_resume(name);
                self.notes.of_tag(Action::Resume, name);
            }
            Err(_) => send_back(&pieces),
        }
        self.settle_all();
        brought
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
        let saved = lane.forget_paused(state, slot);
        drop(guard);
        if let Some(device) = self.opened(lane.device) {
            for host_address in saved {
                device.free_host(host_address);
            }
            device.refund_tags(number, requested_bytes);
            device.settle();
        }
        Ok(())
    }

    /// Begins a pause or resume, and frees pinned host memory that earlier ones left.
    fn begin_transition(&self) -> Result<Transition<'_>> {
        let transition = self.tags.begin_transition()?;
        self.paged().for_each(|(device, _)| device.unpin());
        Ok(transition)
    }

    /// The devices in use that have extents, with these.
    fn paged(&self) -> impl Iterator<Item = (DeviceHeap<'_>, &Extents)> {
        self.opened_devices().filter_map(|device| Some((device, device.state.backing.extents()?)))
    }

    fn refuse_while_capturing(&self) -> Result<()> {
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
        self.paged().try_for_each(|(device, _)| device.synchronize()).map_err(failed)
    }

    fn settle_all(&self) {
        self.paged().for_each(|(device, _)| device.settle());
    }

    /// Copies of the tag's records.
    fn pieces(&self, tag: &HashSet<PoolNumber>) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for (device, extents) in self.paged() {
            for lane in device.lanes().filter(|lane| tag.contains(&lane.pool())) {
                let records = lane.lock().paused.clone();
                pieces.extend(records.into_iter().map(|record| {
                    let is_new = false;
                    Piece { device, extents, lane, record, is_new }
                }));
            }
        }
        pieces
    }

    fn set_aside(&self, tag: &HashSet<PoolNumber>, lanes: &[&Lane]) -> Result<()> {
        for lane in lanes {
            let Some(device) = self.opened(lane.device) else { continue };
            let Some(extents) = device.state.backing.extents() else { continue };
            let mut state = lane.lock();
            // The lane may belong to another stream by now.
            if tag.contains(&lane.pool())
                && !lane.set_aside(&mut state, &mut extents.store.extents())
            {
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
    fn take_back(&self, tag: &HashSet<PoolNumber>) {
        let mut pieces = self.pieces(tag);
        pieces.retain(|piece| piece.record.contents == Contents::InMemory);
        if let Err(error) = pieces.iter().try_for_each(Piece::map) {
            let message = format_args!("{error}; the tag stays paused, with its memory held");
            self.log.write(LogLevel::Error, &message);
            return;
        }
        bring_home(&pieces);
    }

    /// Creates memory for the pieces that have none, and maps all of them.
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
            if piece.record.memory.is_none() && !piece.create()? {
                continue;
            }
            piece.map().map_err(failed)?;
        }
        Ok(())
    }
}

fn require_name(name: &str) -> Result<()> {
    if name.is_empty() { Err(Error::invalid_argument("a tag has a name")) } else { Ok(()) }
}
