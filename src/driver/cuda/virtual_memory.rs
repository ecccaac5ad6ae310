//! What a device can do with virtual memory, which is asked once.

use cudarc::driver::sys;
use cudarc::driver::sys::CUmemAllocationGranularity_flags as Granularity;

use super::device::{CudaDevice, VirtualMemory};
use super::properties::properties;
use super::scope::{check, require};
use crate::driver::{Call, Code, DriverError, HandleOptions, Result};

impl CudaDevice {
    /// What is known of virtual memory, found out at the first use. `NOT_SUPPORTED` on a device
    /// without it.
    fn virtual_memory(&self) -> Result<VirtualMemory> {
        self.virtual_memory
            .get_or_try_init(|| self.inside(Call::Create, |context| self.examine(context.device)))
            .copied()
    }

    /// Asks the driver what [`Self::virtual_memory`] keeps.
    fn examine(&self, device: sys::CUdevice) -> Result<VirtualMemory> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED as RDMA,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as SUPPORTED,
        };
        let call = Call::Create;
        let attribute = require(self.api.device_attribute, call)?;
        require(self.api.granularity, call)?;
        let ask = |which| {
            let mut value = 0;
            // SAFETY: `device` is the driver's own and `value` is live.
            check(call, unsafe { attribute(&mut value, which, device) }).map(|()| value != 0)
        };
        if !ask(SUPPORTED)? {
            return Err(DriverError { call, code: Code::NOT_SUPPORTED });
        }
        // A driver older than the attribute returns an invalid value.
        let rdma = match ask(RDMA) {
            Err(error) if error.code == Code::INVALID_VALUE => false,
            answer => answer?,
        };
        Ok(VirtualMemory { rdma })
    }

    /// The properties for `options`, on a device with virtual memory. RDMA without the device's
    /// support is refused here, because no document defines it; handle types by the driver.
    pub(super) fn properties(&self, options: HandleOptions) -> Result<sys::CUmemAllocationProp> {
        let virtual_memory = self.virtual_memory()?;
        if options.rdma && !virtual_memory.rdma {
            return Err(DriverError { call: Call::Create, code: Code::NOT_SUPPORTED });
        }
        Ok(properties(self.ordinal, options))
    }

    pub(super) fn ask_granularity(
        &self,
        options: HandleOptions,
        which: Granularity,
    ) -> Result<u64> {
        let call = Call::Create;
        let granularity = require(self.api.granularity, call)?;
        let properties = self.properties(options)?;
        let mut bytes = 0;
        self.inside(call, |_| {
            // SAFETY: `properties` and `bytes` are live.
            check(call, unsafe { granularity(&mut bytes, &properties, which) })
        })?;
        Ok(bytes as u64)
    }
}
