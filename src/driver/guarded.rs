//! Guard pages: a device whose allocations each end at a page that is not mapped.
//!
//! ```text
//!   reservation     │ granule │ granule │ granule │
//!   mapped          │▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒▒│         │   an access here faults
//!   allocation               ╰─ bytes ─╯│
//! ```
//!
//! An allocation is a reservation of its own, one granule longer than what is mapped in it, and
//! lies at the end of that: what is written past it, from the next multiple of 512 bytes on,
//! faults where it happens. What is freed is unmapped and its addresses are *retired*: they stay
//! reserved, so that a use after the free faults too, until [`RETIRED_BYTES`] or
//! [`MOST_RETIRED`] newer ones have been retired, or addresses run out.
//!
//! A decorator: everything but allocating and freeing is passed on.
//!
//! **Invariants**: `live` knows what is handed out, by address; a reservation is in `live` or in
//! `retired` once; nothing is mapped in a retired one. **Locks**: one, never held while the driver
//! is called. **Not done**: nothing guards the bytes before an allocation, up to a granule of
//! which are mapped with it; and memory is not made for sharing or for GPUDirect RDMA.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, MemoryHandle, MemoryInfo,
    Result, Usage,
};
use crate::base::lock::{Lock, rank};
use crate::base::size::{ALIGNMENT_BYTES, round_up};
use crate::base::{DeviceOrdinal, StreamHandle};

/// So many bytes of addresses are kept after they were freed, of the 128 TiB that there are …
const RETIRED_BYTES: u64 = 1 << 40;
/// … in at most so many reservations.
const MOST_RETIRED: usize = 1 << 16;

/// A device with guard pages.
#[derive(Debug)]
pub struct Guarded {
    device: Arc<dyn Device>,
    granule_bytes: u64,
    state: Lock<State, { rank::DEVICE }>,
}

#[derive(Debug, Default)]
struct State {
    live: HashMap<u64, Reservation>,
    /// The oldest first.
    retired: VecDeque<Reservation>,
    retired_bytes: u64,
    /// What the driver has refused to take back so far; no mapping of it is to stay.
    unreleased: Vec<MemoryHandle>,
    /// Who may access what is mapped, besides the device itself.
    peers: Vec<DeviceOrdinal>,
}

/// Addresses, the last granule of which is never mapped.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    address: u64,
    bytes: u64,
}

impl Guarded {
    /// Puts guard pages behind the allocations of `device`; `NOT_SUPPORTED` where it has no
    /// virtual memory management.
    pub fn new(device: Arc<dyn Device>) -> Result<Self> {
        let granule_bytes = device.granularity(HandleOptions::default())?;
        Ok(Self { device, granule_bytes, state: Lock::default() })
    }

    /// What is mapped for an allocation of `bytes`.
    fn mapped_bytes(&self, bytes: u64) -> Option<u64> {
        round_up(bytes, self.granule_bytes)
    }

    /// Addresses for `bytes`; where there are no more, those that were retired first are given
    /// up for them.
    fn reserve_or_reuse(&self, bytes: u64) -> Result<u64> {
        loop {
            match self.device.reserve(bytes, 0) {
                Err(error) if error.is_out_of_memory() && self.give_up_oldest(|_| true)? => {}
                reserved => return reserved,
            }
        }
    }

    /// Gives the addresses that were retired first back to the driver if `is_wanted`; says
    /// whether it came to that.
    fn give_up_oldest(&self, is_wanted: impl FnOnce(&State) -> bool) -> Result<bool> {
        let oldest = {
            let mut state = self.state.lock();
            if !is_wanted(&state) {
                return Ok(false);
            }
            let Some(oldest) = state.retired.pop_front() else { return Ok(false) };
            state.retired_bytes -= oldest.bytes;
            oldest
        };
        let given = self.device.unreserve(oldest.address, oldest.bytes);
        if given.is_err() {
            let mut state = self.state.lock();
            state.retired.push_front(oldest);
            state.retired_bytes += oldest.bytes;
        }
        given.map(|()| true)
    }

    fn retire(&self, reservation: Reservation) {
        let mut state = self.state.lock();
        state.retired.push_back(reservation);
        state.retired_bytes += reservation.bytes;
    }

    /// Memory at the start of a reservation, accessible to the device and the peers that there are,
    /// or none; gives how many those were.
    fn back(&self, address: u64, bytes: u64) -> Result<usize> {
        self.release_handles();
        let handle = self.device.create(bytes, HandleOptions::default())?;
        let mapped = self.device.map(address, bytes, handle);
        // The mapping keeps the memory; without one it goes.
        self.state.lock().unreleased.push(handle);
        self.release_handles();
        mapped?;
        let peers = self.state.lock().peers.clone();
        let accessible = self.device.set_access(address, bytes, &peers);
        if accessible.is_err() {
            // What cannot be unmapped stays in a reservation that cannot be given back.
            let _ = self.device.unmap(address, bytes);
        }
        accessible.map(|()| peers.len())
    }

    /// Releases the handles that are not needed any more, as far as the driver takes them.
    fn release_handles(&self) {
        let handles = std::mem::take(&mut self.state.lock().unreleased);
        // Those that the driver refuses again are offered with the next.
        for handle in handles {
            if self.device.release(handle).is_err() {
                self.state.lock().unreleased.push(handle);
            }
        }
    }
}

impl Device for Guarded {
    fn allocate(&self, bytes: u64) -> Result<u64> {
        let too_large = DriverError { call: Call::Allocate, code: Code::OUT_OF_MEMORY };
        let mapped_bytes = self.mapped_bytes(bytes).ok_or(too_large)?;
        let block_bytes = round_up(bytes, ALIGNMENT_BYTES).ok_or(too_large)?;
        let reserved_bytes = mapped_bytes.checked_add(self.granule_bytes).ok_or(too_large)?;
        let reservation =
            Reservation { address: self.reserve_or_reuse(reserved_bytes)?, bytes: reserved_bytes };
        let peers_before = match self.back(reservation.address, mapped_bytes) {
            Ok(count) => count,
            Err(error) => {
                if self.device.unreserve(reservation.address, reservation.bytes).is_err() {
                    self.retire(reservation);
                }
                return Err(error);
            }
        };
        let address = reservation.address + mapped_bytes - block_bytes;
        let peers_since = {
            let mut state = self.state.lock();
            state.live.insert(address, reservation);
            state.peers[peers_before..].to_vec()
        };
        if !peers_since.is_empty() {
            // They were told while the memory was in nobody's list; one that is refused faults.
            let _ = self.device.set_access(reservation.address, mapped_bytes, &peers_since);
        }
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let found = self.state.lock().live.get(&address).copied();
        let unknown = DriverError { call: Call::Free, code: Code::INVALID_VALUE };
        let reservation = found.ok_or(unknown)?;
        self.device.synchronize()?;
        self.device.unmap(reservation.address, reservation.bytes - self.granule_bytes)?;
        self.state.lock().live.remove(&address);
        self.retire(reservation);
        self.release_handles();
        let is_too_much = |state: &State| {
            state.retired_bytes > RETIRED_BYTES || state.retired.len() > MOST_RETIRED
        };
        // Addresses that cannot be given back now are tried again with the next ones.
        let _ = self.give_up_oldest(is_too_much);
        Ok(())
    }

    fn footprint_bytes(&self, bytes: u64) -> u64 {
        self.mapped_bytes(bytes).unwrap_or(u64::MAX)
    }

    fn add_peer(&self, peer: DeviceOrdinal) -> Result<()> {
        let live: Vec<Reservation> = {
            let mut state = self.state.lock();
            if !state.peers.contains(&peer) {
                state.peers.push(peer);
            }
            state.live.values().copied().collect()
        };
        for Reservation { address, bytes } in live {
            let allowed = self.device.set_access(address, bytes - self.granule_bytes, &[peer]);
            // What was freed meanwhile needs no access.
            let is_live = self.state.lock().live.values().any(|live| live.address == address);
            if is_live {
                allowed?;
            }
        }
        Ok(())
    }

    fn ordinal(&self) -> DeviceOrdinal {
        self.device.ordinal()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn usage(&self) -> Usage {
        self.device.usage()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.device.memory_info()
    }

    fn granularity(&self, options: HandleOptions) -> Result<u64> {
        self.device.granularity(options)
    }

    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        self.device.reserve(bytes, alignment_bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.device.unreserve(address, bytes)
    }

    fn create(&self, bytes: u64, options: HandleOptions) -> Result<MemoryHandle> {
        self.device.create(bytes, options)
    }

    fn release(&self, handle: MemoryHandle) -> Result<()> {
        self.device.release(handle)
    }

    fn map(&self, address: u64, bytes: u64, handle: MemoryHandle) -> Result<()> {
        self.device.map(address, bytes, handle)
    }

    fn set_access(&self, address: u64, bytes: u64, peers: &[DeviceOrdinal]) -> Result<()> {
        self.device.set_access(address, bytes, peers)
    }

    fn can_access_peer(&self, peer: DeviceOrdinal) -> Result<bool> {
        self.device.can_access_peer(peer)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.device.unmap(address, bytes)
    }

    fn event_create(&self) -> Result<Event> {
        self.device.event_create()
    }

    fn event_destroy(&self, event: Event) -> Result<()> {
        self.device.event_destroy(event)
    }

    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()> {
        self.device.event_record(event, stream)
    }

    fn event_query(&self, event: Event) -> Result<bool> {
        self.device.event_query(event)
    }

    fn event_synchronize(&self, event: Event) -> Result<()> {
        self.device.event_synchronize(event)
    }

    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()> {
        self.device.stream_wait(stream, event)
    }

    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.device.stream_is_capturing(stream)
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        self.device.stream_id(stream)
    }

    fn context(&self) -> ContextId {
        self.device.context()
    }

    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        self.device.other_context_of(stream)
    }

    fn is_in_use(&self) -> Result<bool> {
        self.device.is_in_use()
    }

    fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }

    fn host_allocate(&self, bytes: u64) -> Result<u64> {
        self.device.host_allocate(bytes)
    }

    fn host_free(&self, address: u64) -> Result<()> {
        self.device.host_free(address)
    }

    fn copy_to_host(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        self.device.copy_to_host(host_address, device_address, bytes)
    }

    fn copy_to_device(&self, device_address: u64, host_address: u64, bytes: u64) -> Result<()> {
        self.device.copy_to_device(device_address, host_address, bytes)
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        self.device.fill(address, bytes, value, stream)
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        self.device.find_other(address, bytes, value)
    }
}

#[cfg(test)]
mod tests {
    use simgpu::{Access, Config, Machine, StoreKind, Target, Times};

    use super::*;
    use crate::driver::simulated::SimulatedDevice;

    const GRANULE: u64 = 2 << 20;
    const UNKNOWN: simgpu::Code = simgpu::Code(12345);

    fn guarded(space_bytes: Option<u64>) -> (Arc<Machine>, Guarded) {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
        config.address_space_bytes = space_bytes;
        config.detect_races = true;
        let machine = Machine::new(config).unwrap();
        let device = Arc::new(SimulatedDevice::new(machine.clone(), 0));
        (machine, Guarded::new(device).unwrap())
    }

    fn touch(machine: &Machine, address: u64, bytes: u64) -> usize {
        machine.touch(0, 0xA, address, bytes, Access::Write, "test").unwrap();
        machine.take_violations().len()
    }

    #[test]
    fn an_allocation_ends_at_a_page_that_is_not_mapped() {
        let (machine, device) = guarded(None);
        for bytes in [1, 511, 512, 513, GRANULE - 512, GRANULE, GRANULE + 1, 5 * GRANULE] {
            let address = device.allocate(bytes).unwrap();
            let end = address + bytes.next_multiple_of(512);
            assert_eq!((address % 512, end % GRANULE), (0, 0), "{bytes}");
            assert_eq!(touch(&machine, address, end - address), 0, "{bytes}");
            assert_eq!(touch(&machine, end, 1), 1, "{bytes}");
            assert_eq!(touch(&machine, end + GRANULE - 1, 1), 1, "{bytes}");
            let used_bytes = machine.census().used_bytes;
            assert_eq!((used_bytes, device.footprint_bytes(bytes)), (used_bytes, used_bytes));
            device.free(address).unwrap();
            assert_eq!(touch(&machine, address, 1), 1, "used after it was freed");
            assert_eq!(device.free(address).unwrap_err().code, Code::INVALID_VALUE);
        }
        assert_eq!(machine.census().used_bytes, 0);
        assert_eq!(machine.census().handles, 0);
    }

    #[test]
    fn addresses_are_used_again_only_when_there_are_no_others() {
        let (machine, device) = guarded(Some(64 * GRANULE));
        let mut seen = std::collections::HashSet::new();
        let mut repeated = 0;
        for _ in 0..100 {
            let address = device.allocate(GRANULE).unwrap();
            repeated += usize::from(!seen.insert(address));
            device.free(address).unwrap();
        }
        assert_eq!(seen.len(), 32, "two granules each");
        assert_eq!(repeated, 68);
        machine.validate().unwrap();
    }

    #[test]
    fn a_call_that_fails_leaves_nothing_behind() {
        let (machine, device) = guarded(None);
        for call in [
            simgpu::Call::Reserve,
            simgpu::Call::Create,
            simgpu::Call::Map,
            simgpu::Call::SetAccess,
        ] {
            machine.faults().fail(Target::call(call), 1, Times::Once, UNKNOWN);
            assert_eq!(device.allocate(GRANULE).unwrap_err().code, Code(12345), "{call:?}");
            let census = machine.census();
            let left = (census.handles, census.mappings, census.reservations);
            assert_eq!(left, (0, 0, 0), "{call:?}");
        }
        // A handle that the driver does not take back is offered again.
        machine.faults().fail(Target::call(simgpu::Call::Release), 1, Times::Once, UNKNOWN);
        device.free(device.allocate(GRANULE).unwrap()).unwrap();
        assert_eq!(machine.census().used_bytes, 0);
        let address = device.allocate(GRANULE).unwrap();
        for call in [simgpu::Call::Synchronize, simgpu::Call::Unmap] {
            machine.faults().fail(Target::call(call), 1, Times::Once, UNKNOWN);
            assert_eq!(device.free(address).unwrap_err().code, Code(12345), "{call:?}");
            assert_eq!(touch(&machine, address, GRANULE), 0, "it is as it was");
        }
        device.free(address).unwrap();
    }

    #[test]
    fn a_device_without_virtual_memory_has_none() {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
        config.devices[0].virtual_memory = false;
        let device = Arc::new(SimulatedDevice::new(Machine::new(config).unwrap(), 0));
        assert_eq!(Guarded::new(device).unwrap_err().code, Code::NOT_SUPPORTED);
    }
}
