//! Streams: which one a call means, what it means that one uses a block, its end, and streams that
//! wait for each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lane::{Lane, LaneState};
use super::state::{DeviceHeap, Heap};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::config::LogLevel;
use crate::driver::Code;
use crate::memory::{Block, Slot, State};
use crate::order::Stream;
use crate::order::{OWN_CONTEXT, Recorded, RecordedStreams, StreamKey};

/// A block as the directory has it: what it says may have changed by the time the lane is locked.
struct Found<'a> {
    address: u64,
    lane: &'a Lane,
    slot: Slot,
    device: DeviceHeap<'a>,
}

impl Heap {
    /// Which stream `handle` is, as a call means it that is about `device`: the driver is asked,
    /// unless `GENESIS_STREAM_IDS` says that handles tell. A default stream needs no asking.
    ///
    /// `InvalidArgument` where the driver knows no such stream.
    #[inline]
    pub fn identify(&self, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
        if handle.is_default() || !self.policy.identifies_streams() {
            return Ok(Stream::lasting(handle));
        }
        self.ask_for_number(device, handle)
    }

    /// [`Self::identify`] for a caller whose streams last as long as the process: the driver is
    /// asked only if `GENESIS_STREAM_IDS` insists.
    #[inline]
    pub fn identify_lasting(&self, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
        if handle.is_default() || !self.policy.identifies_all_streams() {
            return Ok(Stream::lasting(handle));
        }
        self.ask_for_number(device, handle)
    }

    fn ask_for_number(&self, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
        match self.driver(device)?.stream_id(handle) {
            Ok(number) => Ok(Stream { handle, key: StreamKey::of_number(number) }),
            Err(error) if error.code == Code::NOT_FOUND => {
                let message = "this driver has no numbers for streams (CUDA 12.0 and later have): \
                               a stream is known by its handle, and must not be destroyed without \
                               genesis_stream_forget";
                self.policy.never_identify_streams();
                self.log.write(LogLevel::Info, &message);
                Ok(Stream::lasting(handle))
            }
            Err(error) if error.code == Code::INVALID_HANDLE => {
                let message = format!("{:#x} is no stream of the driver's: {error}", handle.0);
                Err(Error::new(Status::InvalidArgument, message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that work on `stream` uses the block at `address`: once freed, the block is
    /// not reused before the work queued on `stream` until then has completed. A default stream is
    /// the one of the context that is current in the calling thread.
    pub fn record_stream(&self, address: u64, stream: StreamHandle) -> Result<()> {
        self.notes.recording(address, stream);
        let block = self.find_block(address)?;
        if stream.is_default() {
            let context = block.device.contexts.of_stream(stream)?;
            return self.record_default_stream(&block, stream, context);
        }
        let stream = self.identify(block.device.ordinal, stream)?;
        self.record_stream_on(&block, stream)
    }

    /// [`Self::record_stream`] for a caller whose streams last as long as the process, and who
    /// means by a default stream that of *any* device: PyTorch says only the handle.
    pub fn record_lasting_stream(&self, address: u64, stream: StreamHandle) -> Result<()> {
        self.notes.recording(address, stream);
        let block = self.find_block(address)?;
        if !stream.is_default() {
            let stream = self.identify_lasting(block.device.ordinal, stream)?;
            return self.record_stream_on(&block, stream);
        }
        for other in self.opened_devices().filter(|other| other.ordinal != block.device.ordinal) {
            let slot = self.slot(other.ordinal)?;
            let context = block.device.contexts.find_or_add(slot.driver.clone())?;
            self.record_default_stream(&block, stream, context)?;
        }
        self.record_default_stream(&block, stream, OWN_CONTEXT)
    }

    /// What the directory has at `address`.
    fn find_block(&self, address: u64) -> Result<Found<'_>> {
        let found = self.find(address).and_then(|(lane, slot)| {
            Some(Found { address, lane, slot, device: self.opened(lane.device)? })
        });
        found.ok_or_else(|| self.not_live(address))
    }

    fn record_default_stream(
        &self,
        block: &Found<'_>,
        handle: StreamHandle,
        context: u16,
    ) -> Result<()> {
        let stream = Stream { handle, key: StreamKey::of_default(handle, context) };
        self.add_recorded(block, stream, |_| Some(context)).map(drop)
    }

    fn record_stream_on(&self, block: &Found<'_>, stream: Stream) -> Result<()> {
        while !self.add_recorded(block, stream, |recorded| recorded.context_of(stream.key))? {
            let context = block.device.contexts.of_stream(stream.handle)?;
            block.lane.lock().recorded.remember(stream.key, context);
        }
        Ok(())
    }

    /// Adds `stream` to those of a block, unless it is the block's own; says whether `context_of`
    /// knew its context.
    fn add_recorded(
        &self,
        block: &Found<'_>,
        stream: Stream,
        context_of: impl FnOnce(&RecordedStreams) -> Option<u16>,
    ) -> Result<bool> {
        let Found { address, lane, slot, .. } = *block;
        let mut state = lane.lock();
        let LaneState { blocks, recorded, .. } = &mut *state;
        let is_live = |block: &&Block| matches!(block.state, State::Live | State::Paused);
        let Some(first) = blocks.find(slot, address).filter(is_live).map(|block| block.recorded)
        else {
            drop(state);
            return Err(self.not_live(address));
        };
        if stream.key == lane.stream() {
            return Ok(true);
        }
        let Some(context) = context_of(recorded) else { return Ok(false) };
        blocks.get_mut(slot).recorded = recorded.add(first, Recorded { stream, context });
        Ok(true)
    }

    /// The program is about to destroy the stream `handle`: whatever has that handle afterwards is
    /// another stream. What is free in the order of this one can be had behind its last event.
    ///
    /// Linear in the number of streams in use.
    pub fn forget_stream(&self, handle: StreamHandle) -> Result<()> {
        static ENDED: AtomicU64 = AtomicU64::new(0);
        if handle.is_default() {
            let message = "the default streams are never destroyed";
            return Err(Error::invalid_argument(message));
        }
        let ended = StreamKey::of_ended(ENDED.fetch_add(1, Relaxed));
        let lasting = Stream::lasting(handle);
        for device in self.opened_devices() {
            // Some callers may have named it by its number, and others by its handle.
            let numbered = self.identify(device.ordinal, handle).ok();
            let numbered = numbered.filter(|stream| stream.key != lasting.key);
            for lane in device.lanes() {
                for stream in numbered.into_iter().chain([lasting]) {
                    lane.end_stream(stream, ended, &device.contexts);
                }
            }
        }
        Ok(())
    }
}
