//! Properties of streams that the machine does not keep: flags, priority, number, device.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use simgpu::{Code, STREAM_PER_THREAD};

use crate::call::Answer;
use crate::simulation::Simulation;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Priorities, from the least to the greatest: numbers fall as they rise.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);
/// Numbers of created streams start here; those below belong to the default streams.
const FIRST_ID: u64 = 16;

/// The streams that programs created.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    created: u64,
    streams: HashMap<usize, Stream>,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) device: u32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Never used again, unlike a handle.
    pub(crate) id: u64,
}

impl Streams {
    /// What is known of `handle`; of a default stream, on `device`.
    pub(crate) fn get(&self, device: u32, handle: usize) -> Answer<Stream> {
        if handle <= STREAM_PER_THREAD {
            let id = handle.max(1) as u64;
            return Ok(Stream { device, flags: 0, priority: 0, id });
        }
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.streams.get(&handle).copied().ok_or(Code::INVALID_HANDLE)
    }

    /// How many created streams have not been destroyed.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).streams.len()
    }

    fn add(&self, handle: usize, device: u32, flags: u32, priority: i32) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.created += 1;
        let id = FIRST_ID + table.created;
        table.streams.insert(handle, Stream { device, flags, priority, id });
    }

    fn remove(&self, handle: usize) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).streams.remove(&handle);
    }
}

/// Creates a stream; a priority out of range is brought into it.
pub(crate) fn create(
    simulation: &Simulation,
    device: u32,
    flags: u32,
    priority: i32,
) -> Answer<usize> {
    if flags > NON_BLOCKING {
        return Err(Code::INVALID_VALUE);
    }
    let (least, greatest) = PRIORITIES;
    let handle = simulation.machine.stream_create(device, flags != NON_BLOCKING)?;
    simulation.streams.add(handle, device, flags, priority.clamp(greatest, least));
    Ok(handle)
}

/// Destroys a stream; its work is still done.
pub(crate) fn destroy(simulation: &Simulation, device: u32, handle: usize) -> Answer {
    simulation.machine.stream_destroy(device, handle)?;
    simulation.streams.remove(handle);
    Ok(())
}
