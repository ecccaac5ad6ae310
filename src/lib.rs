//! Genesis: a GPU memory allocator in a shared library, `libgenesis.so`.
//!
//! The layers, from the C boundary down. Imports go down the list only; a test reads it:
//!
//! | module | what it is | uses |
//! |---|---|---|
//! | [`ffi`] | the C boundary | instance, callsite, suballocation, process, heap, observe, driver, config, base |
//! | `instance` | heaps and files | callsite, suballocation, process, heap, observe, driver, config, base |
//! | `callsite` | where in the program a call was made | process, observe, config, base |
//! | [`suballocation`] | arenas, fixed-size pools and tiers, over blocks of a heap | base |
//! | `process` | forks, threads, exit, shared objects, messages to processes | base |
//! | [`heap`] | the allocator: request in, block out | all below |
//! | `strategy` | where a block goes | memory, config, base |
//! | `order` | when a freed block may be used again | memory, driver, base |
//! | `memory` | segments, blocks, and the directory that finds them | observe, driver, base |
//! | [`observe`] | statistics, the log, the stream of events | driver, config, base |
//! | [`driver`] | the device: one trait, and what implements it | config, base |
//! | [`config`] | the one option table, the environment | base |
//! | [`base`] | sizes, identifiers, errors, locks | nothing |
//!
//! The rlib is for the project's own tests and tools; the stable interface is the C one.
#![deny(unsafe_code)]

pub mod base;
mod callsite;
pub mod config;
pub mod driver;
pub mod ffi;
pub mod heap;
mod instance;
mod memory;
pub mod observe;
mod order;
mod process;
mod strategy;
pub mod suballocation;

#[cfg(feature = "ablations")]
pub use order::omission;
