//! Guard pages: a device whose allocations each end at a page that is not mapped.
//!
//! ```text
//!   reservation     │ granule │ granule │ granule │
//!   mapped          │▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒▒▒▒│         │   an access here faults
//!   allocation               ╰─ bytes ─╯│
//! ```
//!
//! Each allocation has its own reservation, one granule longer than what is mapped in it, and lies
//! at the end of the mapped part. An access past it, from the next multiple of 512 bytes on,
//! faults where it happens. A freed allocation is unmapped and its addresses are *retired*: they
//! stay reserved, so that a use after the free faults too, until [`RETIRED_BYTES`] or
//! [`MOST_RETIRED`] newer ones have been retired, or addresses run out.
//!
//! A decorator: every call except allocating and freeing is passed on.
//!
//! **Invariants**: `live` has what is handed out, by address; a reservation is in `live` or in
//! `retired` once; nothing is mapped in a retired one. **Locks**: one, never held while the driver
//! is called. **Not done**: nothing guards the bytes before an allocation, up to a granule of
//! which are mapped with it; memory is not made for GPUDirect RDMA, nor shared with other processes
//! (that of others can be opened).

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, Identity, Managed,
    MemoryHandle, MemoryInfo, Result, SegmentHandle, Sharing, Usage,
};
use crate::base::lock::{Lock, rank};
use crate::base::size::{ALIGNMENT_BYTES, round_up};
use crate::base::{DeviceOrdinal, StreamHandle};

/// At most so many bytes of addresses are kept after a free, of the 128 TiB that there are …
const RETIRED_BYTES: u64 = 1 << 40;
/// … in at most so many reservations.
const MOST_RETIRED: usize = 1 << 16;

/// A device with guard pages.
#[derive(Debug)]
pub struct Guarded {
    driver: Arc<dyn Device>,
    granule_bytes: u64,
    state: Lock<State, { rank::DEVICE }>,
}

#[derive(Debug, Default)]
struct State {
    live: HashMap<u64, Reservation>,
    /// The oldest first.
    retired: VecDeque<Reservation>,
    retired_bytes: u64,
    /// Handles that the driver has refused to release so far.
    unreleased: Vec<MemoryHandle>,
    /// The other devices that may access what is mapped.
    peers: Vec<DeviceOrdinal>,
}

/// Addresses, the last granule of which is never mapped.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    address: u64,
    bytes: u64,
}

impl Guarded {
    /// Puts guard pages behind the allocations of `driver`; `NOT_SUPPORTED` if it has no virtual
    /// memory management.
    pub fn new(driver: Arc<dyn Device>) -> Result<Self> {
        let granule_bytes = driver.granularity(HandleOptions::default())?;
        Ok(Self { driver, granule_bytes, state: Lock::default() })
    }

    /// How many bytes are mapped for an allocation of `bytes`.
    fn mapped_bytes(&self, bytes: u64) -> Option<u64> {
        round_up(bytes, self.granule_bytes)
    }

    /// Reserves `bytes`. If addresses run out, returns the oldest retired ones to the driver
    /// first.
    fn reserve_or_reuse(&self, bytes: u64) -> Result<u64> {
        loop {
            match self.driver.reserve(bytes, 0) {
                Err(error) if error.is_out_of_memory() && self.unreserve_oldest(|_| true)? => {}
                reserved => return reserved,
            }
        }
    }

    /// If `is_wanted`, returns the oldest retired addresses to the driver; true if it did.
    fn unreserve_oldest(&self, is_wanted: impl FnOnce(&State) -> bool) -> Result<bool> {
        let oldest = {
            let mut state = self.state.lock();
            if !is_wanted(&state) {
                return Ok(false);
            }
            let Some(oldest) = state.retired.pop_front() else { return Ok(false) };
            state.retired_bytes -= oldest.bytes;
            oldest
        };
        let unreserved = self.driver.unreserve(oldest.address, oldest.bytes);
        if unreserved.is_err() {
            let mut state = self.state.lock();
            state.retired.push_front(oldest);
            state.retired_bytes += oldest.bytes;
        }
        unreserved.map(|()| true)
    }

    fn retire(&self, reservation: Reservation) {
        let mut state = self.state.lock();
        state.retired.push_back(reservation);
        state.retired_bytes += reservation.bytes;
    }

    /// Maps new memory at the start of a reservation, accessible to the device and the peers
    /// known so far. Returns how many peers those were; maps nothing on failure.
    fn back(&self, address: u64, bytes: u64) -> Result<usize> {
        self.release_handles();
        let handle = self.driver.create(bytes, HandleOptions::default())?;
        let mapped = self.driver.map(address, bytes, handle);
        // The mapping keeps the memory; without one the memory is freed.
        self.state.lock().unreleased.push(handle);
        self.release_handles();
        mapped?;
        let peers = self.state.lock().peers.clone();
        let accessible = self.driver.set_access(address, bytes, &peers);
        if accessible.is_err() {
            // If unmapping fails too, the memory stays in a reservation that cannot be freed.
            let _ = self.driver.unmap(address, bytes);
        }
        accessible.map(|()| peers.len())
    }

    /// Releases the handles that are no longer needed, as far as the driver accepts.
    fn release_handles(&self) {
        let handles = std::mem::take(&mut self.state.lock().unreleased);
        // Handles that the driver refuses are tried again next time.
        for handle in handles {
            if self.driver.release(handle).is_err() {
                self.state.lock().unreleased.push(handle);
            }
        }
    }
}

impl Sharing for Guarded {
    fn open_allocation(&self, handle: &SegmentHandle) -> Result<u64> {
        self.driver.open_allocation(handle)
    }

    fn close_allocation(&self, address: u64) -> Result<()> {
        self.driver.close_allocation(address)
    }

    fn import(&self, descriptor: &OwnedFd) -> Result<MemoryHandle> {
        self.driver.import(descriptor)
    }
}

/// Guard pages need memory that is mapped.
impl Managed for Guarded {}

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
                if self.driver.unreserve(reservation.address, reservation.bytes).is_err() {
                    self.retire(reservation);
                }
                return Err(error);
            }
        };
        let address = reservation.address + mapped_bytes - block_bytes;
        let later_peers = {
            let mut state = self.state.lock();
            state.live.insert(address, reservation);
            state.peers[peers_before..].to_vec()
        };
        if !later_peers.is_empty() {
            // These came while the memory was not yet in `live`. A peer that is refused faults.
            let _ = self.driver.set_access(reservation.address, mapped_bytes, &later_peers);
        }
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let found = self.state.lock().live.get(&address).copied();
        let unknown = DriverError { call: Call::Free, code: Code::INVALID_VALUE };
        let reservation = found.ok_or(unknown)?;
        self.driver.synchronize()?;
        self.driver.unmap(reservation.address, reservation.bytes - self.granule_bytes)?;
        self.state.lock().live.remove(&address);
        self.retire(reservation);
        self.release_handles();
        let is_too_much = |state: &State| {
            state.retired_bytes > RETIRED_BYTES || state.retired.len() > MOST_RETIRED
        };
        // Addresses that cannot be unreserved now are tried again with the next ones.
        let _ = self.unreserve_oldest(is_too_much);
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
            let allowed = self.driver.set_access(address, bytes - self.granule_bytes, &[peer]);
            // A reservation freed meanwhile needs no access.
            let is_live = self.state.lock().live.values().any(|live| live.address == address);
            if is_live {
                allowed?;
            }
        }
        Ok(())
    }

    fn ordinal(&self) -> DeviceOrdinal {
        self.driver.ordinal()
    }

    fn name(&self) -> String {
        self.driver.name()
    }

    fn identity(&self) -> Option<Identity> {
        self.driver.identity()
    }

    fn usage(&self) -> Usage {
        self.driver.usage()
    }

    fn clock_ns(&self) -> u64 {
        self.driver.clock_ns()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.driver.memory_info()
    }

    fn granularity(&self, options: HandleOptions) -> Result<u64> {
        self.driver.granularity(options)
    }

    fn recommended_granularity(&self, options: HandleOptions) -> Result<u64> {
        self.driver.recommended_granularity(options)
    }

    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        self.driver.reserve(bytes, alignment_bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.driver.unreserve(address, bytes)
    }

    fn create(&self, bytes: u64, options: HandleOptions) -> Result<MemoryHandle> {
        self.driver.create(bytes, options)
    }

    fn release(&self, handle: MemoryHandle) -> Result<()> {
        self.driver.release(handle)
    }

    fn map(&self, address: u64, bytes: u64, handle: MemoryHandle) -> Result<()> {
        self.driver.map(address, bytes, handle)
    }

    fn set_access(&self, address: u64, bytes: u64, peers: &[DeviceOrdinal]) -> Result<()> {
        self.driver.set_access(address, bytes, peers)
    }

    fn can_access_peer(&self, peer: DeviceOrdinal) -> Result<bool> {
        self.driver.can_access_peer(peer)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.driver.unmap(address, bytes)
    }

    fn event_create(&self) -> Result<Event> {
        self.driver.event_create()
    }

    fn event_destroy(&self, event: Event) -> Result<()> {
        self.driver.event_destroy(event)
    }

    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()> {
        self.driver.event_record(event, stream)
    }

    fn event_query(&self, event: Event) -> Result<bool> {
        self.driver.event_query(event)
    }

    fn event_synchronize(&self, event: Event) -> Result<()> {
        self.driver.event_synchronize(event)
    }

    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()> {
        self.driver.stream_wait(stream, event)
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        self.driver.stream_query(stream)
    }

    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.driver.stream_is_capturing(stream)
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        self.driver.stream_id(stream)
    }

    fn context(&self) -> ContextId {
        self.driver.context()
    }

    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        self.driver.other_context_of(stream)
    }

    fn is_in_use(&self) -> Result<bool> {
        self.driver.is_in_use()
    }

    fn synchronize(&self) -> Result<()> {
        self.driver.synchronize()
    }

    fn host_allocate(&self, bytes: u64) -> Result<u64> {
        self.driver.host_allocate(bytes)
    }

    fn host_free(&self, address: u64) -> Result<()> {
        self.driver.host_free(address)
    }

    fn host_register(&self, address: u64, bytes: u64) -> Result<()> {
        self.driver.host_register(address, bytes)
    }

    fn host_unregister(&self, address: u64) -> Result<()> {
        self.driver.host_unregister(address)
    }

    fn copy_to_host(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        self.driver.copy_to_host(host_address, device_address, bytes)
    }

    fn copy_to_device(&self, device_address: u64, host_address: u64, bytes: u64) -> Result<()> {
        self.driver.copy_to_device(device_address, host_address, bytes)
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        self.driver.fill(address, bytes, value, stream)
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        self.driver.find_other(address, bytes, value)
    }
}

#[cfg(test)]
mod tests {
    use simgpu::{Config, Machine, StoreKind, Target, Times, Work};

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
        machine.touch(0, 0xA, Work::write(address, bytes, "test")).unwrap();
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
        // A handle that the driver does not release is tried again.
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
