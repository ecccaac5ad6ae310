//! Devices that may use each other's memory.
//!
//! Memory that the driver allocates is a peer's as soon as peer access is enabled; memory that it
//! maps, as Genesis's mostly is, has access rights of its own. So when a program enables access,
//! Genesis is told, for what it holds and what will come.
//!
//! Access to a device's default pool is a matter of its own with CUDA; Genesis has one memory for
//! both ways to allocate, and access is given to all of it then: by Genesis under Elastic, by the
//! driver under the other strategies, whose memory the driver allocates.

use std::ffi::{c_int, c_uint};

use crate::call::Level;
use crate::device::{self, Device};
use crate::driver_api::{SUCCESS, driver};
use crate::memory::{Order, device_for};
use crate::next::real;
use crate::{inside, opening};

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, and its like of the runtime's.
const ALREADY_ENABLED: c_int = 704;
/// `CU_MEM_LOCATION_TYPE_DEVICE`, and its like of the runtime's.
const DEVICE: c_int = 1;

/// `CUmemAccessDesc`, and its like of the runtime's.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    place: c_int,
    ordinal: c_int,
    flags: c_int,
}

/// Notes the driver's answer to the current device's wish to use the memory of device `owner`.
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

/// Has the driver let device `user` use what it allocates on device `owner`.
fn enable_in_driver(owner: c_int, user: c_int) {
    let Some(driver) = driver() else { return };
    if let (Some(owner), Some(user)) = (driver.primary_context(owner), driver.primary_context(user))
    {
        driver.enable_peer(user, owner);
    }
}

/// Notes the driver's answer to the wish that devices may use the memory of `pool`.
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
