//! Other devices that may access a device's memory.

use std::ffi::c_int;

use super::{boundary, ordinal};
use crate::base::Status;
use crate::instance;

/// From now on work on device `peer` may access all memory of `device`: what is held, and what
/// will be. Where it may already, and for a device itself, it does nothing. It cannot be undone.
///
/// Devices on which the library allocates are given access to each other's memory by themselves,
/// and so is any whose primary context is active when more memory is mapped. This is for one that
/// only reads, and was not in use by then.
///
/// `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic, and where the driver knows
/// no way from `peer` to `device`.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_peer_access_enable(device: c_int, peer: c_int) -> Status {
    boundary::status(|| instance::heap()?.enable_peer_access(ordinal(device)?, ordinal(peer)?))
}
