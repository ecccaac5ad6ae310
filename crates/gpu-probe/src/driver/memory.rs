//! Memory: plain, virtual and of the host.

use std::ffi::c_void;

use genesis::base::DeviceOrdinal;
use genesis::driver::HandleOptions;
use genesis::driver::cuda::{self, sys};

use super::{Answer, Driver, Stream, call};

impl Driver {
    /// Free and total memory, in bytes.
    pub(crate) fn memory_info(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&mut address, bytes as usize))?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Answer {
        call!(self, cuMemFree_v2(address))
    }

    /// Managed memory, of every stream.
    pub(crate) fn managed_allocate(&self, bytes: u64) -> Answer<u64> {
        const ATTACH_GLOBAL: u32 = 1;
        let mut address = 0;
        call!(self, cuMemAllocManaged(&mut address, bytes as usize, ATTACH_GLOBAL))?;
        Ok(address)
    }

    /// Tells that managed memory is best on a device.
    pub(crate) fn managed_prefer(&self, address: u64, bytes: u64, device: i32) -> Answer {
        const SET_PREFERRED_LOCATION: i32 = 3;
        call!(self, cuMemAdvise(address, bytes as usize, SET_PREFERRED_LOCATION, device))
    }

    /// Enqueues bringing managed memory to a device, or to the host (-1).
    pub(crate) fn managed_prefetch(
        &self,
        address: u64,
        bytes: u64,
        device: i32,
        stream: Stream,
    ) -> Answer {
        call!(self, cuMemPrefetchAsync(address, bytes as usize, device, stream.0))
    }

    /// Start and length of the allocation that `address` is in.
    pub(crate) fn address_range(&self, address: u64) -> Answer<(u64, u64)> {
        let (mut base, mut bytes) = (0, 0);
        call!(self, cuMemGetAddressRange_v2(&mut base, &mut bytes, address))?;
        Ok((base, bytes as u64))
    }

    /// Page-locked memory of the host.
    pub(crate) fn host_allocate(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAllocHost_v2(&mut address, bytes as usize))?;
        Ok(address)
    }

    pub(crate) fn host_free(&self, address: u64) -> Answer {
        call!(self, cuMemFreeHost(address))
    }

    /// Locks pages of this process for the device.
    pub(crate) fn host_register(&self, address: u64, bytes: u64) -> Answer {
        call!(self, cuMemHostRegister_v2(address, bytes as usize, 0))
    }

    pub(crate) fn host_unregister(&self, address: u64) -> Answer {
        call!(self, cuMemHostUnregister(address))
    }

    /// The granularity of physical memory, in bytes: the least, or the recommended one.
    pub(crate) fn granularity(&self, recommended: bool) -> Answer<u64> {
        let mut bytes = 0;
        let properties = self.properties();
        let which = i32::from(recommended);
        call!(self, cuMemGetAllocationGranularity(&mut bytes, &properties, which))?;
        Ok(bytes as u64)
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        call!(self, cuMemAddressReserve(&mut address, bytes as usize, 0, 0, 0))?;
        Ok(address)
    }

    pub(crate) fn unreserve(&self, address: u64, bytes: u64) -> Answer {
        call!(self, cuMemAddressFree(address, bytes as usize))
    }

    /// Physical memory, mapped nowhere.
    pub(crate) fn create(&self, bytes: u64) -> Answer<u64> {
        let mut handle = 0;
        let properties = self.properties();
        call!(self, cuMemCreate(&mut handle, bytes as usize, &properties, 0))?;
        Ok(handle)
    }

    pub(crate) fn release(&self, handle: u64) -> Answer {
        call!(self, cuMemRelease(handle))
    }

    /// Maps `bytes` of a handle, from `offset_bytes` in it on.
    pub(crate) fn map_at(
        &self,
        address: u64,
        bytes: u64,
        offset_bytes: u64,
        handle: u64,
    ) -> Answer {
        call!(self, cuMemMap(address, bytes as usize, offset_bytes as usize, handle, 0))
    }

    pub(crate) fn map(&self, address: u64, bytes: u64, handle: u64) -> Answer {
        self.map_at(address, bytes, 0, handle)
    }

    /// Lets the device read and write.
    pub(crate) fn set_access(&self, address: u64, bytes: u64) -> Answer {
        let access = cuda::access(self.ordinal());
        call!(self, cuMemSetAccess(address, bytes as usize, &access, 1))
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Answer {
        call!(self, cuMemUnmap(address, bytes as usize))
    }

    /// Enqueues filling `bytes`, a multiple of 4, with `value`.
    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u32, stream: Stream) -> Answer {
        call!(self, cuMemsetD32Async(address, value, bytes as usize / 4, stream.0))
    }

    /// Enqueues a copy within the device.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Answer {
        call!(self, cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream.0))
    }

    /// The words at `address`, after all earlier work on the legacy stream.
    pub(crate) fn read(&self, address: u64, words: usize) -> Answer<Vec<u32>> {
        let mut values = vec![0u32; words];
        let to: *mut c_void = values.as_mut_ptr().cast();
        call!(self, cuMemcpyDtoH_v2(to, address, words * 4))?;
        Ok(values)
    }

    /// Copies device memory into page-locked memory of the host, and waits for it.
    pub(crate) fn copy_to_host(&self, host: u64, address: u64, bytes: u64) -> Answer {
        call!(self, cuMemcpyDtoH_v2(host as *mut c_void, address, bytes as usize))
    }

    /// The other way round.
    pub(crate) fn copy_to_device(&self, address: u64, host: u64, bytes: u64) -> Answer {
        call!(self, cuMemcpyHtoD_v2(address, host as *const c_void, bytes as usize))
    }

    /// Enqueues copying device memory into page-locked memory of the host.
    pub(crate) fn enqueue_to_host(
        &self,
        host: u64,
        address: u64,
        bytes: u64,
        stream: Stream,
    ) -> Answer {
        call!(self, cuMemcpyDtoHAsync_v2(host, address, bytes as usize, stream.0))
    }

    /// The other way round.
    pub(crate) fn enqueue_to_device(
        &self,
        address: u64,
        host: u64,
        bytes: u64,
        stream: Stream,
    ) -> Answer {
        call!(self, cuMemcpyHtoDAsync_v2(address, host, bytes as usize, stream.0))
    }

    fn ordinal(&self) -> DeviceOrdinal {
        DeviceOrdinal(self.device.unsigned_abs())
    }

    /// Plain memory of the device, as Genesis asks for it, without RDMA.
    fn properties(&self) -> sys::CUmemAllocationProp {
        cuda::properties(self.ordinal(), HandleOptions::default())
    }
}
