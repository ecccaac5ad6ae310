//! The device: one trait that is the whole contract, and what implements it.
//!
//! [`cuda`] calls a real driver through its own loader, [`simulated`] the crate `simgpu`.
//! Everything above this layer sees [`Device`] alone. [`open`] chooses the backend; [`Handles`]
//! creates memory with as many of the requested options as a device supports; [`Prices`] measures
//! what a driver charges for it; [`guarded`] puts a device's allocations before pages that are not
//! mapped; [`Managed`] is its managed memory; [`host`] is the process's own memory as a device, and [`Pages`] are pages of it, near the
//! device if [`Node`] is known.

mod call;
mod clock;
pub mod cuda;
mod device;
pub mod guarded;
mod handles;
pub mod host;
mod managed;
mod numa;
mod open;
mod pages;
mod platform;
mod prices;
mod sharing;
pub mod simulated;

pub use call::{Call, Code, DriverError, MemoryHandle, Result};
pub use clock::ticks;
pub use device::{ContextId, Device, Event, HandleOptions, Identity, MemoryInfo, Shareable, Usage};
pub use handles::Handles;
pub use managed::{Advice, Location, Managed};
pub use numa::Node;
pub use open::open;
pub use pages::Pages;
pub use platform::{Backend, Platform};
pub use prices::{Priced, Prices};
pub use sharing::{SegmentHandle, Sharing};
