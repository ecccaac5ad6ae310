//! Streams: which one a handle means, recording that one uses a block, and the end of one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lane::{Lane, LaneState};
use super::state::{DeviceHeap, Heap, Lasts};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::config::LogLevel;
use crate::driver::Code;
use crate::memory::{Block, Slot, State};
use crate::order::Stream;
use crate::order::{OWN_CONTEXT, Recorded, RecordedStreams, StreamKey};

/// A block as the directory has it; it may have changed by the time the lane is locked.
struct Found<'a> {
    address: u64,
    lane: &'a Lane,
    slot: Slot,
    device: DeviceHeap<'a>,
}

impl Heap {
    /// The stream that `handle` means in a call about `device`. The driver is asked, unless the
    /// stream is a default stream or `GENESIS_STREAM_IDS` says that handles identify streams.
    ///
    /// `InvalidArgument` if the driver knows no such stream.
    #[inline]
    pub fn identify(&self, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
        if handle.is_default() || !self.policy.identifies_streams() {
            return Ok(Stream::lasting(handle));
        }
        self.ask_for_number(device, handle)
    }

    /// [`Self::identify`] for a caller whose streams last as long as the process: the driver is
    /// asked only if `GENESIS_STREAM_IDS` requires it.
    #[inline]
    pub fn identify_lasting(&self, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
        if handle.is_default() || !self.policy.identifies_all_streams() {
            return Ok(Stream::lasting(handle));
        }
        self.ask_for_number(device, handle)
    }

    /// Has `lasts` asked about each stream that is known by its handle, when it is first named in a request:
    /// one that lasts may be named to the driver at any time. It must not call the library. Only the
    /// first function is asked, of streams that come after it.
    pub fn ask_which_last(&self, lasts: Lasts) {
        self.asked_whether_lasting.get_or_init(|| lasts);
    }

    /// Returns true if `stream` certainly lasts as long as the process.
    pub(super) fn lasts(&self, device: DeviceOrdinal, stream: StreamKey) -> bool {
        let Some(handle) = stream.lasting_handle() else { return false };
        let asked = self.asked_whether_lasting.get();
        handle.is_default() || asked.is_some_and(|lasts| lasts(device, handle))
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

    /// Records that work on `stream` uses the block at `address`: once freed, the block is not
    /// reused before the work queued on `stream` until the free has completed. A default stream is
    /// that of the context current in the calling thread.
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

    /// [`Self::record_stream`] for a caller whose streams last as long as the process. Its default
    /// stream may be that of *any* device, because PyTorch passes only the handle.
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

    /// The block that the directory has at `address`.
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

    /// Adds `stream` to those recorded for a block, unless it is the block's own. Returns false if
    /// `context_of` does not know its context.
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

    /// Called before the program destroys the stream `handle`: afterwards the handle means another
    /// stream. Other streams can use the free memory of this one after its last event, and
    /// a new one gets its lane.
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
                    if lane.end_stream(stream, ended, &device.contexts) {
                        device.leave(lane);
                    }
                }
            }
        }
        Ok(())
    }
}
