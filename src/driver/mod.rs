//! The device: one trait that is the whole contract, and what implements it.
//!
//! [`cuda`] speaks to a real driver through its own loader; [`simulated`] to the crate
//! `simgpu`. Everything above this layer sees [`Device`] alone. [`open`] picks the backend;
//! [`Handles`] creates memory with as many of the wished-for options as a device can give;
//! [`guarded`] puts a device's allocations in front of pages that are not mapped; [`host`] is the
//! process's own memory in the shape of a device.

mod clock;
pub mod cuda;
mod device;
pub mod guarded;
mod handles;
pub mod host;
mod platform;
pub mod simulated;

pub use clock::ticks;
pub use device::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, MemoryHandle, MemoryInfo,
    Result, Shareable, Usage,
};
pub use handles::Handles;
pub use platform::{Backend, Platform, open};
