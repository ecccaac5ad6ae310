//! Contexts: what streams, events and plain allocations belong to.
//!
//! The first argument of every call is a *context number*. Numbers below the count of devices are
//! the devices' primary contexts; [`Machine::context_create`] makes further ones, whose numbers are
//! not used again. Each context has a legacy stream of its own, and a wait for a context
//! (`cuCtxSynchronize`, and the one inside `cuMemFree`) is for its own work only, as the driver API
//! manual has it. Memory of virtual memory management belongs to its device, whichever context
//! made it.
//!
//! Peer access to plain allocations is a context's own too (`cuCtxEnablePeerAccess`), and means
//! nothing to mapped memory, which asks for `cuMemSetAccess`: the manual says so of both.

use crate::machine::{Machine, State};
use crate::stream_table::Stream;
use crate::{Code, Result};

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: u32,
    /// The slot of its legacy stream.
    pub(crate) legacy: u32,
    /// Devices whose plain allocations it may touch, as a bit set.
    pub(crate) peers: u64,
    /// Never used again; changed by a reset of the device.
    pub(crate) id: u64,
    is_alive: bool,
}

impl Context {
    /// The primary context of `device`, whose legacy stream has the slot of that number.
    pub(crate) fn primary(device: u32) -> Self {
        Self { device, legacy: device, peers: 0, id: u64::from(device) + 1, is_alive: true }
    }
}

impl Machine {
    /// A further context of `device`, as a number for the first argument of other calls:
    /// `cuCtxCreate`.
    pub fn context_create(&self, device: u32) -> Result<u32> {
        let mut state = self.lock();
        let context = state.contexts.len() as u32;
        if device as usize >= state.devices.len() {
            return Err(Code::INVALID_DEVICE);
        }
        let legacy =
            state.add_stream(Stream { context, device, blocking: true, ..Stream::default() });
        let id = state.next_context_id();
        state.contexts.push(Context { device, legacy, peers: 0, id, is_alive: true });
        state.quiet.set_context(context, Some(device));
        Ok(context)
    }

    /// Destroys a context that [`Self::context_create`] made, with its streams, events and plain
    /// allocations. Work that is still queued is cut short.
    pub fn context_destroy(&self, context: u32) -> Result<()> {
        let mut state = self.lock();
        state.context_device(context)?;
        if (context as usize) < state.devices.len() {
            return Err(Code::INVALID_VALUE);
        }
        state.empty_context(context)?;
        let entry = &mut state.contexts[context as usize];
        entry.is_alive = false;
        let legacy = entry.legacy;
        state.streams.retire(legacy);
        state.quiet.set_context(context, None);
        Ok(())
    }

    /// The device of a context.
    pub fn context_device(&self, context: u32) -> Result<u32> {
        self.lock().context_device(context)
    }

    /// A number of the context's own, never used again: `cuCtxGetId`.
    pub fn context_id(&self, context: u32) -> Result<u64> {
        let state = self.lock();
        state.context_device(context)?;
        Ok(state.contexts[context as usize].id)
    }

    /// Ends everything of `device` but its further contexts, as `cudaDeviceReset` does: streams,
    /// events and allocations of its primary context, and its virtual memory with the addresses
    /// reserved for it. What is allocated next gets the addresses it would have had at first.
    /// Pinned host memory stays.
    pub fn device_reset(&self, device: u32) -> Result<()> {
        let mut state = self.lock();
        state.device(device)?;
        state.empty_context(device)?;
        state.empty_virtual_memory(device)?;
        state.drop_spare_page(device)?;
        let (id, stream) = (state.next_context_id(), state.streams.next_id());
        let context = &mut state.contexts[device as usize];
        (context.peers, context.id) = (0, id);
        state.streams.slots[device as usize].id = stream;
        Ok(())
    }
}

impl State {
    /// The device of a context that is alive.
    pub(crate) fn context_device(&self, context: u32) -> Result<u32> {
        match self.contexts.get(context as usize) {
            Some(entry) if entry.is_alive => Ok(entry.device),
            Some(_) => Err(Code::CONTEXT_IS_DESTROYED),
            None => Err(Code::INVALID_DEVICE),
        }
    }

    /// Ends the streams, captures, events and allocations of a context; its legacy stream is
    /// idle afterwards.
    fn empty_context(&mut self, context: u32) -> Result<()> {
        let slots: Vec<u32> = self.streams.of_context(context).collect();
        for &slot in &slots {
            self.cut_short(slot);
        }
        self.forget_captures(&slots);
        self.forget_streams(context);
        self.forget_events(context);
        self.free_all(context)
    }

    fn next_context_id(&self) -> u64 {
        self.contexts.iter().map(|context| context.id).max().unwrap_or(0) + 1
    }
}
