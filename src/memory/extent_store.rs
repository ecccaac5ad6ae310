//! The driver calls for extents, for one device: creates, maps, unmaps and releases them, and
//! records the result in the table (`memory::extents`).
//!
//! Every function here may call the driver, so the caller holds no lock. When a call returns,
//! the table shows what was done, also after a failure half way: a view that was made stays
//! in the table until it is unmapped, and an extent that the driver does not release *rests*:
//! it is kept without a home until it is needed or can be released.

use std::ops::Range;
use std::sync::Arc;

use super::communication::Communication;
use super::directory::is_representable;
use super::extents::{Extent, ExtentId, ExtentTable};
use super::ledger::{Ledger, Refusal};
use super::strays::LanesAstray;
use crate::base::lock::{Guard, Lock, rank};
use crate::base::size::SizeClass;
use crate::base::sync::OnceCell;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::base::{CachePadded, DeviceOrdinal};
use crate::driver::{
    self, Call, Code, Device, DriverError, HandleOptions, Handles, Priced, Prices,
};
use crate::observe::DeviceEvents;

/// The most devices that can be given access to one piece of memory.
const MOST_PEERS: usize = 64;

/// The extents of one device and their views.
#[derive(Debug)]
pub struct ExtentStore {
    driver: Arc<dyn Device>,
    handles: Handles,
    prices: Prices,
    extents: CachePadded<Lock<ExtentTable, { rank::DEVICE }>>,
    /// The table's sum of what rests.
    resting_bytes: Arc<AtomicU64>,
    /// The lanes from which the table's extents are astray.
    lanes_astray: Arc<LanesAstray>,
    /// The devices that may access everything mapped from now on.
    peers: Lock<Vec<DeviceOrdinal>, { rank::DEVICE }>,
    /// By ordinal: set for those that may also access everything mapped before.
    admitted: [OnceCell<()>; MOST_PEERS],
}

impl ExtentStore {
    /// The store of the device behind `driver`; it reports to `events`. Handles get those of the
    /// `wished` options that the driver supports. `None` without virtual memory management.
    pub fn open(
        driver: Arc<dyn Device>,
        wished: HandleOptions,
        events: DeviceEvents,
    ) -> driver::Result<Option<Self>> {
        let handles = match Handles::open(Arc::clone(&driver), wished) {
            Ok(handles) => handles,
            Err(error) if error.code == Code::NOT_SUPPORTED => return Ok(None),
            Err(error) => return Err(error),
        };
        let extents = ExtentTable::new(events);
        Ok(Some(Self {
            driver,
            handles,
            prices: Prices::default(),
            resting_bytes: Arc::clone(extents.resting_bytes()),
            lanes_astray: Arc::clone(extents.lanes_astray()),
            extents: CachePadded(Lock::new(extents)),
            peers: Lock::default(),
            admitted: [const { OnceCell::new() }; MOST_PEERS],
        }))
    }

    /// The granule: sizes of extents are multiples of it, in bytes.
    pub fn granule_bytes(&self) -> u64 {
        self.handles.granularity_bytes()
    }

    /// The options with which extents are created.
    pub fn options(&self) -> HandleOptions {
        self.handles.options()
    }

    /// What the driver charges, as far as it is known.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// The table of extents and views.
    pub fn extents(&self) -> Guard<'_, ExtentTable, { rank::DEVICE }> {
        self.extents.lock()
    }

    /// The bytes that rest: held, and in no lane.
    pub fn resting_bytes(&self) -> u64 {
        self.resting_bytes.load(Relaxed)
    }

    /// Returns true if extents may be astray from `lane` ([`ExtentTable::strays`]).
    pub fn may_have_strays(&self, lane: u32) -> bool {
        self.lanes_astray.may_have(lane)
    }

    /// Reserves `bytes` of address space, a multiple of the granule, aligned to `alignment_bytes`
    /// (0: to the granule).
    pub fn reserve(&self, bytes: u64, alignment_bytes: u64) -> driver::Result<u64> {
        let address = self.driver.reserve(bytes, alignment_bytes)?;
        if address == 0 || !is_representable(address) {
            // The address is useless whether or not the driver takes it back.
            let _ = self.driver.unreserve(address, bytes);
            return Err(DriverError { call: Call::Reserve, code: Code::NOT_SUPPORTED });
        }
        Ok(address)
    }

    /// Returns a whole reservation, in which nothing is mapped, to the driver.
    pub fn unreserve(&self, address: u64, bytes: u64) -> driver::Result<()> {
        self.driver.unreserve(address, bytes)
    }

    /// Returns an extent of `bytes` without a home, made for `communication` or not: a resting one
    /// of that size, or a new one.
    pub fn create(
        &self,
        ledger: &Ledger,
        (bytes, class): (u64, SizeClass),
        communication: Option<&Arc<Communication>>,
    ) -> Result<ExtentId, Refusal> {
        let woken = {
            let mut extents = self.extents.lock();
            let is_alike = |extent: &Extent| {
                let made_for = extent.communication.as_ref().map(Arc::as_ptr);
                extent.bytes == bytes && made_for == communication.map(Arc::as_ptr)
            };
            let fits = |id: &ExtentId| extents.get(*id).is_some_and(is_alike);
            let found = extents.resting().iter().copied().find(fits);
            found.filter(|&id| extents.wake(id))
        };
        if let Some(id) = woken {
            return Ok(id);
        }
        ledger.charge(bytes)?;
        let handles = communication.map_or(&self.handles, |made_for| made_for.handles());
        let create = || handles.create(bytes);
        match self.timed(Priced::Create, (bytes, 1), create) {
            Ok(handle) => {
                ledger.count(bytes, class, 0);
                let communication = communication.map(Arc::clone);
                Ok(self.extents.lock().add(handle, (bytes, class), communication))
            }
            Err(error) => {
                ledger.refund(bytes);
                Err(Refusal::Driver(error))
            }
        }
    }

    /// Releases an extent that has no view. On an error the extent rests.
    pub fn destroy(&self, ledger: &Ledger, id: ExtentId) -> driver::Result<()> {
        let Some((handle, bytes, class)) =
            self.extents.lock().get(id).map(|extent| (extent.handle, extent.bytes, extent.class))
        else {
            return Ok(());
        };
        let release = || self.driver.release(handle).map(|()| bytes);
        let timed = || self.timed(Priced::Release, (bytes, 1), release);
        let released = ledger.release(bytes, class, 0, timed);
        let mut extents = self.extents.lock();
        match released {
            Ok(()) => extents.remove(id),
            Err(_) => extents.rest(id),
        }
        released
    }

    /// Maps extents side by side from `address` in an area of `lane`, as accessible shadows. On
    /// an error everything is unmapped again. A view that the driver refuses to unmap stays a
    /// shadow, which may not be accessed and never becomes a home.
    pub fn map(&self, ids: &[ExtentId], lane: u32, address: u64) -> driver::Result<()> {
        let mut end = address;
        let mut mapped = Ok(());
        for &id in ids {
            let extent = self.extents.lock().get(id).map(|extent| (extent.handle, extent.bytes));
            let Some((handle, bytes)) = extent else { continue };
            let map = || self.driver.map(end, bytes, handle);
            mapped = self.timed(Priced::Map, (bytes, 1), map);
            if mapped.is_err() {
                break;
            }
            self.extents.lock().add_view(id, lane, end);
            end += bytes;
        }
        let size = (end - address, ids.len() as u64);
        let access = || self.allow_access(address, end - address);
        let mapped = mapped.and_then(|()| self.timed(Priced::SetAccess, size, access));
        let mapped = mapped.and_then(|()| self.register(address..end));
        if mapped.is_err() {
            let views: Vec<(u64, ExtentId)> = self.extents.lock().within(address..end).collect();
            for (start, id) in views {
                // A view that stays is unmapped when the extent is released.
                let _ = self.unmap(id, start);
            }
        }
        mapped
    }

    /// Lets this device and its peers access `[address, address + bytes)`, made up of whole views
    /// of one kind.
    pub fn allow_access(&self, address: u64, bytes: u64) -> driver::Result<()> {
        // Read after the views are in the table: a thread that adds a peer now finds them there.
        let mut peers = self.peers.lock().clone();
        if let Some(communication) = self.communication_at(address) {
            peers.extend(communication.peers());
            peers.sort_unstable();
            peers.dedup();
        }
        self.driver.set_access(address, bytes, &peers)
    }

    /// How the extent mapped at `address` was made, if others reach it by its address.
    fn communication_at(&self, address: u64) -> Option<Arc<Communication>> {
        let extents = self.extents.lock();
        extents.get(extents.at(address)?)?.communication.clone()
    }

    /// Tells those who reach memory by its address of the views in `range`. A view that is refused
    /// is unmapped; those before it are told of that as well.
    fn register(&self, range: Range<u64>) -> driver::Result<()> {
        let views: Vec<(u64, ExtentId)> = self.extents.lock().within(range).collect();
        for &(address, id) in &views {
            let bytes = self.extents.lock().get(id).map_or(0, |extent| extent.bytes);
            let Some(communication) = self.communication_at(address) else { continue };
            if !communication.register(address, bytes) {
                return Err(DriverError { call: Call::Map, code: Code::NOT_PERMITTED });
            }
            self.extents.lock().set_registered(id, true);
        }
        Ok(())
    }

    /// Unmaps the shadow of an extent at `address`. All work queued through it is complete.
    pub fn unmap(&self, id: ExtentId, address: u64) -> driver::Result<()> {
        let bytes = self.extents.lock().get(id).map_or(0, |extent| extent.bytes);
        let registered = self.extents.lock().set_registered(id, false);
        if let Some(communication) = &registered {
            communication.deregister(address, bytes);
        }
        // Out of the table first: everything in the table is mapped.
        let view = self.extents.lock().remove_view(id, address);
        let unmap = || self.driver.unmap(address, bytes);
        let unmapped = self.timed(Priced::Unmap, (bytes, 1), unmap);
        if let Some(view) = view {
            let mut extents = self.extents.lock();
            match unmapped {
                Ok(()) => extents.forget_view(id),
                Err(_) => extents.put_back_view(id, view),
            }
        }
        if let (Some(communication), Err(_)) = (registered, unmapped) {
            let is_back = communication.register(address, bytes);
            self.extents.lock().set_registered(id, is_back);
        }
        unmapped
    }

    /// Lets `peer` access everything mapped here, now and later; a second caller waits for the
    /// first. After an error `peer` gets no access to later mappings, and may have access to
    /// some of the present ones.
    pub fn add_peer(&self, peer: DeviceOrdinal) -> driver::Result<()> {
        let too_many = DriverError { call: Call::SetAccess, code: Code::INVALID_VALUE };
        let admitted = self.admitted.get(peer.index()).ok_or(too_many)?;
        let admit = || {
            self.peers.lock().push(peer);
            self.allow_everywhere(peer).inspect_err(|_| {
                self.peers.lock().retain(|&other| other != peer);
            })
        };
        admitted.get_or_try_init(admit).map(|_| ())
    }

    /// The devices that may access what is mapped.
    pub fn peers(&self) -> Vec<DeviceOrdinal> {
        self.peers.lock().clone()
    }

    /// Makes a call for (bytes, mappings), and times it as long as its price is not known.
    fn timed<T>(
        &self,
        priced: Priced,
        size: (u64, u64),
        call: impl FnOnce() -> driver::Result<T>,
    ) -> driver::Result<T> {
        self.prices.timed(&*self.driver, priced, size, call)
    }

    fn allow_everywhere(&self, peer: DeviceOrdinal) -> driver::Result<()> {
        let mut views: Vec<(u64, u64, ExtentId)> = Vec::new();
        for (id, extent) in self.extents.lock().iter() {
            views.extend(extent.views().map(|view| (view.address, extent.bytes, id)));
        }
        for (address, bytes, id) in views {
            if let Err(error) = self.driver.set_access(address, bytes, &[peer])
                && self.extents.lock().at(address) == Some(id)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "extent_store_tests.rs"]
mod tests;
