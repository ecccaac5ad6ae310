//! Properties of streams that the machine does not keep: flags and priority.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::{Code, STREAM_PER_THREAD};

use crate::call::Answer;
use crate::simulation::Simulation;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Priorities, from the least to the greatest: numbers fall as they rise.
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
    /// What is known of `handle`; of a default stream, in `context`.
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
    pub(crate) fn remove_all(&self, context: u32) {
        self.lock().retain(|_, stream| stream.context != context);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Stream>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a stream; a priority out of range is brought into it.
pub(crate) fn create(
    simulation: &Simulation,
    context: u32,
    flags: u32,
    priority: i32,
) -> Answer<usize> {
    if flags > NON_BLOCKING {
        return Err(Code::INVALID_VALUE);
    }
    let (least, greatest) = PRIORITIES;
    let handle = simulation.machine.stream_create(context, flags != NON_BLOCKING)?;
    let stream = Stream { context, flags, priority: priority.clamp(greatest, least) };
    simulation.streams.lock().insert(handle, stream);
    Ok(handle)
}

/// Destroys a stream; its work is still done. The entry goes first: the handle may be another
/// stream's as soon as it is free.
pub(crate) fn destroy(simulation: &Simulation, context: u32, handle: usize) -> Answer {
    let removed = simulation.streams.lock().remove(&handle);
    let destroyed = simulation.machine.stream_destroy(context, handle);
    if let (Err(_), Some(stream)) = (destroyed, removed) {
        simulation.streams.lock().insert(handle, stream);
    }
    destroyed
}
