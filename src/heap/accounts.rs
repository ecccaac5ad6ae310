//! What tags hold, and their limits.
//!
//! A block counts for every tag under which it was allocated, until it is freed: under whatever tag
//! and in whichever thread. It counts with the size to which its request is rounded. (The block may
//! be larger, where Caching found the rest not worth cutting off; so whether a limit stops a request
//! depends on the requests only, and not on where blocks lie.)
//!
//! ```text
//! live bytes of a tag = Σ rounded sizes of its live and paused blocks, and of requests under way
//! live bytes ≤ limit    at every moment, except right after the limit was lowered
//! ```
//!
//! A request is charged to all of its tags, or to none, before it is served, so that concurrent
//! requests together never exceed a limit; if it fails, it is refunded. A request that a limit
//! stops does nothing else: it neither waits, nor releases memory, nor asks for any.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::lane::Lane;
use super::pools::PoolNumber;
use super::state::DeviceHeap;
use super::tags::Known;
use crate::base::size::Bytes;
use crate::base::{DeviceOrdinal, Error, Part, PartLimit, Result, Status, StreamHandle};
use crate::config::LogLevel;
use crate::memory::{Slot, State};
use crate::observe::Tallies;
use crate::order::Stream;

impl Known {
    /// Charges a block of `bytes` to all tags of a nesting. If a limit stops it, charges none, and
    /// returns that limit: the innermost tag's first.
    fn charge(
        &mut self,
        number: PoolNumber,
        device: DeviceOrdinal,
        bytes: u64,
    ) -> std::result::Result<(), PartLimit> {
        self.accounts(number, device, |name, account| {
            if account.has_room(bytes) {
                return Ok(());
            }
            account.refusals += 1;
            Err(PartLimit {
                part: Part::Tag(Arc::clone(name)),
                device,
                limit_bytes: account.limit_bytes,
                held_bytes: account.live_bytes,
                live_blocks: account.live_blocks,
                requested_bytes: bytes,
                added_bytes: bytes,
            })
        })?;
        self.accounts(number, device, |_, account| {
            account.live_bytes += bytes;
            account.live_blocks += 1;
            Ok(())
        })
    }

    fn refund(&mut self, number: PoolNumber, device: DeviceOrdinal, bytes: u64) {
        let _: std::result::Result<(), ()> = self.accounts(number, device, |_, account| {
            account.live_bytes -= bytes;
            account.live_blocks -= 1;
            Ok(())
        });
    }
}

impl DeviceHeap<'_> {
    /// Allocates from the lanes of `number`, under the limits of its tags.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_apart(
        self,
        number: PoolNumber,
        stream: Stream,
        (requested_bytes, block_bytes): (u64, u64),
        is_alone: bool,
    ) -> Result<u64> {
        let bytes = (requested_bytes, block_bytes);
        if let Some(communication) = self.pools.communication(number) {
            let granule_bytes = communication.handles().granularity_bytes();
            let Some(whole_bytes) = block_bytes.checked_next_multiple_of(granule_bytes) else {
                return Err(self.too_large(requested_bytes));
            };
            return self.allocate_in(number, stream, (requested_bytes, whole_bytes), true);
        }
        if !number.is_tagged() {
            return self.allocate_in(number, stream, bytes, is_alone);
        }
        let tags = &self.heap.tags;
        if let Some(error) = self.lack_of_margin(requested_bytes, block_bytes)? {
            return Err(self.stopped(error, stream.handle, requested_bytes, block_bytes));
        }
        let charged = tags.known.lock().charge(number, self.ordinal, block_bytes);
        if let Err(limit) = charged {
            return Err(
                self.stopped_by_limit(PartLimit { requested_bytes, ..limit }, stream.handle)
            );
        }
        let served = self.allocate_in(number, stream, bytes, is_alone);
        if served.is_err() {
            tags.known.lock().refund(number, self.ordinal, block_bytes);
        }
        served
    }

    /// The error of a request that would leave less than the margin free on the device.
    fn lack_of_margin(self, requested_bytes: u64, block_bytes: u64) -> Result<Option<Error>> {
        let margin_bytes = self.heap.tags.margin_bytes.load(Relaxed);
        if margin_bytes == 0 {
            return Ok(None);
        }
        let free_bytes = self.heap.memory_info(self.ordinal)?.free_bytes;
        if free_bytes >= margin_bytes.saturating_add(block_bytes) {
            return Ok(None);
        }
        let [asked, free, margin] = [requested_bytes, free_bytes, margin_bytes].map(Bytes);
        let message =
            format!("{asked} under a tag would leave less than {margin} of {free} that are free");
        Ok(Some(Error::new(Status::LimitReached, message)))
    }

    /// Counts and logs the failure of a request that a limit stops; returns its error.
    pub(super) fn stopped_by_limit(self, limit: PartLimit, stream: StreamHandle) -> Error {
        let PartLimit { requested_bytes, added_bytes, .. } = limit;
        self.stopped(Error::from(limit), stream, requested_bytes, added_bytes)
    }

    #[cold]
    fn stopped(
        self,
        mut error: Error,
        stream: StreamHandle,
        requested_bytes: u64,
        added_bytes: u64,
    ) -> Error {
        error.shortage = Some(self.shortage(requested_bytes, added_bytes));
        Tallies::count(&self.tallies.out_of_memory_events);
        self.heap.notes.out_of_memory(self.ordinal, stream, requested_bytes);
        self.heap.log.write(LogLevel::Error, &error);
        error
    }

    /// Counts a block, or a request, of `requested_bytes` in the lanes of `number` as ended, if
    /// these have tags.
    pub(super) fn refund_tags(self, number: PoolNumber, requested_bytes: u64) {
        if number.is_tagged() {
            let bytes = self.sizing.block_bytes(requested_bytes).unwrap_or(0);
            self.heap.tags.known.lock().refund(number, self.ordinal, bytes);
        }
    }

    /// Frees the block at `address` in `slot` of a lane with tags.
    #[cold]
    pub(super) fn free_tagged(self, lane: &Lane, slot: Slot, address: u64) -> Result<()> {
        let state = lane.lock();
        let live = state.blocks.find(slot, address).filter(|block| block.state == State::Live);
        let Some(requested_bytes) = live.map(|block| block.requested_bytes) else {
            return self.heap.free_unusual(lane, state, slot, address);
        };
        // The lane is not reassigned while it has blocks.
        let number = lane.pool();
        let freed = self.heap.free_live(lane, state, slot);
        self.refund_tags(number, requested_bytes);
        freed
    }
}
