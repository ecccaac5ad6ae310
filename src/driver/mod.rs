//! The device: one trait that is the whole contract, and what implements it.
//!
//! [`cuda`] speaks to a real driver through its own loader; [`simulated`] to the crate
//! `simgpu`. Everything above this layer sees [`Device`] alone. [`open`] picks the backend.

pub mod cuda;
mod device;
mod platform;
pub mod simulated;

pub use device::{Call, Code, Device, DriverError, Event, MemoryHandle, MemoryInfo, Result, Usage};
pub use platform::{Backend, Platform, open};
