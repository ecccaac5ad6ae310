//! Host memory that devices may reach: allocated page-locked, or the program's and registered.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::Code;

use crate::call::Answer;
use crate::code;
use crate::simulation::Simulation;

/// Every such range, by its start.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    ranges: Mutex<BTreeMap<u64, HostRange>>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRange {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// The device it was made known to first.
    pub(crate) device: u32,
    pub(crate) flags: u32,
    is_registered: bool,
}

impl HostMemory {
    /// The range that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<HostRange> {
        let ranges = self.lock();
        let (_, range) = ranges.range(..=address).next_back()?;
        (address - range.base < range.bytes).then_some(*range)
    }

    /// How many ranges of the program's own are registered.
    pub(crate) fn registered(&self) -> usize {
        self.lock().values().filter(|range| range.is_registered).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, HostRange>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bytes` of page-locked memory, real with either store.
pub(crate) fn allocate(
    simulation: &Simulation,
    context: u32,
    bytes: u64,
    flags: u32,
) -> Answer<u64> {
    let device = simulation.machine.context_device(context)?;
    let base = simulation.machine.host_allocate(context, bytes)?;
    let range = HostRange { base, bytes, device, flags, is_registered: false };
    simulation.host_memory.lock().insert(base, range);
    Ok(base)
}

/// Gives back what [`allocate`] gave.
pub(crate) fn free(simulation: &Simulation, context: u32, address: u64) -> Answer {
    let is_allocated = |range: &HostRange| range.base == address && !range.is_registered;
    simulation.host_memory.find(address).filter(is_allocated).ok_or(Code::INVALID_VALUE)?;
    // The entry goes first: the address may be somebody else's as soon as it is free.
    let removed = simulation.host_memory.lock().remove(&address);
    let freed = simulation.machine.host_free(context, address);
    if let (Err(_), Some(range)) = (freed, removed) {
        simulation.host_memory.lock().insert(address, range);
    }
    freed
}

/// Makes memory of the program known.
pub(crate) fn register(
    simulation: &Simulation,
    context: u32,
    address: u64,
    bytes: u64,
    flags: u32,
) -> Answer {
    let device = simulation.machine.context_device(context)?;
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    if address == 0 || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut ranges = simulation.host_memory.lock();
    let before = ranges.range(..end).next_back();
    if before.is_some_and(|(_, range)| range.base + range.bytes > address) {
        return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(address, HostRange { base: address, bytes, device, flags, is_registered: true });
    Ok(())
}

/// Undoes [`register`].
pub(crate) fn unregister(simulation: &Simulation, address: u64) -> Answer {
    let mut ranges = simulation.host_memory.lock();
    match ranges.get(&address) {
        Some(range) if range.is_registered => {
            ranges.remove(&address);
            Ok(())
        }
        _ => Err(code::HOST_MEMORY_NOT_REGISTERED),
    }
}
