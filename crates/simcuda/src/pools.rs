//! `cudaMallocAsync`: the device's default pool, minimally.
//!
//! A block freed in stream order returns to the device once the event recorded behind it has
//! completed, which the next call of a pool notices; nothing is kept for reuse. Returning a block
//! waits for the device, as `cuMemFree` does, so the race detector sees less here than with plain
//! allocations. While a stream of the device captures, no block is returned. Capturing streams are
//! refused, and there are only the default pools. A block belongs to its device's primary context.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::{CaptureMode, Code, Machine, exchange_thread_capture_mode};

use crate::answer::Answer;
use crate::log;

/// Handles of the default pools: nothing lies there.
const FIRST_POOL: usize = 0x5d00_0000_0000;
const POOL_STEP: usize = 0x1000;
/// The number of the release threshold among the attributes. The numbers of the two sizes in use,
/// now and at most, follow it in pairs.
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
    /// Device and bytes by address, for blocks handed out.
    live: HashMap<u64, (u32, u64)>,
    freed: Vec<Freed>,
    used: HashMap<u32, u64>,
    high: HashMap<u32, u64>,
    attributes: HashMap<(u32, i32), u64>,
}

/// A freed block of a device, and the event recorded behind it.
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

    /// Forgets the blocks of a device that was reset.
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

    /// Allocates `bytes` in stream order.
    pub(crate) fn allocate(
        &self,
        machine: &Machine,
        context: u32,
        bytes: u64,
        stream: usize,
    ) -> Answer<u64> {
        let device = machine.context_device(context)?;
        if machine.is_capturing(context, stream)? {
            log::missing("cudaMallocAsync in a capture");
            return Err(Code::NOT_SUPPORTED);
        }
        relaxed(|| {
            self.give_back(machine, false)?;
            let address = match machine.allocate(device, bytes) {
                Err(Code::OUT_OF_MEMORY) => {
                    self.give_back(machine, true)?;
                    machine.allocate(device, bytes)?
                }
                answer => answer?,
            };
            let mut table = self.lock();
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
    pub(crate) fn free(
        &self,
        machine: &Machine,
        context: u32,
        address: u64,
        stream: usize,
    ) -> Answer {
        let stream_context = machine.stream_context(context, stream)?;
        let (owner, bytes) = self.lock().live.remove(&address).ok_or(Code::INVALID_VALUE)?;
        relaxed(|| {
            let event = machine.event_create(stream_context, false)?;
            machine.event_record(context, event, stream)?;
            let mut table = self.lock();
            table.freed.push(Freed { address, device: owner, event });
            table.subtract(owner, bytes);
            drop(table);
            self.give_back(machine, false)
        })
    }

    /// Returns the freed blocks whose event has completed to the device; with `waits`, all of them.
    pub(crate) fn give_back(&self, machine: &Machine, waits: bool) -> Answer {
        let freed = std::mem::take(&mut self.lock().freed);
        let mut outcome = Ok(());
        for entry in freed {
            match Self::give_back_one(machine, entry, waits) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(code) => outcome = outcome.and(Err(code)),
            }
            self.lock().freed.push(entry);
        }
        outcome
    }

    /// Returns one block to the device if its event is complete; true if it did.
    fn give_back_one(machine: &Machine, entry: Freed, waits: bool) -> Answer<bool> {
        let Freed { address, device, event } = entry;
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

    /// Frees memory, of a pool or not, as `cudaFree` does. The pool forgets it first: once it is
    /// free, its address may belong to another thread's new block.
    pub(crate) fn free_at_once(&self, machine: &Machine, context: u32, address: u64) -> Answer {
        let forgotten = self.lock().live.remove(&address);
        let answer = machine.free(context, address);
        if let Some((owner, bytes)) = forgotten {
            let mut table = self.lock();
            match answer {
                Ok(()) => table.subtract(owner, bytes),
                Err(_) => drop(table.live.insert(address, (owner, bytes))),
            }
        }
        answer
    }

    /// An attribute of a pool: sizes in bytes, or a switch.
    pub(crate) fn attribute(&self, device: u32, attribute: i32) -> u64 {
        let table = self.lock();
        match attribute {
            number if USED_NOW.contains(&number) => table.used.get(&device).copied().unwrap_or(0),
            number if USED_HIGH.contains(&number) => table.high.get(&device).copied().unwrap_or(0),
            number => {
                let default = u64::from(number < RELEASE_THRESHOLD);
                table.attributes.get(&(device, number)).copied().unwrap_or(default)
            }
        }
    }

    /// Changes an attribute. A high-water mark is set to what is used now, whatever the value.
    pub(crate) fn set_attribute(&self, device: u32, attribute: i32, value: u64) {
        let mut table = self.lock();
        if USED_HIGH.contains(&attribute) {
            let used = table.used.get(&device).copied().unwrap_or(0);
            table.high.insert(device, used);
        } else {
            table.attributes.insert((device, attribute), value);
        }
    }
}

/// The handle of the default pool of `device`.
pub(crate) const fn handle(device: u32) -> usize {
    FIRST_POOL + device as usize * POOL_STEP
}

/// The one of `devices` devices whose default pool has this handle.
pub(crate) fn device(devices: u32, pool: usize) -> Answer<u32> {
    (0..devices).find(|&device| handle(device) == pool).ok_or(Code::INVALID_VALUE)
}

/// Returns true if an attribute is 64 bits wide; the others are an `int`.
pub(crate) const fn is_wide(attribute: i32) -> bool {
    attribute >= RELEASE_THRESHOLD
}

fn relaxed<T>(work: impl FnOnce() -> T) -> T {
    let mode = exchange_thread_capture_mode(CaptureMode::Relaxed);
    let result = work();
    exchange_thread_capture_mode(mode);
    result
}
