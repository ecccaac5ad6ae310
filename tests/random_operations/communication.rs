//! A worker's pools for NCCL, one on each device, and with whom their memory is registered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use genesis::base::size::MIB;
use genesis::base::{Backup, DeviceOrdinal};
use genesis::heap::{PoolOptions, Registrar};

use super::{Live, Worker};

/// The most that is reserved for the pool of a device: it keeps what it has.
const LIMIT_BYTES: u64 = 24 * MIB;

/// What is registered: start → size. Nothing is, once nobody knows the book.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: Mutex<BTreeMap<u64, u64>>,
}

impl Registrar for Book {
    fn register(&self, address: u64, bytes: u64) -> bool {
        let mut entries = self.entries.lock().unwrap();
        let before = entries.range(..address + bytes).next_back();
        assert!(
            before.is_none_or(|(start, bytes)| start + bytes <= address),
            "{address:#x} is registered already"
        );
        entries.insert(address, bytes);
        true
    }

    fn deregister(&self, address: u64, bytes: u64) {
        let before = self.entries.lock().unwrap().remove(&address);
        assert_eq!(before, Some(bytes), "{address:#x} is not registered");
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        let entries = self.entries.get_mut().map_or(0, |entries| entries.len());
        assert!(entries == 0 || std::thread::panicking(), "{entries} stay registered");
    }
}

impl Worker {
    pub(super) fn create_communication_pool(&self, device: DeviceOrdinal) {
        let (heap, pool) = (&self.rig.heap, self.communication_pool);
        let registrar: Arc<dyn Registrar> = self.book.clone();
        let registrar = Some(registrar);
        let options = PoolOptions { communicates: true, registrar, ..PoolOptions::default() };
        heap.create_pool(device, pool, options).unwrap();
        heap.set_pool_limit(device, pool, Some(LIMIT_BYTES)).unwrap();
        heap.set_pool_tag(device, pool, &self.tag, Backup::Pageable).unwrap();
    }

    /// What is there of the pools is registered, and what is paused is not.
    pub(super) fn check_registered(&self) {
        let entries = self.book.entries.lock().unwrap();
        let is_there = |live: &Live| entries.get(&live.address) == Some(&live.allocated_bytes);
        for live in self.live.iter().filter(|live| live.is_registered) {
            assert!(self.meets_faults || is_there(live) != live.is_paused, "{live:?}");
        }
    }
}
