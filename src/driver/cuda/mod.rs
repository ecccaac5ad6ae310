//! The real driver (being written).
use super::Platform;
use crate::base::{Error, Result, Status};

/// Opens the CUDA driver and counts its devices.
pub fn open() -> Result<Platform> {
    Err(Error::new(Status::DriverUnavailable, "libcuda.so.1 not found"))
}

/// Whether the machine has a driver library at all.
pub fn is_present() -> bool {
    false
}
