//! A backend and its devices.

use std::sync::Arc;

use super::Device;

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
    /// What to tell the user about the choice, if anything.
    pub notice: Option<String>,
}
