//! Managed memory, by the driver.

use std::ffi::c_int;

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::scope::{check, require};
use crate::base::StreamHandle;
use crate::driver::{Advice, Call, Location, Managed, Result};

/// `CU_MEM_ATTACH_GLOBAL`: any stream of any device may use the memory.
const ATTACH_GLOBAL: u32 = 1;
/// `CU_DEVICE_CPU`.
const HOST: c_int = -1;

// SAFETY of the calls below: as for the device's other calls. Ranges are checked by the driver.
impl Managed for CudaDevice {
    fn has_managed(&self) -> Result<bool> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as CONCURRENT;
        let call = Call::AllocateManaged;
        let attribute = require(self.api.device_attribute, call)?;
        let is_there = self.api.managed_allocate.is_some();
        let mut value = 0;
        self.inside(call, |context| {
            // SAFETY: see the head of this implementation.
            check(call, unsafe { attribute(&mut value, CONCURRENT, context.device) })
        })?;
        Ok(is_there && value != 0)
    }

    fn allocate_managed(&self, bytes: u64) -> Result<u64> {
        let allocate = require(self.api.managed_allocate, Call::AllocateManaged)?;
        let mut address = 0;
        // SAFETY: see the head of this implementation.
        self.call(Call::AllocateManaged, || unsafe {
            allocate(&mut address, bytes as usize, ATTACH_GLOBAL)
        })?;
        Ok(address)
    }

    fn advise(&self, address: u64, bytes: u64, advice: Advice, location: Location) -> Result<()> {
        let advise = require(self.api.managed_advise, Call::Advise)?;
        let device = self.location(location)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Advise, || unsafe {
            advise(address, bytes as usize, number_of(advice), device)
        })
    }

    fn prefetch(
        &self,
        address: u64,
        bytes: u64,
        location: Location,
        stream: StreamHandle,
    ) -> Result<()> {
        let prefetch = require(self.api.managed_prefetch, Call::Prefetch)?;
        let device = self.location(location)?;
        // SAFETY: see the head of this implementation. Under this name the driver keeps the
        // function of CUDA 8, whose destination is a device; CUDA 13's has another name.
        self.call(Call::Prefetch, || unsafe {
            prefetch(address, bytes as usize, device, stream.0 as sys::CUstream)
        })
    }
}

impl CudaDevice {
    /// The driver's name for a location.
    fn location(&self, location: Location) -> Result<sys::CUdevice> {
        match location {
            Location::Host => Ok(HOST),
            Location::Device(ordinal) => self.device(ordinal, Call::Advise),
        }
    }
}

/// `CUmem_advise`.
fn number_of(advice: Advice) -> u32 {
    match advice {
        Advice::ReadMostly(true) => 1,
        Advice::ReadMostly(false) => 2,
        Advice::PreferredLocation(true) => 3,
        Advice::PreferredLocation(false) => 4,
        Advice::AccessedBy(true) => 5,
        Advice::AccessedBy(false) => 6,
    }
}
