//! Which backend there is, and its devices.

use std::sync::Arc;

use super::{Device, cuda, simulated};
use crate::base::{Result, Status};
use crate::config::{BackendChoice, Settings};

/// The backend in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A real CUDA driver.
    Cuda,
    /// Simulated, with real bytes in host memory.
    Host,
    /// Simulated, with addresses only.
    Sim,
}

impl Backend {
    /// The value of `GENESIS_BACKEND` that asks for this backend.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Host => "host",
            Self::Sim => "sim",
        }
    }
}

/// A backend and its devices, by ordinal.
#[derive(Debug)]
pub struct Platform {
    /// Which backend it is.
    pub backend: Backend,
    /// The devices; index = ordinal.
    pub devices: Vec<Arc<dyn Device>>,
    /// What the user should be told about the choice, if anything.
    pub notice: Option<String>,
}

/// Opens the backend that `settings` ask for.
///
/// `Auto` takes CUDA where the machine has a driver library: one that is there but fails is
/// an error, never a fallback. Where there is none it falls back to the host, with a notice.
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
