//! The calls of a machine, a family of them a file: each is a method of `Machine`, and what it
//! needs of the state is a method of `State`.

mod allocation;
mod capture;
mod contents;
mod context;
mod event;
mod fault;
mod host_memory;
mod instruments;
mod judge;
mod lookup;
mod managed;
mod sharing;
mod stream;
mod stream_names;
mod validate;
mod virtual_memory;

pub use capture::exchange_thread_capture_mode;
pub use fault::Faults;
pub use instruments::Census;
pub use lookup::{AddressRange, MemoryInfo};
pub use managed::Advice;
pub use sharing::IpcHandle;
pub use stream::Mark;
