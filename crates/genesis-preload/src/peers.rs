//! Devices that may use each other's memory.
//!
//! Memory that the driver allocates can be used by a peer as soon as peer access is enabled. Memory
//! that it maps, as most of Genesis's is, has access rights of its own. So when a program enables
//! access, Genesis is told, and extends it to the memory that it holds and will hold.
//!
//! In CUDA, access to a device's default memory pool is granted apart from that. Genesis has one
//! memory for both ways to allocate, so a grant for the pool is a grant for all of it: by Genesis
//! under Elastic, by the driver under the other strategies, whose memory the driver allocates.

use std::ffi::{c_int, c_uint};

use crate::call::Level;
use crate::device::{self, Device};
use crate::driver_api::{SUCCESS, driver};
use crate::memory::{Order, device_for};
use crate::next::real;
use crate::{inside, opening};

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, and the same of the runtime.
const ALREADY_ENABLED: c_int = 704;
/// `CU_MEM_LOCATION_TYPE_DEVICE`, and the same of the runtime.
const DEVICE: c_int = 1;

/// `CUmemAccessDesc`, and the same of the runtime.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    place: c_int,
    ordinal: c_int,
    flags: c_int,
}

/// The driver has answered `status` when asked to let the current device use device `owner`.
fn enabled(level: Level, owner: Option<c_int>, status: c_int) -> c_int {
    if (status == SUCCESS || status == ALREADY_ENABLED)
        && !inside::is_inside()
        && let Some(user) = device_for(level, Order::Device)
        && let (Some(owner), Some(genesis)) = (owner, opening::genesis())
    {
        genesis.enable_peer(owner, user.ordinal());
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    let status = real!(cudaDeviceEnablePeerAccess(peer, flags));
    enabled(Level::Runtime, Some(peer), status)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) -> c_int {
    let status = real!(cuCtxEnablePeerAccess(peer, flags));
    enabled(Level::Driver, device::with_context(peer).map(Device::ordinal), status)
}

/// Has the driver let device `user` use the memory that it allocates on device `owner`.
fn enable_in_driver(owner: c_int, user: c_int) {
    let Some(driver) = driver() else { return };
    if let (Some(owner), Some(user)) = (driver.primary_context(owner), driver.primary_context(user))
    {
        driver.enable_peer(user, owner);
    }
}

/// The driver has answered `status` when asked to let the devices in `list` use memory pool `pool`.
///
/// # Safety
/// `list` has `count` elements.
unsafe fn set_access(pool: usize, list: *const Access, count: usize, status: c_int) -> c_int {
    if status == SUCCESS
        && !inside::is_inside()
        && let (Some(owner), Some(genesis)) = (device::with_pool(pool), opening::genesis())
    {
        for index in 0..count {
            // SAFETY: by this function's contract, and CUDA has read it.
            let Access { place, ordinal, flags } = unsafe { *list.add(index) };
            let is_granted = place == DEVICE && flags != 0;
            if is_granted && !genesis.enable_peer(owner.ordinal(), ordinal) {
                enable_in_driver(owner.ordinal(), ordinal);
            }
        }
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMemPoolSetAccess(
    pool: usize,
    list: *const Access,
    count: usize,
) -> c_int {
    let status = real!(cudaMemPoolSetAccess(pool, list, count));
    // SAFETY: CUDA's own contract.
    unsafe { set_access(pool, list, count, status) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemPoolSetAccess(
    pool: usize,
    list: *const Access,
    count: usize,
) -> c_int {
    let status = real!(cuMemPoolSetAccess(pool, list, count));
    // SAFETY: CUDA's own contract.
    unsafe { set_access(pool, list, count, status) }
}
