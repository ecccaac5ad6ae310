//! What a lane records of memory that is paused: its blocks, and where their extents were mapped
//! and will be again.
//!
//! A *record* stands for one extent whose home (the view with its blocks) was here. The live
//! blocks in its range are [`State::Paused`], the rest of it is [`State::Absent`]. A paused block
//! may span several records; an absent one may not.
//!
//! ```text
//! records are sorted by address and do not overlap
//! Σ bytes of the records = Σ bytes of paused and absent blocks
//! live_blocks of a record = the paused blocks that have bytes in it
//! memory is there  ⇒  its extent is set aside;   memory is away  ⇒  live_blocks > 0 or fixed
//! contents are in memory  ⇒  memory is there
//! ```
//!
//! A *fixed* record is of a private pool from which a graph was captured: the graph writes to free
//! memory of the pool as well, so all of the extent is kept and comes back, until the pool's release.
//!
//! A record with memory belongs to the thread that pauses or resumes the tag (`calls`). One
//! without is dropped by the thread that frees the last block in it. All functions run under
//! the lane's lock and never call the driver.

use std::ops::Range;

use super::super::lane::{Lane, LaneState};
use super::super::paused_extent::{KeptCopy, PausedExtent, offset_of};
use super::super::pools::Mark;
use crate::memory::{Block, Extent, ExtentId, ExtentTable, Ledger, Slot, State, View};

impl Block {
    /// Its addresses.
    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }
}

impl LaneState {
    /// Returns true if there is anything to pause.
    pub(in super::super) fn has_memory(&self) -> bool {
        self.blocks.backed_bytes() > 0 || self.paused.iter().any(|record| record.memory.is_some())
    }

    /// Returns true if the extent `id` is set aside for the record at `address`.
    pub(in super::super) fn has_paused(&self, address: u64, id: ExtentId) -> bool {
        self.record_at(address).is_some_and(|index| self.paused[index].memory == Some(id))
    }

    /// Returns true if the lane has a live block.
    pub(in super::super) fn has_live(&self) -> bool {
        self.blocks.iter().any(|(_, block)| matches!(block.state, State::Live | State::Paused))
    }

    /// Where the byte at `address` is kept in host memory, if it is.
    pub(in super::super) fn saved_at(&self, address: u64) -> Option<u64> {
        let paused =
            self.paused.iter().filter_map(|record| Some((&record.live, record.contents.saved()?)));
        let kept = self.kept.iter().map(|kept| (&kept.live, &kept.saved));
        let mut offsets = paused
            .chain(kept)
            .filter_map(|(live, saved)| Some(saved.address()? + offset_of(live, address)?));
        offsets.next()
    }

    fn record_at(&self, address: u64) -> Option<usize> {
        self.paused.binary_search_by_key(&address, |record| record.address).ok()
    }

    /// The record at `address`.
    pub(in super::super) fn record_mut(&mut self, address: u64) -> Option<&mut PausedExtent> {
        self.record_at(address).map(|index| &mut self.paused[index])
    }

    /// The indices of the records that overlap `range`.
    fn records_in(&self, range: &Range<u64>) -> Range<usize> {
        let first = self.paused.partition_point(|record| record.end() <= range.start);
        let end = self.paused.partition_point(|record| record.address < range.end);
        first..end.max(first)
    }

    /// Drops the record at `address` if its memory is away and no paused block is left in it; its
    /// addresses become bare.
    pub(in super::super) fn drop_if_empty(&mut self, address: u64) {
        let Some(index) = self.record_at(address) else { return };
        let record = &self.paused[index];
        if record.memory.is_some() || record.live_blocks > 0 || record.is_fixed {
            return;
        }
        let range = record.address..record.end();
        self.paused.remove(index);
        let inside = |block: &Block| block.state == State::Absent && range.contains(&block.address);
        let absent: Vec<Slot> =
            self.blocks.iter().filter(|(_, block)| inside(block)).map(|(slot, _)| slot).collect();
        absent.into_iter().for_each(|slot| self.make_bare(slot));
    }

    /// No graph needs the lane's free memory any more: what is away of it stays away.
    pub(in super::super) fn unfix(&mut self) {
        self.paused.iter_mut().for_each(|record| record.is_fixed = false);
        let addresses: Vec<u64> = self.paused.iter().map(|record| record.address).collect();
        addresses.into_iter().for_each(|address| self.drop_if_empty(address));
    }

    /// Takes out what was kept of exactly these ranges.
    pub(in super::super) fn take_kept(&mut self, live: &[Range<u64>]) -> Option<KeptCopy> {
        let index = self.kept.iter().position(|kept| kept.live == live)?;
        Some(self.kept.swap_remove(index))
    }

    /// Cuts the block in `slot` where records begin; returns the parts.
    fn cut_at_records(&mut self, slot: Slot) -> Vec<Slot> {
        let range = self.blocks.get(slot).range();
        let mut parts = vec![slot];
        let mut last = slot;
        for index in self.records_in(&range) {
            let border = self.paused[index].address;
            let start = self.blocks.get(last).address;
            if border > start {
                last = self.blocks.split(last, border - start);
                parts.push(last);
            }
        }
        parts
    }

    /// Checks the equations of the module's note.
    pub(in super::super) fn validate_paused(&self) -> Result<(), String> {
        let mut end = 0;
        for record in &self.paused {
            if record.address < end {
                return Err(format!("records overlap at {:#x}", record.address));
            }
            end = record.end();
            if record.memory.is_none()
                && (record.live_blocks == 0 && !record.is_fixed || record.contents.is_in_memory())
            {
                return Err(format!("memory is away of {record:?}"));
            }
        }
        let mut live_blocks = vec![0; self.paused.len()];
        let mut bytes = 0;
        for (slot, block) in self.blocks.iter() {
            if !matches!(block.state, State::Paused | State::Absent) {
                continue;
            }
            bytes += block.bytes;
            let records = self.records_in(&block.range());
            if block.state == State::Paused {
                live_blocks[records].iter_mut().for_each(|count| *count += 1);
            } else if records.len() != 1 {
                return Err(format!("absent block {slot} is in {} records", records.len()));
            }
        }
        let recorded_bytes: u64 = self.paused.iter().map(|record| record.bytes).sum();
        if bytes != recorded_bytes {
            return Err(format!("{bytes} bytes away, {recorded_bytes} recorded"));
        }
        if self.paused.iter().map(|record| record.live_blocks).ne(live_blocks) {
            return Err("the paused blocks of a record are miscounted".to_owned());
        }
        Ok(())
    }
}

impl Lane {
    /// Returns true if a live block has just these addresses, and its extents to itself.
    pub(in super::super) fn has_alone(
        &self,
        state: &LaneState,
        extents: &ExtentTable,
        range: &Range<u64>,
    ) -> bool {
        let is_whole = |block: &Block| block.state == State::Live && block.range() == *range;
        let bytes_inside = |extent: &Extent| {
            let home = extent.home.filter(|home| home.lane == self.index)?;
            let is_inside = range.start <= home.address && home.address + extent.bytes <= range.end;
            is_inside.then_some(extent.bytes)
        };
        let bytes: u64 = extents.iter().filter_map(|(_, extent)| bytes_inside(extent)).sum();
        bytes == range.end - range.start && state.blocks.iter().any(|(_, block)| is_whole(block))
    }

    /// Takes all memory of the lane out of use: its blocks become paused or absent, its extents
    /// are set aside, each with a record; only what begins `within` these addresses. Returns false,
    /// with no effect, if blocks are pending.
    pub(in super::super) fn set_aside(
        &self,
        state: &mut LaneState,
        extents: &mut ExtentTable,
        (mark, is_fixed): (Mark, bool),
        within: &Range<u64>,
    ) -> bool {
        let slots_in = |state: &LaneState, wanted: State| -> Vec<Slot> {
            let is_wanted =
                |block: &Block| block.state == wanted && within.contains(&block.address);
            let blocks = state.blocks.iter().filter(|(_, block)| is_wanted(block));
            let mut slots: Vec<Slot> = blocks.map(|(slot, _)| slot).collect();
            slots.sort_unstable_by_key(|&slot| state.blocks.get(slot).address);
            slots
        };
        if !slots_in(state, State::Pending).is_empty() {
            return false;
        }
        let homes = extents.iter().filter_map(|(id, extent)| {
            let is_chosen = |home: &View| home.lane == self.index && within.contains(&home.address);
            let home = extent.home.filter(is_chosen)?;
            let record = PausedExtent::new((home.address, id), extent, mark);
            Some(PausedExtent { is_fixed, tick: state.tick, ..record })
        });
        let homes: Vec<PausedExtent> = homes.collect();
        for id in homes.iter().filter_map(|record| record.memory) {
            extents.set_aside(id);
        }
        state.paused.extend(homes);
        state.paused.sort_by_key(|record| record.address);
        for slot in slots_in(state, State::Free) {
            state.strategy.withdraw(&mut state.blocks, slot);
            state.blocks.turn(slot, State::Absent);
            state.cut_at_records(slot);
        }
        for slot in slots_in(state, State::Live) {
            state.blocks.turn(slot, State::Paused);
            let range = state.blocks.get(slot).range();
            for index in state.records_in(&range) {
                state.paused[index].add_live(&range);
            }
        }
        for record in state.paused.iter_mut().filter(|record| record.is_fixed) {
            record.live = std::iter::once(record.address..record.end()).collect();
        }
        self.count_held(&state.blocks);
        true
    }

    /// Undoes [`Self::set_aside`] for records whose contents are in memory and mapped where they
    /// were: their blocks are live and free again.
    pub(in super::super) fn bring_home(
        &self,
        state: &mut LaneState,
        extents: &mut ExtentTable,
        ledger: &Ledger,
    ) {
        let is_back = |record: &PausedExtent| record.contents.is_in_memory();
        let slots: Vec<Slot> = state
            .blocks
            .iter()
            .filter(|(_, block)| matches!(block.state, State::Paused | State::Absent))
            .filter(|(_, block)| {
                let first = state.records_in(&block.range()).start;
                state.paused.get(first).is_some_and(is_back)
            })
            .map(|(slot, _)| slot)
            .collect();
        let records = std::mem::take(&mut state.paused);
        let (back, away): (Vec<_>, Vec<_>) = records.into_iter().partition(is_back);
        state.paused = away;
        for record in back {
            if let Some(id) = record.memory {
                let before = extents.come_home(id, record.address, record.class);
                ledger.reclassify(record.bytes, before, record.class);
            }
        }
        for slot in slots {
            let is_live = state.blocks.get(slot).state == State::Paused;
            state.blocks.turn(slot, if is_live { State::Live } else { State::Free });
            if !is_live {
                state.strategy.give(&mut state.blocks, slot);
            }
        }
        self.count_held(&state.blocks);
    }

    /// The paused block in `slot`, freed in this epoch, becomes absent.
    pub(in super::super) fn forget_paused(&self, state: &mut LaneState, slot: Slot) {
        self.forget_recorded(state, slot);
        let range = state.blocks.get(slot).range();
        state.blocks.turn(slot, State::Absent);
        state.cut_at_records(slot);
        let records = state.records_in(&range);
        let addresses: Vec<u64> =
            state.paused[records.clone()].iter().map(|record| record.address).collect();
        for record in &mut state.paused[records] {
            record.live_blocks -= 1;
        }
        self.count_held(&state.blocks);
        addresses.into_iter().for_each(|address| state.drop_if_empty(address));
    }
}
