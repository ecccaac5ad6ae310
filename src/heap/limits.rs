//! What the user allows the heap to hold, and how it may change while the heap is in use.

use super::Heap;
use crate::base::{DeviceOrdinal, Error, Result};
use crate::config::Settings;
use crate::driver::MemoryInfo;

impl Heap {
    /// Free and total memory of `device` as a caller may count on it: what the driver and the
    /// limits in force allow, with cached memory counted as free.
    pub fn memory_info(&self, device: DeviceOrdinal) -> Result<MemoryInfo> {
        let device = self.device(device)?;
        let info = device.driver.memory_info()?;
        let usable_bytes = device.usable_bytes();
        let room_bytes = device.supply.room_bytes();
        let lanes = self.lanes.of(device.ordinal);
        let cached_bytes: u64 = lanes.map(|lane| lane.counters.inactive_bytes()).sum();
        let free_bytes = info.free_bytes.min(room_bytes).saturating_add(cached_bytes);
        Ok(MemoryInfo { free_bytes: free_bytes.min(usable_bytes), total_bytes: info.total_bytes })
    }

    /// The part of the memory of `device` that may be reserved.
    pub fn memory_fraction(&self, device: DeviceOrdinal) -> Result<f64> {
        Ok(self.device(device)?.memory_fraction())
    }

    /// Changes the part of the memory of `device` that may be reserved, in (0, 1]. Memory
    /// held already stays; cached memory above the limit is released when more is needed.
    pub fn set_memory_fraction(&self, device: DeviceOrdinal, fraction: f64) -> Result<()> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Error::invalid_argument(format!(
                "a memory fraction of {fraction} is not in (0, 1]"
            )));
        }
        self.device(device)?.set_memory_fraction(fraction);
        Ok(())
    }

    /// The most that may be reserved on `device`, in bytes, if it is limited.
    pub fn memory_limit(&self, device: DeviceOrdinal) -> Result<Option<u64>> {
        Ok(self.device(device)?.memory_limit())
    }

    /// Changes the most that may be reserved on `device`, in bytes, like
    /// [`Self::set_memory_fraction`].
    pub fn set_memory_limit(&self, device: DeviceOrdinal, bytes: Option<u64>) -> Result<()> {
        self.device(device)?.set_memory_limit(bytes);
        Ok(())
    }

    /// The most that `device` keeps cached, in bytes, if it is limited.
    pub fn cache_limit(&self, device: DeviceOrdinal) -> Result<Option<u64>> {
        let bytes = self.device(device)?.cache_limit_bytes();
        Ok((bytes != u64::MAX).then_some(bytes))
    }

    /// Changes the most that `device` keeps cached, in bytes, and releases what is above it.
    pub fn set_cache_limit(&self, device: DeviceOrdinal, bytes: Option<u64>) -> Result<()> {
        let device = self.device(device)?;
        device.set_cache_limit_bytes(bytes.unwrap_or(u64::MAX));
        self.settle(device);
        Ok(())
    }

    /// Takes over what differs between `settings` and those in force, of what may change at
    /// run time: on all devices, whatever was set for one of them.
    pub fn apply(&self, settings: &Settings) {
        let old = std::mem::replace(&mut *self.settings.lock(), settings.clone());
        self.policy.set(settings);
        self.apply_debugging(settings);
        self.log.set_level(settings.log);
        for device in self.devices.iter().filter_map(|slot| slot.heap.get()) {
            if old.memory_fraction != settings.memory_fraction {
                device.set_memory_fraction(settings.memory_fraction);
            }
            if old.memory_limit_bytes != settings.memory_limit_bytes {
                device.set_memory_limit(settings.memory_limit_bytes);
            }
            if old.cache_size_bytes != settings.cache_size_bytes {
                device.set_cache_limit_bytes(settings.cache_size_bytes.unwrap_or(u64::MAX));
                self.settle(device);
            }
        }
    }
}
