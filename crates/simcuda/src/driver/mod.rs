//! The driver API: CUDA's own symbols; each function is a translation.
//!
//! Signatures are those of `cuda.h` with handles as integers: devices as `c_int`, streams as
//! `usize`, everything else that is opaque as `u64` or `usize`. Outputs are written on success
//! only. What is not here is absent from the library, and `cuGetProcAddress` prints its name.
//!
//! SAFETY of the whole module: every pointer is an argument of a C function, and is null or
//! valid for what the function does with it by `cuda.h`; `put` and `put_if` check for null.

mod context;
mod copies;
mod device;
mod entry;
mod event;
mod graph;
mod logs;
pub(crate) mod managed;
mod memory;
mod module;
mod pool;
mod sharing;
mod stream;
mod virtual_memory;

pub(crate) use device::put_text;
pub(crate) use entry::{Lookup, look_up};
pub(crate) use event::create_event;
pub(crate) use graph::put_nodes;
pub(crate) use pool::{get_attribute as get_pool_attribute, set_attribute as set_pool_attribute};
pub(crate) use sharing::Handle;
