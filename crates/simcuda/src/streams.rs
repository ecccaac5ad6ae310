//! Properties of streams that the machine does not keep: flags and priority.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::{Code, Machine, STREAM_PER_THREAD};

use crate::answer::Answer;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Priorities, from the least to the greatest. A greater priority is a smaller number.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

/// The streams that programs created.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: Mutex<HashMap<usize, Stream>>,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    context: u32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

impl Streams {
    /// What is known of `handle`; a default stream is that of `context`.
    pub(crate) fn get(&self, context: u32, handle: usize) -> Answer<Stream> {
        if handle <= STREAM_PER_THREAD {
            return Ok(Stream { context, flags: 0, priority: 0 });
        }
        self.lock().get(&handle).copied().ok_or(Code::INVALID_HANDLE)
    }

    /// How many created streams have not been destroyed.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Forgets the streams of a context.
    pub(crate) fn forget(&self, context: u32) {
        self.lock().retain(|_, stream| stream.context != context);
    }

    /// Creates a stream. A priority out of range is clamped.
    pub(crate) fn create(
        &self,
        machine: &Machine,
        context: u32,
        flags: u32,
        priority: i32,
    ) -> Answer<usize> {
        if flags > NON_BLOCKING {
            return Err(Code::INVALID_VALUE);
        }
        let (least, greatest) = PRIORITIES;
        let handle = machine.stream_create(context, flags != NON_BLOCKING)?;
        let stream = Stream { context, flags, priority: priority.clamp(greatest, least) };
        self.lock().insert(handle, stream);
        Ok(handle)
    }

    /// Destroys a stream; its work still completes. The entry goes first: the handle may be reused
    /// as soon as it is free.
    pub(crate) fn destroy(&self, machine: &Machine, context: u32, handle: usize) -> Answer {
        let removed = self.lock().remove(&handle);
        let destroyed = machine.stream_destroy(context, handle);
        if let (Err(_), Some(stream)) = (destroyed, removed) {
            self.lock().insert(handle, stream);
        }
        destroyed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Stream>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
