//! Which backend is opened.

use super::{Backend, Platform, cuda, simulated};
use crate::base::{Result, Status};
use crate::config::{BackendChoice, Settings};

/// Opens the backend that `settings` ask for.
///
/// `Auto` takes CUDA if the machine has a driver library; if the library fails, that is an error,
/// never a fallback. Without a library it falls back to the host, with a notice.
pub fn open(settings: &Settings) -> Result<Platform> {
    match settings.backend {
        BackendChoice::Cuda => cuda::open(),
        BackendChoice::Host => simulated::open(Backend::Host, settings),
        BackendChoice::Sim => simulated::open(Backend::Sim, settings),
        BackendChoice::Auto => match cuda::open() {
            Err(error) if error.status == Status::DriverUnavailable && !cuda::is_present() => {
                let mut platform = simulated::open(Backend::Host, settings)?;
                platform.notice = Some(format!(
                    "no CUDA driver ({error}); using the simulated device in host memory \
                     (GENESIS_BACKEND=host)"
                ));
                Ok(platform)
            }
            opened => opened,
        },
    }
}
