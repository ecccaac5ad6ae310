//! A lane: everything the heap keeps for one stream of one device, under one lock.
//!
//! A block belongs to the lane of the stream it was allocated on until it is freed; only a
//! whole free segment changes lanes. Threads that use different streams share nothing here.

use std::sync::Arc;

use super::callers::Callers;
use super::moves::Moves;
use super::owner::{LaneKey, Newcomer, Owner, Ownership};
use super::paused_extent::{KeptCopy, PausedExtent};
use super::pools::PoolNumber;
use super::trough::{Step, Trough};
use super::windows::KnownWindows;
use crate::base::lock::{Guard, Lock, assert_none_held, rank};
use crate::base::size::SizeClass;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::base::{CachePadded, DeviceOrdinal, StreamHandle};
use crate::config::Settings;
use crate::memory::{Block, BlockTable, Directory, Segment, Slot, State};
use crate::observe::{self, Action, EventStream, LaneCounters, Watermark};
use crate::order::{Contexts, Fence, PendingFrees, RecordedStreams, Stream, StreamKey, StreamName};
use crate::strategy::Strategy;

/// One lane. Fields are grouped by who writes them; each group has its own cache line.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Lane {
    /// Written under the lock, read by any thread.
    pub(super) counters: LaneCounters,
    state: CachePadded<Lock<LaneState, { rank::LANE }>>,
    /// Its index among all lanes of the heap.
    pub(super) index: u32,
    /// Its device.
    pub(super) device: DeviceOrdinal,
    /// Written under the lock; code that found the lane by its key checks it again there.
    ownership: Ownership,
    /// The threads that call it.
    pub(super) callers: Callers,
    /// The first request that missed here and wants the epoch ended at the next call; 0: none.
    pub(super) fence_wanted: AtomicU64,
    /// Whether the stream was captured when it was last checked.
    pub(super) is_capturing: AtomicBool,
    observer: &'static EventStream,
}

/// Access to a lane's state, with its lock held. Operations release it by `Heap::let_go`.
pub(super) type LaneGuard<'a> = Guard<'a, LaneState, { rank::LANE }>;

/// The asker of an event that is for no request.
pub(super) const NO_REQUEST: u64 = u64::MAX;

/// What the lane's lock protects.
#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) blocks: BlockTable,
    /// The first block of each area (see `super::elastic`).
    pub(super) areas: Vec<Slot>,
    pub(super) strategy: Strategy,
    pub(super) trough: Trough,
    pub(super) moves: Moves,
    /// Whether free memory has gone back at one of its troughs, to come in finer extents, and since then each
    /// request left more than hardly anything (`elastic::scarcity`).
    pub(super) is_cut_anew: bool,
    pub(super) windows: KnownWindows,
    pub(super) pending: PendingFrees,
    pub(super) recorded: RecordedStreams,
    pub(super) fence: Fence,
    /// The context that the lane's stream belongs to: where the fence's events are made.
    pub(super) context: u16,
    /// Allocations so far, modulo 2^32: the clock by which cached blocks age.
    pub(super) tick: u32,
    /// The tick of the last collection.
    pub(super) collected_tick: u32,
    /// Requests on the ladder for this lane; they keep it from being reassigned.
    climbing: u32,
    /// Segments that the driver may refuse to take back, and events of the stream that are being
    /// recorded or waited for; they also keep it from being reassigned.
    pub(super) under_way: u32,
    /// Events of the stream that are being recorded, some by threads that have not named it.
    pub(super) fencing: u32,
    pub(super) poll_again_at: u32,
    /// Whether a watermark was crossed since the device was last settled for this lane.
    pub(super) has_crossed: bool,
    /// Empty except while polling; kept so that polling allocates nothing.
    pub(super) complete: Vec<Slot>,
    /// Where the memory of paused blocks is away, by address.
    pub(super) paused: Vec<PausedExtent>,
    /// What was saved of memory that is back, for the next pause.
    pub(super) kept: Vec<KeptCopy>,
}

impl Lane {
    pub(super) fn new(
        (index, device): (u32, DeviceOrdinal),
        owner: Owner,
        settings: &Settings,
        directory: Arc<Directory>,
        observer: &'static EventStream,
    ) -> Self {
        Self {
            index,
            device,
            ownership: Ownership::new(&owner),
            callers: Callers::default(),
            fence_wanted: AtomicU64::new(0),
            is_capturing: AtomicBool::new(false),
            counters: LaneCounters::new(),
            observer,
            state: CachePadded(Lock::new(LaneState {
                blocks: BlockTable::new(index, directory),
                areas: Vec::new(),
                strategy: Strategy::new(settings),
                trough: Trough::of(settings.strategy.pool_type),
                moves: Moves::default(),
                is_cut_anew: false,
                windows: KnownWindows::default(),
                pending: PendingFrees::default(),
                recorded: RecordedStreams::new(),
                fence: Fence::new(),
                context: owner.context,
                tick: 0,
                collected_tick: 0,
                climbing: 0,
                under_way: 0,
                fencing: 0,
                poll_again_at: 0,
                has_crossed: false,
                complete: Vec::new(),
                paused: Vec::new(),
                kept: Vec::new(),
            })),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> LaneKey {
        self.ownership.key()
    }

    #[inline]
    pub(super) fn stream(&self) -> StreamKey {
        self.ownership.stream()
    }

    /// The handle of its stream, if that certainly lasts as long as the process.
    pub(super) fn lasting_stream(&self) -> Option<StreamHandle> {
        self.stream().lasting_handle().filter(|_| self.ownership.lasts())
    }

    /// The name of its stream.
    pub(super) fn name(&self) -> StreamName {
        self.ownership.name()
    }

    #[inline]
    pub(super) fn pool(&self) -> PoolNumber {
        self.ownership.pool()
    }

    #[inline]
    pub(super) fn lock(&self) -> LaneGuard<'_> {
        self.state.lock()
    }

    /// Locks the lane; `None` if it is no longer the lane of `key`.
    #[inline]
    pub(super) fn lock_for(&self, key: LaneKey) -> Option<LaneGuard<'_>> {
        let state = self.lock();
        (self.key() == key).then_some(state)
    }

    /// Reassigns the lane to another stream, if it holds nothing and its own was not seen captured.
    /// Returns also whose it was.
    pub(super) fn rekey(&self, newcomer: &Newcomer<'_>) -> Option<(LaneGuard<'_>, LaneKey)> {
        let Newcomer { owner, settings, contexts, captures } = newcomer;
        let mut state = self.lock();
        // A capture is known by its stream's lane.
        if !state.is_unused() || self.was_capturing() && captures.is_any() {
            return None;
        }
        captures.see(false, |now| self.set_capturing(now));
        let events = contexts.get(state.context);
        state.fence.reset(&events);
        state.context = owner.context;
        // Pools with memory of their own have another strategy than the rest of the device.
        if !state.strategy.suits(settings) {
            state.strategy = Strategy::new(settings);
            state.trough = Trough::of(settings.strategy.pool_type);
        }
        state.windows = KnownWindows::default();
        state.moves = Moves::default();
        state.is_cut_anew = false;
        self.fence_wanted.store(0, Relaxed);
        self.callers.forget();
        let before = self.key();
        self.ownership.set(owner);
        Some((state, before))
    }

    /// The stream of `owner` has come: the lane, made for a stream to come, becomes its own with all
    /// that it holds. `None` if it is another kind of lane, or `owner` must not have it: a private
    /// pool's memory would stay for its graphs.
    pub(super) fn receive(&self, owner: &Owner) -> Option<LaneGuard<'_>> {
        let Owner { key, context, .. } = *owner;
        if !self.stream().is_coming() || key.stream.is_coming() || key.pool.is_private() {
            return None;
        }
        let mut state = self.lock();
        state.context = context;
        self.ownership.set(owner);
        Some(state)
    }

    /// The lane's stream or pool has ended: no call names the lane any more. Returns true if it was
    /// not left before; then the caller tells the device's index.
    pub(super) fn leave(&self, _state: &mut LaneState) -> bool {
        self.ownership.leave()
    }

    /// Returns true if no call names the lane any more.
    pub(super) fn is_left(&self) -> bool {
        self.ownership.is_left()
    }

    /// Renames `stream`, which is about to end, to `ended` wherever the lane refers to it. If it is
    /// the lane's own, records a last event, after which other streams can use the free memory.
    /// Returns true if the lane is left by that.
    pub(super) fn end_stream(&self, stream: Stream, ended: StreamKey, contexts: &Contexts) -> bool {
        let mut state = self.lock();
        let is_own = || self.stream() == stream.key;
        while state.pending.is_recording(stream.key) || is_own() && state.fencing > 0 {
            // The handle is in use until the driver has answered.
            drop(state);
            assert_none_held();
            crate::base::sync::waiting::yield_now();
            state = self.lock();
        }
        let state_ref = &mut *state;
        state_ref.pending.end_stream(stream.key, ended);
        state_ref.recorded.end_stream(stream.key, ended);
        if !is_own() {
            return false;
        }
        self.ownership.rename_stream(ended);
        let is_left = self.leave(state_ref);
        if state_ref.is_unused() {
            state_ref.fence.reset(&contexts.get(state_ref.context));
        } else if !state_ref.blocks.is_empty() {
            // Without the event, the memory is usable once the device has been idle.
            self.record_fence(state, contexts, stream.handle);
        }
        is_left
    }

    /// Returns true if freed blocks stay here: always in a private pool, whose addresses must stay.
    #[inline]
    pub(super) fn keeps_blocks(&self, state: &LaneState) -> bool {
        state.strategy.keeps_blocks() || self.pool().is_private()
    }

    /// Begins a climb, until whose end the lane is not reassigned. Returns a number that identifies
    /// the request.
    pub(super) fn begin_climb(&self, state: &mut LaneState) -> u64 {
        state.climbing += 1;
        u64::from(self.index + 1) << 32 | u64::from(state.tick)
    }

    /// Ends a climb. Returns true if a watermark was crossed since it began: then the caller settles the
    /// device.
    pub(super) fn end_climb(&self, served: bool) -> bool {
        let mut state = self.lock();
        state.climbing -= 1;
        if served {
            self.counters.on_miss();
        }
        std::mem::take(&mut state.has_crossed)
    }

    /// Counts what the lane holds: its backed blocks, and the paused ones, which callers see as
    /// live.
    pub(super) fn count_held(&self, blocks: &BlockTable) {
        self.counters.set_held_bytes(blocks.backed_bytes() + blocks.paused_bytes());
    }

    pub(super) fn note(&self, action: Action, address: u64, bytes: u64) {
        if self.observer.is_on() {
            let event = observe::Event::new(action, self.device);
            let stream = self.name().0;
            self.observer.note(observe::Event { stream, address, bytes, ..event });
        }
    }

    /// Hands out the block in `slot`, which is in no free list, for `requested_bytes`; returns its
    /// address.
    pub(super) fn hand_out(&self, state: &mut LaneState, slot: Slot, requested_bytes: u64) -> u64 {
        let class = state.blocks.get(slot).class;
        self.hand_out_of(class, state, slot, requested_bytes)
    }

    /// [`Self::hand_out`] of a block of `class`. Where that is a constant, nothing branches on it.
    #[inline(always)]
    pub(super) fn hand_out_of(
        &self,
        class: SizeClass,
        state: &mut LaneState,
        slot: Slot,
        requested_bytes: u64,
    ) -> u64 {
        state.tick = state.tick.wrapping_add(1);
        let block = state.blocks.get_mut(slot);
        debug_assert_eq!(block.class, class);
        block.state = State::Live;
        block.requested_bytes = requested_bytes;
        let (address, bytes) = (block.address, block.bytes);
        state.blocks.list_at(address, class, slot);
        state.note_watermark(self.counters.on_allocate(class, requested_bytes, bytes));
        if class == SizeClass::Large {
            state.trough.rise(self.counters.live_bytes(class));
        }
        address
    }

    /// Counts the live block in `slot` as freed; returns the streams that were recorded for it.
    pub(super) fn count_free(&self, state: &mut LaneState, slot: Slot) -> u32 {
        let class = state.blocks.get(slot).class;
        self.count_free_of(class, state, slot)
    }

    /// [`Self::count_free`] of a block of `class`. Where that is a constant, nothing branches on it.
    #[inline(always)]
    pub(super) fn count_free_of(&self, class: SizeClass, state: &mut LaneState, slot: Slot) -> u32 {
        let block = state.stamp_freed(slot);
        let (requested_bytes, bytes, recorded) =
            (block.requested_bytes, block.bytes, block.recorded);
        state.note_watermark(self.counters.on_free(class, requested_bytes, bytes));
        if class == SizeClass::Large
            && state.trough.fall(self.counters.live_bytes(class)) == Step::Down
            && state.fence.is_in_demand()
        {
            self.want_fence(NO_REQUEST);
        }
        recorded
    }

    /// Takes out a whole free segment for the driver, which may refuse it: until
    /// [`Self::end_leave`] the lane is not reassigned.
    pub(super) fn begin_leave(&self, state: &mut LaneState, slot: Slot) -> Segment {
        state.under_way += 1;
        self.withdraw_segment(state, slot)
    }

    /// Puts back a whole free segment that was taken out; it counts as freed in `epoch`.
    pub(super) fn put_back_segment(&self, state: &mut LaneState, segment: Segment, epoch: u32) {
        let slot = state.blocks.insert(segment);
        state.stamp_freed(slot).freed_epoch = epoch;
        state.strategy.give(&mut state.blocks, slot);
        self.count_held(&state.blocks);
    }

    /// Ends [`Self::begin_leave`]: the driver took the segment, or `refused` is put back as free.
    pub(super) fn end_leave(&self, refused: Option<Segment>) {
        let mut state = self.lock();
        state.under_way -= 1;
        if let Some(segment) = refused {
            let epoch = state.fence.epoch();
            self.put_back_segment(&mut state, segment, epoch);
        }
    }

    /// Takes out a whole free segment.
    pub(super) fn withdraw_segment(&self, state: &mut LaneState, slot: Slot) -> Segment {
        state.strategy.withdraw(&mut state.blocks, slot);
        let segment = state.blocks.remove(slot);
        self.count_held(&state.blocks);
        segment
    }
}

impl LaneState {
    /// Returns true if the lane holds nothing, and nothing may come back to it.
    fn is_unused(&self) -> bool {
        self.blocks.is_empty() && self.climbing == 0 && self.under_way == 0
    }

    /// What the present holder of the lock has crossed does not count. A climb under way may have
    /// crossed a watermark before, and looks when it ends.
    pub(super) fn forget_crossing(&mut self) {
        self.has_crossed &= self.climbing > 0;
    }

    /// Remembers a watermark that was crossed until the lock is released (`Heap::let_go`).
    #[inline]
    pub(super) fn note_watermark(&mut self, watermark: Watermark) {
        if watermark == Watermark::Crossed {
            self.has_crossed = true;
        }
    }

    /// Returns true if events should be polled now. Never in the steady state.
    #[inline]
    pub(super) fn is_poll_due(&self) -> bool {
        self.pending.has_events() && self.tick.wrapping_sub(self.poll_again_at) as i32 >= 0
    }

    /// Stamps the block in `slot` as freed now, by epoch and tick.
    #[inline]
    pub(super) fn stamp_freed(&mut self, slot: Slot) -> &mut Block {
        let block = self.blocks.get_mut(slot);
        block.freed_epoch = self.fence.epoch();
        block.freed_tick = self.tick;
        block
    }

    /// Checks the lane's structures and that its counters agree with its blocks.
    pub(super) fn validate(&self, counters: &LaneCounters) -> Result<(), String> {
        self.blocks.validate()?;
        self.strategy.validate(&self.blocks)?;
        let bytes_in = |state: State| -> u64 {
            let blocks = self.blocks.iter().filter(|(_, block)| block.state == state);
            blocks.map(|(_, block)| block.bytes).sum()
        };
        let snapshot = counters.snapshot();
        let levels = snapshot.all;
        let [live, paused, pending, free] =
            [State::Live, State::Paused, State::Pending, State::Free].map(bytes_in);
        if levels.allocated != live + paused
            || levels.active != live + paused + pending
            || snapshot.inactive != free
            || live + pending + free != self.blocks.backed_bytes()
        {
            return Err(format!(
                "live {live}, paused {paused}, pending {pending} and free {free} bytes, but \
                 counted {snapshot:?}"
            ));
        }
        self.validate_paused()
    }
}
