//! Contexts: what streams, events and plain allocations belong to.
//!
//! The first argument of every call is a *context number*. Numbers below the count of devices are
//! the devices' primary contexts; [`Machine::context_create`] makes further ones, whose numbers are
//! never reused. Each context has its own legacy stream. A wait for a context
//! (`cuCtxSynchronize`, and the one inside `cuMemFree`) is for its own work only, by the driver
//! API manual. Memory of virtual memory management belongs to its device, no matter which context
//! made it.
//!
//! Peer access to plain allocations belongs to a context too (`cuCtxEnablePeerAccess`). It means
//! nothing to mapped memory, which needs `cuMemSetAccess`: both by the manual.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Context, Stream};

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
    /// allocations. Work that is still queued is dropped.
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

    /// The device of a context. Programs ask all the time, so threads do not wait for each other here.
    #[inline]
    pub fn context_device(&self, context: u32) -> Result<u32> {
        match self.quiet.device_of(context) {
            Some(device) => Ok(device),
            None => self.lock().context_device(context),
        }
    }

    /// The context's id, which is never reused: `cuCtxGetId`.
    pub fn context_id(&self, context: u32) -> Result<u64> {
        let state = self.lock();
        state.context_device(context)?;
        Ok(state.contexts[context as usize].id)
    }

    /// Ends everything of `device` except its further contexts, as `cudaDeviceReset` does: the
    /// streams, events and allocations of its primary context, and its virtual memory with the
    /// addresses reserved for it. The next allocations get the same addresses as the first ones
    /// did. Pinned host memory stays.
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

/// Access to the memory of other devices.
impl Machine {
    /// Returns true if `device` can be given access to memory of `peer`; false for its own, as in
    /// CUDA.
    pub fn can_access_peer(&self, device: u32, peer: u32) -> Result<bool> {
        let state = self.enter(device, Call::CanAccessPeer)?;
        state.device(peer)?;
        Ok(device != peer && state.config.peer_access)
    }

    /// Lets `context` touch plain allocations of device `peer`; mapped memory is not affected.
    /// `PEER_ACCESS_UNSUPPORTED` where [`Self::can_access_peer`] returns false,
    /// `PEER_ACCESS_ALREADY_ENABLED` the second time.
    pub fn enable_peer_access(&self, context: u32, peer: u32) -> Result<()> {
        let mut state = self.lock();
        state.device(peer)?;
        if state.context_device(context)? == peer || !state.config.peer_access {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        let peers = &mut state.contexts[context as usize].peers;
        if *peers & 1 << peer != 0 {
            return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
        }
        *peers |= 1 << peer;
        Ok(())
    }
}

impl State {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use crate::code::Code;
    use crate::config::{Config, StoreKind};
    use crate::machine::Machine;

    #[test]
    fn who_asks_for_a_contexts_device_waits_for_no_call() {
        let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 2, 64 << 20)).unwrap();
        let further = machine.context_create(1).unwrap();
        let call = machine.lock();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| tell.send([1, further].map(|context| machine.context_device(context))));
            let devices = told.recv_timeout(Duration::from_secs(10));
            drop(call);
            assert_eq!(devices, Ok([Ok(1), Ok(1)]));
        });
        machine.context_destroy(further).unwrap();
        assert_eq!(machine.context_device(further), Err(Code::CONTEXT_IS_DESTROYED));
        assert_eq!(machine.context_device(further + 1), Err(Code::INVALID_DEVICE));
    }
}
