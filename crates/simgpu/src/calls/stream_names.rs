//! Which stream a handle names: see the head of `tables/streams.rs`.

use std::cmp::Reverse;

use crate::call::Call;
use crate::code::{Code, Result};
use crate::state::State;
use crate::tables::{
    Entry, Name, STREAM_LEGACY, STREAM_PER_THREAD, Stream, created_index, thread_token,
};
use crate::violation::Violation;

impl State {
    /// The slot that `handle` names in `context`, for a driver call (`None`: for a touch or a
    /// test). An unknown implicit or thread's stream is created.
    pub(crate) fn stream(
        &mut self,
        context: u32,
        handle: usize,
        call: impl Into<Option<Call>>,
    ) -> Result<u32> {
        let device = self.context_device(context)?;
        let name = match handle {
            0 | STREAM_LEGACY => return Ok(self.contexts[context as usize].legacy),
            STREAM_PER_THREAD => Name::Thread(context, thread_token()),
            handle if created_index(handle).is_some() => Name::Created(handle),
            handle => Name::Implicit(context, handle),
        };
        match self.streams.names.get(&name) {
            Some(&Entry::Live(slot)) => Ok(slot),
            Some(Entry::Destroyed) => {
                self.report(Violation::DestroyedStream { handle, call: call.into() });
                Err(Code::INVALID_HANDLE)
            }
            None => {
                let is_thread = matches!(name, Name::Thread(..));
                let is_allowed = is_thread || self.config.implicit_streams;
                if !is_allowed || matches!(name, Name::Created(_)) {
                    return Err(Code::INVALID_HANDLE);
                }
                let blocking = is_thread;
                let stream = Stream { context, device, handle, blocking, ..Stream::default() };
                let slot = self.add_stream(stream);
                self.streams.names.insert(name, Entry::Live(slot));
                Ok(slot)
            }
        }
    }

    pub(crate) fn create_stream(&mut self, context: u32, blocking: bool) -> Result<usize> {
        let device = self.context_device(context)?;
        let handle = self.streams.take_handle();
        let stream = Stream { context, device, handle, blocking, ..Stream::default() };
        let slot = self.add_stream(stream);
        self.streams.names.insert(Name::Created(handle), Entry::Live(slot));
        if let Some(index) = created_index(handle) {
            self.quiet.set_stream(index, Some((context, self.streams.slots[slot as usize].id)));
        }
        Ok(handle)
    }

    /// Forgets the handle. The work in the queue stays and completes like any other.
    pub(crate) fn destroy_stream(&mut self, context: u32, handle: usize) -> Result<()> {
        if handle <= STREAM_PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        let slot = self.stream(context, handle, Call::StreamDestroy)?;
        self.forget_captures(&[slot]);
        self.forget_name(match created_index(handle) {
            Some(_) => Name::Created(handle),
            None => Name::Implicit(context, handle),
        });
        self.streams.retire(slot);
        Ok(())
    }

    /// Ends the names of all streams of a context except the legacy stream's. Their slots may be
    /// reused.
    pub(crate) fn forget_streams(&mut self, context: u32) {
        let is_its = |slot: u32| self.streams.slots[slot as usize].context == context;
        let names = self.streams.names.iter();
        let of_context = names.filter_map(|(&name, &entry)| match entry {
            Entry::Live(slot) if is_its(slot) => Some((name, slot)),
            _ => None,
        });
        let mut of_context: Vec<(Name, u32)> = of_context.collect();
        // The newest ids first, so that handles are reused in the order in which they were made.
        of_context.sort_by_key(|&(_, slot)| Reverse(self.streams.slots[slot as usize].id));
        for (name, slot) in of_context {
            self.forget_name(name);
            self.streams.retire(slot);
        }
    }

    fn forget_name(&mut self, name: Name) {
        let Name::Created(handle) = name else {
            self.streams.names.remove(&name);
            return;
        };
        self.streams.names.insert(name, Entry::Destroyed);
        self.streams.recycle(handle);
        if let Some(index) = created_index(handle) {
            self.quiet.set_stream(index, None);
        }
    }

    /// Adds `stream` with a new id and returns its slot.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> u32 {
        let stream = Stream { id: self.streams.next_id(), ..stream };
        if let Some(slot) = self.take_retired_slot() {
            let retired = &mut self.streams.slots[slot as usize];
            let (enqueued, done) = (retired.enqueued, retired.done);
            self.streams.held -= usize::from(retired.held);
            *retired = Stream { enqueued, done, ..stream };
            return slot;
        }
        self.streams.slots.push(stream);
        self.streams.slots.len() as u32 - 1
    }

    /// A destroyed stream's slot that may be reused. Only the oldest is looked at; if it is not
    /// ready, it goes to the back of the queue.
    fn take_retired_slot(&mut self) -> Option<u32> {
        let slot = self.streams.retired.pop_front()?;
        let stream = &self.streams.slots[slot as usize];
        let is_idle = stream.done == stream.enqueued;
        let is_known = self
            .detector
            .as_ref()
            .is_none_or(|detector| detector.host.get(slot) >= stream.enqueued);
        if is_idle && is_known {
            return Some(slot);
        }
        self.streams.retired.push_back(slot);
        None
    }
}
