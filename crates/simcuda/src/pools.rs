//! `cudaMallocAsync`: the device's default pool, minimally.
//!
//! A block freed in stream order goes back to the device once the event behind it has
//! completed, which is noticed at the next call of a pool; nothing is kept for reuse. Giving
//! back waits for the device, as `cuMemFree` does, so the race detector sees less here than
//! with plain allocations; while a stream of the device captures, nothing is given back. Not on
//! capturing streams, and no pools but the default ones. A block belongs to its device's primary
//! context.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::{CaptureMode, Code, exchange_thread_capture_mode};

use crate::call::Answer;
use crate::simulation::Simulation;

/// Handles of the default pools: nothing lies there.
const FIRST_POOL: usize = 0x5d00_0000_0000;
const POOL_STEP: usize = 0x1000;
/// The release threshold's number among the attributes; the two sizes in use, now and at most,
/// come in pairs after it.
const RELEASE_THRESHOLD: i32 = 4;
const USED_NOW: [i32; 2] = [5, 7];
const USED_HIGH: [i32; 2] = [6, 8];

/// All default pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Bytes by address, for blocks handed out.
    live: HashMap<u64, (u32, u64)>,
    freed: Vec<Freed>,
    used: HashMap<u32, u64>,
    high: HashMap<u32, u64>,
    attributes: HashMap<(u32, i32), u64>,
}

/// A block of a device that was freed, and the event behind it.
#[derive(Clone, Copy, Debug)]
struct Freed {
    address: u64,
    device: u32,
    event: u64,
}

impl Table {
    fn subtract(&mut self, device: u32, bytes: u64) {
        if let Some(used) = self.used.get_mut(&device) {
            *used -= bytes;
        }
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what a device had that was reset.
    pub(crate) fn forget(&self, device: u32) {
        let mut table = self.lock();
        table.live.retain(|_, &mut (owner, _)| owner != device);
        table.freed.retain(|entry| entry.device != device);
        table.used.remove(&device);
        table.high.remove(&device);
    }

    /// How many blocks are handed out or wait for their event.
    pub(crate) fn count(&self) -> usize {
        let table = self.lock();
        table.live.len() + table.freed.len()
    }
}

/// The handle of the default pool of `device`.
pub(crate) const fn handle(device: u32) -> usize {
    FIRST_POOL + device as usize * POOL_STEP
}

/// The device whose default pool has this handle.
pub(crate) fn device(simulation: &Simulation, pool: usize) -> Answer<u32> {
    let devices = 0..simulation.settings.devices;
    devices.into_iter().find(|&device| handle(device) == pool).ok_or(Code::INVALID_VALUE)
}

/// `bytes` in stream order.
pub(crate) fn allocate(
    simulation: &Simulation,
    context: u32,
    bytes: u64,
    stream: usize,
) -> Answer<u64> {
    let device = simulation.machine.context_device(context)?;
    if simulation.machine.is_capturing(context, stream)? {
        crate::log::missing("cudaMallocAsync in a capture");
        return Err(Code::NOT_SUPPORTED);
    }
    relaxed(|| {
        give_back(simulation, false)?;
        let address = match simulation.machine.allocate(device, bytes) {
            Err(Code::OUT_OF_MEMORY) => {
                give_back(simulation, true)?;
                simulation.machine.allocate(device, bytes)?
            }
            answer => answer?,
        };
        let mut table = simulation.pools.lock();
        table.live.insert(address, (device, bytes));
        let used = table.used.entry(device).or_default();
        *used += bytes;
        let used = *used;
        let high = table.high.entry(device).or_default();
        *high = used.max(*high);
        Ok(address)
    })
}

/// Frees in stream order.
pub(crate) fn free(simulation: &Simulation, context: u32, address: u64, stream: usize) -> Answer {
    let stream_context = simulation.machine.stream_context(context, stream)?;
    let (owner, bytes) =
        simulation.pools.lock().live.remove(&address).ok_or(Code::INVALID_VALUE)?;
    relaxed(|| {
        let event = simulation.machine.event_create(stream_context, false)?;
        simulation.machine.event_record(context, event, stream)?;
        let mut table = simulation.pools.lock();
        table.freed.push(Freed { address, device: owner, event });
        table.subtract(owner, bytes);
        drop(table);
        give_back(simulation, false)
    })
}

/// Gives back what is freed and no longer used; with `waits`, all that is freed.
pub(crate) fn give_back(simulation: &Simulation, waits: bool) -> Answer {
    let freed = std::mem::take(&mut simulation.pools.lock().freed);
    let mut outcome = Ok(());
    for entry in freed {
        match give_back_one(simulation, entry, waits) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(code) => outcome = outcome.and(Err(code)),
        }
        simulation.pools.lock().freed.push(entry);
    }
    outcome
}

/// Gives back one block if its event is complete.
fn give_back_one(simulation: &Simulation, entry: Freed, waits: bool) -> Answer<bool> {
    let Freed { address, device, event } = entry;
    let machine = &simulation.machine;
    if machine.has_captures(device) {
        return Ok(false);
    }
    if waits {
        machine.event_synchronize(device, event)?;
    }
    if !machine.event_query(device, event)? {
        return Ok(false);
    }
    machine.free(device, address)?;
    machine.event_destroy(device, event)?;
    Ok(true)
}

/// Gives back memory, of a pool or not, as `cudaFree` does. The pool forgets it first: once it is
/// given back, its address may be that of another thread's new block.
pub(crate) fn free_at_once(simulation: &Simulation, context: u32, address: u64) -> Answer {
    let forgotten = simulation.pools.lock().live.remove(&address);
    let answer = simulation.machine.free(context, address);
    if let Some((owner, bytes)) = forgotten {
        let mut table = simulation.pools.lock();
        match answer {
            Ok(()) => table.subtract(owner, bytes),
            Err(_) => drop(table.live.insert(address, (owner, bytes))),
        }
    }
    answer
}

/// An attribute of a pool: sizes in bytes, or a switch.
pub(crate) fn attribute(simulation: &Simulation, device: u32, attribute: i32) -> u64 {
    let table = simulation.pools.lock();
    match attribute {
        number if USED_NOW.contains(&number) => table.used.get(&device).copied().unwrap_or(0),
        number if USED_HIGH.contains(&number) => table.high.get(&device).copied().unwrap_or(0),
        number => {
            let default = u64::from(number < RELEASE_THRESHOLD);
            table.attributes.get(&(device, number)).copied().unwrap_or(default)
        }
    }
}

/// Changes an attribute; of the high-water marks, whatever the value, to what is used now.
pub(crate) fn set_attribute(simulation: &Simulation, device: u32, attribute: i32, value: u64) {
    let mut table = simulation.pools.lock();
    if USED_HIGH.contains(&attribute) {
        let used = table.used.get(&device).copied().unwrap_or(0);
        table.high.insert(device, used);
    } else {
        table.attributes.insert((device, attribute), value);
    }
}

/// Whether an attribute is 64 bits wide; the others are an `int`.
pub(crate) const fn is_wide(attribute: i32) -> bool {
    attribute >= RELEASE_THRESHOLD
}

fn relaxed<T>(work: impl FnOnce() -> T) -> T {
    let mode = exchange_thread_capture_mode(CaptureMode::Relaxed);
    let result = work();
    exchange_thread_capture_mode(mode);
    result
}
