//! Releases cached memory: on request, by age, above the cache limit, and when memory is short, here
//! or in another process.
//! This file decides what is released and in which order; the backing does it.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::choice::Choice;
use super::lane::{Lane, LaneState, NO_REQUEST};
use super::pools::PoolId;
use super::state::DeviceHeap;
use crate::base::Result;
use crate::base::sync::waiting;
use crate::config::{LogLevel, PoolType};
use crate::driver::DriverError;
use crate::memory::Block;
use crate::observe::{Action, Tallies};

/// How long events on streams without work may take to complete: the driver needs some microseconds.
const GRACE: Duration = Duration::from_micros(500);

/// What the driver asks for any piece, it asks again for about so many bytes more of it: cuMemAlloc
/// and cuMemFree of 2 MiB take 298 µs, and of 1 GiB 869 µs (`simgpu::Prices`).
const FLAT_PRICE_BYTES: u64 = 512 << 20;

/// Memory that may be released, as it was when its lane was read.
pub(super) struct Candidate<P> {
    /// Allocations of the lane since it was freed.
    pub(super) age: u32,
    pub(super) bytes: u64,
    pub(super) lane: u32,
    /// Whether it belongs to no private pool.
    pub(super) is_common: bool,
    pub(super) address: u64,
    /// What the driver takes back as one: a segment, or an extent.
    pub(super) piece: P,
}

impl<P> Candidate<P> {
    /// How much was unused for how long, by the price of getting it again: most goes first. Of equal
    /// sizes that is the longest unused.
    ///
    /// Age alone keeps a gigabyte that was freed last for the sake of many small pieces, each of which
    /// costs the driver as much. `docs/benchmarks/cache_order.md` has this order beside others.
    pub(super) fn needlessness(&self) -> f64 {
        let price = (FLAT_PRICE_BYTES + self.bytes) as f64;
        (f64::from(self.age) + 1.0) * self.bytes as f64 / price
    }
}

impl DeviceHeap<'_> {
    /// `Heap::empty_cache` of the device.
    pub(super) fn empty_cache(self) -> u64 {
        self.heap.notes.of_device(Action::EmptyCache, self.ordinal, 0);
        Tallies::count(&self.tallies.cache_empties);
        self.keep_plan();
        self.look_for_ends();
        self.drain_quarantine();
        if self.lanes().any(|lane| !lane.lock().pending.is_empty()) {
            self.wait_for_device();
        }
        self.release_and_settle(Choice::All)
    }

    /// `Heap::trim` of the device.
    pub(super) fn trim(self, target_bytes: u64) -> u64 {
        self.keep_plan();
        self.look_for_ends();
        self.drain_quarantine();
        self.poll_lanes();
        let bytes = self.ledger.reserved_bytes().saturating_sub(target_bytes);
        self.release_and_settle(Choice::LeastNeeded { bytes })
    }

    /// `Heap::give_back` of the device.
    pub(super) fn give_back(self, bytes: u64) -> u64 {
        // What an earlier event shows, before a new one takes its place.
        self.poll_lanes();
        self.fence_free_memory();
        let deadline = Instant::now() + GRACE;
        let mut released_bytes = 0;
        loop {
            self.poll_lanes();
            released_bytes += self.release(Choice::Idle { bytes: bytes - released_bytes });
            let may_come = || self.lanes().any(|lane| lane.lock().fence.has_event());
            if released_bytes >= bytes || !may_come() || Instant::now() >= deadline {
                break;
            }
            waiting::yield_now();
        }
        self.settle();
        released_bytes.min(bytes)
    }

    /// Ends the epochs of lanes with free memory by events, if their streams certainly exist. Other streams
    /// are asked for one at their next call.
    fn fence_free_memory(self) {
        let Ok(_wait) = self.begin_wait() else { return };
        let is_free =
            |lane: &&Lane| !lane.pool().is_private() && lane.counters.inactive_bytes() > 0;
        for lane in self.lanes().filter(is_free) {
            lane.want_fence(NO_REQUEST);
            if let Some(handle) = self.existing_stream(lane) {
                self.renew_fence(lane, lane.key(), handle);
            }
        }
    }

    /// `Heap::collect_garbage` of the device.
    pub(super) fn collect_garbage(self) -> u64 {
        self.poll_lanes();
        let released_bytes = self.release_and_settle(self.heap.policy.unused());
        for lane in self.lanes() {
            let mut state = lane.lock();
            state.tick = state.tick.wrapping_add(1);
            state.collected_tick = state.tick;
        }
        released_bytes
    }

    /// `Heap::compact` of the device.
    pub(super) fn compact(self) -> u64 {
        let inactive_bytes =
            || -> u64 { self.lanes().map(|lane| lane.counters.inactive_bytes()).sum() };
        let before = inactive_bytes();
        self.poll_lanes();
        let freed_bytes = inactive_bytes().saturating_sub(before);
        self.settle();
        freed_bytes
    }

    /// Releases memory as `choice` says and updates the peaks; returns the bytes released.
    pub(super) fn release_and_settle(self, choice: Choice) -> u64 {
        let released_bytes = self.release(choice);
        self.settle();
        released_bytes
    }

    /// Frees every pending block of the device whose events have completed.
    fn poll_lanes(self) {
        if self.pools.is_routing() {
            return;
        }
        for lane in self.lanes() {
            let mut state = self.poll_blocks(lane);
            if self.backing.gathers() {
                state.poll_fence(&self.contexts);
            }
        }
    }

    /// A capture has ended: releases what Naive had to keep meanwhile.
    pub(super) fn capture_has_ended(self) {
        if self.pool_type == PoolType::Naive {
            self.release(Choice::All);
        }
        self.settle();
    }

    /// `Heap::release_pool` of the device.
    pub(super) fn release_pool(self, pool: PoolId) -> Result<()> {
        self.pools.release(pool)?;
        let is_orphaned = |lane: &Lane| {
            let pool = lane.pool();
            pool.is_private() && !self.pools.is_held(pool)
        };
        if self.lanes().any(|lane| is_orphaned(lane) && !lane.lock().pending.is_empty()) {
            self.wait_for_device();
        }
        for lane in self.lanes().filter(|lane| is_orphaned(lane)) {
            let mut state = lane.lock();
            // Meanwhile it may have been reassigned.
            let is_left = is_orphaned(lane) && lane.leave(&mut state);
            state.unfix();
            drop(state);
            if is_left {
                self.leave(lane);
            }
        }
        self.release(Choice::Orphaned);
        self.refresh_peaks();
        Ok(())
    }

    /// Releases what the settings require before `segment_bytes` more are allocated from the
    /// driver.
    pub(super) fn make_room(self, segment_bytes: u64) {
        if self.would_touch_reserve(segment_bytes) {
            self.release(Choice::All);
        }
        if let Some(threshold) = self.heap.policy.gc_threshold() {
            let threshold_bytes = (self.usable_bytes() as f64 * threshold) as u64;
            let wanted = self.ledger.reserved_bytes().saturating_add(segment_bytes);
            if wanted > threshold_bytes {
                self.release(Choice::LeastNeeded { bytes: wanted - threshold_bytes });
            }
        }
    }

    /// Returns true if less than MXNet's reserve of the device would remain free.
    fn would_touch_reserve(self, segment_bytes: u64) -> bool {
        let reserve_fraction = self.heap.policy.reserve_fraction();
        if reserve_fraction == 0.0 {
            return false;
        }
        let reserve_bytes = self.ledger.total_bytes() as f64 * reserve_fraction;
        let Ok(info) = self.driver.memory_info() else {
            return false;
        };
        (info.free_bytes.saturating_sub(segment_bytes) as f64) < reserve_bytes
    }

    /// Updates peaks after a watermark was crossed or memory was added or released, and enforces the
    /// cache limit. A thread that finds another at this leaves it to that one.
    #[cold]
    pub(super) fn settle(self) {
        self.peaks.work(|mut peaks, turn| {
            let levels = self.add_up(&mut peaks, turn);
            drop(peaks);
            let excess_bytes = levels.inactive.saturating_sub(self.cache_limit_bytes());
            // A wait also frees pending blocks, so there may be more to release.
            if excess_bytes > 0 && self.release(Choice::LeastNeeded { bytes: excess_bytes }) > 0 {
                self.settle();
            }
        });
    }

    /// Releases memory as `choice` says; returns the bytes released. Work that may still use the
    /// memory is waited for: by the driver when it takes a segment back, by the heap before it
    /// unmaps an extent.
    pub(super) fn release(self, choice: Choice) -> u64 {
        if self.may_capture() {
            return 0;
        }
        let released_bytes = self.attempts.attempt(|| self.backing.release(self, choice)).result;
        if released_bytes > 0 {
            self.heap.notes.of_device(Action::Trim, self.ordinal, released_bytes);
            self.heap.log.write(
                LogLevel::Info,
                &format_args!("device {}: released {released_bytes} bytes", self.ordinal),
            );
        }
        released_bytes
    }

    /// Of the memory that `visit` finds in each lane, what `choice` may release, in the order of
    /// [`Candidate::needlessness`].
    pub(super) fn candidates<P: Copy>(
        self,
        choice: Choice,
        visit: impl Fn(&LaneState, &mut dyn FnMut(&Block, Range<u64>, P)),
    ) -> Vec<Candidate<P>> {
        let mut candidates = Vec::new();
        if choice.is_met(0) {
            return candidates;
        }
        for lane in self.lanes() {
            let pool = lane.pool();
            let is_common = !pool.is_private();
            let is_covered = match choice {
                Choice::OfPool(chosen) => pool == chosen,
                Choice::Orphaned => !is_common && !self.pools.is_held(pool),
                _ => is_common || !self.pools.must_stay(pool),
            };
            if !is_covered {
                continue;
            }
            let state = &*lane.lock();
            visit(state, &mut |block, range, piece| {
                if self.is_chosen(choice, state, block, &range) {
                    let (lane, address) = (lane.index, range.start);
                    let age = state.tick.wrapping_sub(block.freed_tick);
                    let bytes = range.end - range.start;
                    candidates.push(Candidate { age, bytes, lane, is_common, address, piece });
                }
            });
        }
        candidates.sort_by(|one, other| other.needlessness().total_cmp(&one.needlessness()));
        candidates
    }

    /// Returns true if `choice` covers the memory at `range`, which is free in `block`.
    fn is_chosen(
        self,
        choice: Choice,
        state: &LaneState,
        block: &Block,
        range: &Range<u64>,
    ) -> bool {
        match choice {
            Choice::Within { start, end } => range.start < end && range.end > start,
            Choice::All | Choice::LeastNeeded { .. } | Choice::Idle { .. } => true,
            Choice::Orphaned | Choice::OfPool(_) => true,
            Choice::Unused { allocations: None, seconds: None } => {
                (state.collected_tick.wrapping_sub(block.freed_tick) as i32) > 0
            }
            Choice::Unused { allocations, seconds } => {
                let ticks = state.tick.wrapping_sub(block.freed_tick);
                let idle_seconds = self.heap.seconds().wrapping_sub(block.freed_second);
                allocations.is_some_and(|age| u64::from(ticks) >= age)
                    || seconds.is_some_and(|age| f64::from(idle_seconds) >= age)
            }
        }
    }

    /// Logs that the driver has refused to take memory back.
    pub(super) fn log_kept_memory(self, error: DriverError) {
        if !error.is_shutdown() {
            self.heap.log.write(
                LogLevel::Error,
                &format_args!("device {}: {error}; the memory is kept", self.ordinal),
            );
        }
    }
}
