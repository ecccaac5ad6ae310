//! The simulated device (being written).
use super::{Backend, Platform};
use crate::base::{Error, Result, Status};
use crate::config::Settings;

/// Opens simulated devices.
pub fn open(_backend: Backend, _settings: &Settings) -> Result<Platform> {
    Err(Error::new(Status::DriverUnavailable, "not built yet"))
}
