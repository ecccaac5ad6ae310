//! The oracle: what must be true of live blocks, kept in the most naive way.

use std::collections::BTreeMap;
use std::sync::Mutex;

use genesis::base::DeviceOrdinal;

use crate::support::Rig;

/// Knows every live block of every thread.
#[derive(Debug)]
pub struct Oracle {
    devices: Vec<Mutex<Ledger>>,
}

/// What one device should say of itself.
#[derive(Clone, Debug, Default)]
struct Ledger {
    /// Start → end of each live block.
    live: BTreeMap<u64, u64>,
    requested_bytes: u64,
    allocated_bytes: u64,
    requested_peak_bytes: u64,
    allocated_peak_bytes: u64,
    requested_total_bytes: u64,
    allocations: u64,
    frees: u64,
    /// Of the live blocks, those that are paused: no memory is reserved for them.
    paused_bytes: u64,
}

impl Oracle {
    pub fn new(devices: usize) -> Self {
        Self { devices: (0..devices).map(|_| Mutex::default()).collect() }
    }

    /// A block was handed out: it must be aligned and overlap no other.
    pub fn hand_out(
        &self,
        device: usize,
        start: u64,
        end: u64,
        requested_bytes: u64,
    ) -> Result<(), String> {
        let mut ledger = self.devices[device].lock().unwrap();
        if start == 0 || !start.is_multiple_of(512) || end - start < requested_bytes {
            return Err(format!("{requested_bytes} bytes at [{start:#x}, {end:#x})"));
        }
        if let Some((&other, &other_end)) = ledger.live.range(..end).next_back()
            && other_end > start
        {
            let other = format!("[{other:#x}, {other_end:#x})");
            return Err(format!("[{start:#x}, {end:#x}) overlaps the live {other}"));
        }
        ledger.live.insert(start, end);
        ledger.allocations += 1;
        ledger.requested_bytes += requested_bytes;
        ledger.requested_total_bytes += requested_bytes;
        ledger.allocated_bytes += end - start;
        ledger.requested_peak_bytes = ledger.requested_peak_bytes.max(ledger.requested_bytes);
        ledger.allocated_peak_bytes = ledger.allocated_peak_bytes.max(ledger.allocated_bytes);
        Ok(())
    }

    /// A block is about to be freed.
    pub fn take_back(&self, device: usize, start: u64, requested_bytes: u64) {
        let mut ledger = self.devices[device].lock().unwrap();
        let end = ledger.live.remove(&start).expect("a live block");
        ledger.frees += 1;
        ledger.requested_bytes -= requested_bytes;
        ledger.allocated_bytes -= end - start;
    }

    /// Of the live blocks, so many bytes are paused from now on.
    pub fn pause(&self, device: usize, allocated_bytes: u64) {
        self.devices[device].lock().unwrap().paused_bytes += allocated_bytes;
    }

    /// So many bytes are not paused any more: resumed, or freed.
    pub fn resume(&self, device: usize, allocated_bytes: u64) {
        self.devices[device].lock().unwrap().paused_bytes -= allocated_bytes;
    }

    /// Compares levels and totals with what the heap says; nothing else may be going on.
    pub fn compare(&self, rig: &Rig) {
        for (index, ledger) in self.devices.iter().enumerate() {
            let ledger = ledger.lock().unwrap();
            let statistics = rig.heap.statistics(DeviceOrdinal(index as u32)).unwrap();
            let pending_bytes =
                statistics.active_bytes.current - statistics.allocated_bytes.current;
            assert_eq!(statistics.requested_bytes.current, ledger.requested_bytes);
            assert_eq!(statistics.requested_bytes.total, ledger.requested_total_bytes);
            assert_eq!(statistics.allocated_bytes.current, ledger.allocated_bytes);
            assert_eq!(statistics.allocations, ledger.allocations);
            assert_eq!(statistics.frees, ledger.frees);
            let held_bytes = statistics.reserved_bytes.current + ledger.paused_bytes;
            let known_bytes =
                ledger.allocated_bytes + pending_bytes + statistics.inactive_bytes.current;
            assert_eq!(held_bytes, known_bytes, "bytes held, and bytes known");
            assert!(statistics.largest_free_bytes <= statistics.free_bytes);
        }
    }

    /// Compares peaks, which are exact while one thread works alone.
    pub fn compare_peaks(&self, rig: &Rig) {
        for (index, ledger) in self.devices.iter().enumerate() {
            let ledger = ledger.lock().unwrap();
            let statistics = rig.heap.statistics(DeviceOrdinal(index as u32)).unwrap();
            assert_eq!(statistics.requested_bytes.peak, ledger.requested_peak_bytes);
            assert_eq!(statistics.allocated_bytes.peak, ledger.allocated_peak_bytes);
        }
    }
}
