//! Access of other devices to a device's memory.

use std::ffi::c_int;

use super::{boundary, ordinal};
use crate::base::Status;
use crate::instance;

/// Lets work on device `peer` access all memory of `device`, present and future. Does nothing if it
/// may already, or if both are the same device. It cannot be undone.
///
/// Devices on which the library allocates get access to each other's memory automatically, and so
/// does a device whose primary context is active when more memory is mapped. This function is for a
/// device that only reads and was not in use by then.
///
/// Returns `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic, and if the driver
/// has no path from `peer` to `device`.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_peer_access_enable(device: c_int, peer: c_int) -> Status {
    boundary::status(|| instance::heap()?.enable_peer_access(ordinal(device)?, ordinal(peer)?))
}
