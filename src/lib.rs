//! Genesis: a GPU memory allocator in a shared library, `libgenesis.so`.
//!
//! The layers, from the C boundary down; imports go down the list only, and a test reads it:
//!
//! | module | what it is | uses |
//! |---|---|---|
//! | [`ffi`] | the C boundary: converts arguments, catches panics | instance, callsite, process, heap, observe, driver, config, base |
//! | `instance` | the library in one process: its heap, the host heaps, its files | callsite, process, heap, observe, driver, config, base |
//! | `callsite` | where in the program a call was made: stacks of native code and Python | process, observe, config, base |
//! | `process` | forks, threads and exit of the process; loaded shared objects | base |
//! | [`heap`] | the allocator: request in, block out; the ladder when memory is short | all below |
//! | `strategy` | where a block goes | memory, config, base |
//! | `order` | when a freed block may be used again | memory, driver, base |
//! | `memory` | segments, blocks, and the directory that finds them | observe, driver, base |
//! | [`observe`] | counters, statistics, the log, the stream of events and who takes them in | driver, config, base |
//! | [`driver`] | the device: one trait, and what implements it | config, base |
//! | [`config`] | the one option table, the environment | base |
//! | [`base`] | sizes, identifiers, errors, locks | nothing |
//!
//! The rlib exists for the project's own tests and tools; the stable interface is the C one.
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
