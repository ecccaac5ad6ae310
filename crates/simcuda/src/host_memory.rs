//! Host memory that devices may reach: allocated page-locked, or registered by the program.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::{Code, Machine};

use crate::answer::Answer;

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP` and `_WRITECOMBINED`.
const ALLOCATION_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `_DEVICEMAP`, `_IOMEMORY` and `_READ_ONLY`.
const REGISTRATION_FLAGS: u32 = 15;

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
    /// The device of the context that allocated or registered it.
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

    /// `bytes` of page-locked memory, real with either store.
    pub(crate) fn allocate(
        &self,
        machine: &Machine,
        context: u32,
        bytes: u64,
        flags: u32,
    ) -> Answer<u64> {
        let device = machine.context_device(context)?;
        if flags & !ALLOCATION_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let base = machine.host_allocate(context, bytes)?;
        let range = HostRange { base, bytes, device, flags, is_registered: false };
        self.lock().insert(base, range);
        Ok(base)
    }

    /// Frees memory of [`Self::allocate`].
    pub(crate) fn free(&self, machine: &Machine, context: u32, address: u64) -> Answer {
        let is_allocated = |range: &HostRange| range.base == address && !range.is_registered;
        self.find(address).filter(is_allocated).ok_or(Code::INVALID_VALUE)?;
        // The entry goes first: the address may be reused as soon as it is free.
        let removed = self.lock().remove(&address);
        let freed = machine.host_free(context, address);
        if let (Err(_), Some(range)) = (freed, removed) {
            self.lock().insert(address, range);
        }
        freed
    }

    /// Registers memory of the program.
    pub(crate) fn register(
        &self,
        machine: &Machine,
        context: u32,
        address: u64,
        bytes: u64,
        flags: u32,
    ) -> Answer {
        let device = machine.context_device(context)?;
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        if address == 0 || bytes == 0 || flags & !REGISTRATION_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut ranges = self.lock();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(_, range)| range.base + range.bytes > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        machine.host_register(context, address, bytes)?;
        ranges.insert(
            address,
            HostRange { base: address, bytes, device, flags, is_registered: true },
        );
        Ok(())
    }

    /// Undoes [`Self::register`].
    pub(crate) fn unregister(&self, machine: &Machine, context: u32, address: u64) -> Answer {
        let mut ranges = self.lock();
        match ranges.get(&address) {
            Some(range) if range.is_registered => {
                machine.host_unregister(context, address)?;
                ranges.remove(&address);
                Ok(())
            }
            _ => Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, HostRange>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
