//! The part of the device contract that concerns managed memory: memory whose pages move between
//! the device and the host, so that a program can use more of it than the device has.
//!
//! The rules are those of CUDA's driver API manual on `cuMemAllocManaged`, `cuMemAdvise` and
//! `cuMemPrefetchAsync`. A device without it needs none of these methods: each then returns
//! `NOT_SUPPORTED`.

use super::call::{Call, Code, DriverError, Result};
use crate::base::{DeviceOrdinal, StreamHandle};

/// Where pages of managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the host's memory.
    Host,
    /// In a device's.
    Device(DeviceOrdinal),
}

/// What a program tells of managed memory. Each member says whether it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It is mostly read: whoever reads it may get a copy.
    ReadMostly(bool),
    /// The location is where it should be.
    PreferredLocation(bool),
    /// The processor of the location uses it, and is to reach it wherever it is.
    AccessedBy(bool),
}

/// Managed memory of a device. Errors and threads are as for [`super::Device`].
pub trait Managed {
    /// Returns true if the device has managed memory that may be more than the device has: its
    /// pages move when they are touched. The result is always the same. False on Windows, WSL and
    /// Tegra, and on devices before Pascal.
    fn has_managed(&self) -> Result<bool> {
        Ok(false)
    }

    /// `bytes` (not 0) of managed memory, as [`super::Device::allocate`] returns it, and freed alike.
    /// No memory is taken before it is touched or prefetched, so a device that is full is no error.
    fn allocate_managed(&self, _bytes: u64) -> Result<u64> {
        none(Call::AllocateManaged)
    }

    /// Advises on `[address, address + bytes)`, a part of one allocation. `INVALID_DEVICE` if the
    /// location is a device without such memory.
    fn advise(
        &self,
        _address: u64,
        _bytes: u64,
        _advice: Advice,
        _location: Location,
    ) -> Result<()> {
        none(Call::Advise)
    }

    /// Brings `[address, address + bytes)`, a part of one allocation, to `location`: work on `stream`,
    /// not waited for. What is never used there costs time, and other memory may be evicted for it.
    /// Not on a capturing stream: that would end the capture.
    fn prefetch(
        &self,
        _address: u64,
        _bytes: u64,
        _location: Location,
        _stream: StreamHandle,
    ) -> Result<()> {
        none(Call::Prefetch)
    }
}

fn none<T>(call: Call) -> Result<T> {
    Err(DriverError { call, code: Code::NOT_SUPPORTED })
}
