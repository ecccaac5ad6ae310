//! What debugging does at an allocation and at a free, and what it reports: see `super`.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::super::description::LiveBlock;
use super::super::history::{Birth, Death};
use super::super::kept::Held;
use super::super::lane::{Lane, LaneGuard, LaneState};
use super::super::state::{DeviceHeap, Heap};
use super::leaks::{self, LiveDetail};
use super::poison::{self, Filled};
use crate::base::{DeviceOrdinal, Error, Failure, Result, Status, StreamHandle};
use crate::config::{PoolType, Settings};
use crate::memory::{Slot, State};
use crate::order::RecordedStreams;

impl DeviceHeap<'_> {
    /// Records that the block at `address` was handed out for use on `stream`, and fills it.
    #[cold]
    pub(in super::super) fn note_debugged(self, stream: StreamHandle, address: u64) {
        let (site, time) = (self.heap.notes.events.site(), (self.heap.clock)());
        let Some((lane, slot)) = self.heap.find(address) else { return };
        let found = {
            let state = lane.lock();
            let block = state.blocks.find(slot, address);
            block.map(|block| (block.requested_bytes, block.bytes))
        };
        let Some((requested_bytes, bytes)) = found else { return };
        let is_filled = self.heap.debugging.modes().poison
            && !lane.pool().is_private()
            && poison::fill_fresh(self, stream, address, bytes);
        let birth = Birth { requested_bytes, bytes, site, time, is_filled };
        self.heap.debugging.ledger.lock().open(address, birth);
    }

    /// Frees the live block in `slot`, whose death the ledger has recorded.
    fn free_closed<'a>(
        self,
        lane: &'a Lane,
        mut state: LaneGuard<'a>,
        slot: Slot,
        death: Death,
    ) -> Result<()>
    where
        Self: 'a,
    {
        let debugging = &self.heap.debugging;
        if self.heap.policy.is_timing() {
            state.blocks.get_mut(slot).freed_second = self.heap.seconds();
        }
        let recorded = lane.count_free(&mut state, slot);
        let block = state.blocks.get(slot);
        let (address, bytes, requested_bytes) = (block.address, block.bytes, block.requested_bytes);
        self.refund_tags(lane.pool(), requested_bytes);
        let (modes, may_capture) = (debugging.modes(), self.may_capture());
        let holds_back = self.is_guarded || modes.poison || modes.quarantine;
        let kept_bytes = match self.pool_type {
            // To release it the driver would wait, but a stream may be captured: keep all.
            PoolType::Naive if may_capture && holds_back => u64::MAX,
            _ if modes.quarantine && !self.is_guarded => {
                debugging.quarantine_limit_bytes.load(Relaxed)
            }
            _ => 0,
        };
        if lane.pool().is_private() || kept_bytes == 0 && !modes.poison {
            let freed = if recorded != RecordedStreams::NONE || !lane.keeps_blocks(&state) {
                self.heap.free_slow(lane, state, slot)
            } else {
                let LaneState { strategy, blocks, .. } = &mut *state;
                strategy.give(blocks, slot);
                drop(state);
                Ok(())
            };
            self.shrink_quarantine(kept_bytes, false);
            self.settle();
            return freed;
        }
        let may_wait = self.hold_back(lane, state, slot) && !may_capture;
        let mut held = Held { lane: lane.index, slot, address, bytes, death, is_poisoned: false };
        let is_idle = modes.poison && may_wait && self.wait_for_user();
        if is_idle {
            self.check_slack(&held);
            let filled = if self.is_guarded { Filled::No } else { self.fill_freed(&held) };
            held.is_poisoned = filled == Filled::Yes;
            if filled == Filled::Later {
                lane.hold_until_idle(slot);
            }
        }
        match kept_bytes {
            0 => self.let_go(&held),
            _ => self.quarantine().lock().push(held),
        }
        self.shrink_quarantine(kept_bytes, is_idle);
        self.settle();
        Ok(())
    }
}

impl Heap {
    /// Applies `settings`, after `policy` has.
    pub(in super::super) fn apply_debugging(&self, settings: &Settings) {
        self.debugging.set(settings, self.events());
        for device in self.opened_devices() {
            if settings.debug.quarantine {
                device.shrink_quarantine(settings.quarantine_size_bytes, false);
            } else {
                device.drain_quarantine();
            }
        }
        if !settings.debug.is_any() {
            // A thread may still record a block after this; the next block there replaces it.
            self.debugging.ledger.lock().clear();
        }
    }

    /// Before the blocks of `lanes` are paused: empties the quarantines, and forgets the fill
    /// patterns, because a resume restores only the program's data.
    pub(in super::super) fn ready_for_pause(&self, lanes: &[&Lane]) {
        if !self.policy.is_debugging() {
            return;
        }
        for device in self.opened_devices() {
            device.drain_quarantine();
        }
        for lane in lanes {
            let state = lane.lock();
            let live = state.blocks.iter().filter(|(_, block)| block.state == State::Live);
            live.for_each(|(_, block)| self.debugging.ledger.lock().forget_fill(block.address));
        }
    }

    /// Frees the block at `address`, found in `slot` of `lane`, if it is still live or paused.
    #[cold]
    pub(in super::super) fn free_debugged(
        &self,
        lane: &Lane,
        slot: Slot,
        address: u64,
    ) -> Result<()> {
        let Some(device) = self.opened(lane.device) else {
            return Err(Error::new(Status::Internal, "a block of a device never opened"));
        };
        let (site, time) = (self.notes.events.site(), (self.clock)());
        let state = lane.lock();
        let found = state.blocks.find(slot, address).map(|block| (block.state, block.bytes));
        let close = |bytes| self.debugging.ledger.lock().close(address, bytes, site, time);
        match found {
            Some((State::Live, bytes)) => {
                let death = close(bytes);
                device.free_closed(lane, state, slot, death)
            }
            Some((State::Paused, bytes)) => {
                close(bytes);
                self.free_paused(lane, state, slot)
            }
            _ => {
                drop(state);
                Err(self.not_live(address))
            }
        }
    }

    /// The live blocks of at least `least_bytes` requested, of `device` or of all, largest first.
    /// Does not call the driver; a device not yet used has none.
    pub fn live_details(
        &self,
        device: Option<DeviceOrdinal>,
        least_bytes: u64,
    ) -> Result<Vec<LiveDetail>> {
        device.map(|device| self.slot(device)).transpose()?;
        let now = (self.clock)();
        let mut live = Vec::new();
        for lane in self.lanes.iter().filter(|lane| device.is_none_or(|one| one == lane.device)) {
            let tag = self.tags.name(lane.pool());
            let state = lane.lock();
            let chosen = state.blocks.iter().filter(|(_, block)| {
                matches!(block.state, State::Live | State::Paused)
                    && block.requested_bytes >= least_bytes
            });
            live.extend(chosen.map(|(_, block)| LiveDetail {
                block: LiveBlock::of(lane, block),
                age: None,
                site: 0,
                tag: tag.clone(),
            }));
        }
        {
            let ledger = self.debugging.ledger.lock();
            for detail in &mut live {
                if let Some(birth) = ledger.birth(detail.block.address) {
                    detail.age = Some(now.saturating_sub(birth.time));
                    detail.site = birth.site;
                }
            }
        }
        live.sort_by_key(|one| (Reverse(one.block.requested_bytes), one.block.address));
        Ok(live)
    }

    /// A report of what is live, grouped by call site; `None` if nothing is live.
    pub fn leak_report(&self) -> Option<String> {
        let live = self.live_details(None, 0).unwrap_or_default();
        leaks::report(&live, |site| self.place(site))
    }

    /// Adds what is known of `address` to `error`, which says that no live block begins there.
    /// `around` is the start of the live block that `address` lies in, if any.
    pub(in super::super) fn add_history(
        &self,
        error: &mut Error,
        address: u64,
        around: Option<u64>,
    ) {
        let (site, now) = (self.notes.events.site(), (self.clock)());
        let (birth, death) = {
            let ledger = self.debugging.ledger.lock();
            match around {
                Some(start) => (ledger.birth(start), None),
                None => (None, ledger.death_around(address)),
            }
        };
        let Failure { status, message, .. } = &mut **error;
        let message = message.to_mut();
        if let Some((start, death)) = death {
            if start == address {
                *status = Status::DoubleFree;
                *message = format!("{address:#x} is already free");
            } else {
                *message +=
                    &format!("; it is {} bytes into a block at {start:#x}", address - start);
            }
            *message += &format!(": {}", self.history(&death, now));
        }
        if let Some(birth) = birth {
            *message += &format!(", allocated {}", self.place_and_age(birth.site, birth.time, now));
        }
        *message += &format!("; now used {}", self.place(site));
    }

    /// A text: where and when a freed block was allocated and freed.
    pub(super) fn history(&self, death: &Death, now: Duration) -> String {
        let born = match death.birth {
            None => String::new(),
            Some(Birth { requested_bytes, site, time, .. }) => {
                let place = self.place_and_age(site, time, now);
                format!("{requested_bytes} bytes allocated {place}, ")
            }
        };
        format!("{born}freed {}", self.place_and_age(death.site, death.time, now))
    }

    fn place_and_age(&self, site: u32, time: Duration, now: Duration) -> String {
        let seconds = now.saturating_sub(time).as_secs_f64();
        format!("{} ({seconds:.3} s ago)", self.place(site))
    }

    /// A text of one line for a call site.
    fn place(&self, site: u32) -> String {
        match self.notes.events.place(site) {
            place if place.is_empty() => "at a place not known".to_owned(),
            place => format!("at {place}"),
        }
    }
}
