//! A GPU's memory system in software.
//!
//! A [`Machine`] has devices with a capacity, memory allocated whole (`cuMemAlloc`) or by
//! virtual memory management (`cuMemCreate`, `cuMemMap` and their family), streams that advance
//! when told, events, waits and stream capture. It obeys the rules of NVIDIA's driver API
//! manual and returns CUDA's numbers; nothing here panics, and an error changes nothing.
//!
//! It is made for testing allocators, so it has instruments that a GPU lacks:
//! - a race detector with vector clocks ([`Machine::touch`], [`Machine::take_violations`]);
//! - scripted faults ([`Machine::faults`]), and a place before each call at which other threads may go
//!   on ([`Machine::before_each_call`]);
//! - counts of calls and virtual driver time by published prices ([`Machine::usage`],
//!   [`Prices`]);
//! - an inventory ([`Machine::census`]) and a check of itself ([`Machine::validate`]).
//!
//! ```
//! use simgpu::{Config, Machine, StoreKind, Work};
//!
//! let mut config = Config::new(StoreKind::AddressesOnly, 1, 80 << 30);
//! config.detect_races = true;
//! let machine = Machine::new(config)?;
//! let address = machine.allocate(0, 1 << 20)?;
//! let (producer, consumer) = (0x10, 0x20); // any handle names a stream
//! machine.touch(0, producer, Work::write(address, 1 << 20, "fill"))?;
//! machine.touch(0, consumer, Work::read(address, 1 << 20, "use"))?;
//! assert_eq!(machine.take_violations().len(), 1); // nothing orders the two
//! # Ok::<(), simgpu::Code>(())
//! ```
//!
//! The files, from the ground up:
//!
//! | files | what |
//! |---|---|
//! | `code`, `call`, `cost`, `prices`, `usage` | codes, calls, their prices, what was asked |
//! | `config`, `store` | what a machine is made of; bytes or none behind an address |
//! | `touch`, `violation`, `clock` | the detector's words |
//! | `tables` | what a machine keeps, each table by itself (also `slab`, `ranges`) |
//! | `quiet`, `room` | calls without the lock; threads that found a queue full |
//! | `state`, `machine` | the tables together; the one lock around them |
//! | `calls` | the calls, a family of them a file |
//!
//! It is meant to be at least as strict as a real driver: where sources differ on what one
//! forbids, refuses or reuses, the stricter holds, and the rule's own file says which.
//!
//! Not modelled: kernels and other copies (only what they touch), pools of `cuMemAllocAsync`,
//! separate address spaces for further contexts, races between processes.

mod call;
mod calls;
mod clock;
mod code;
mod config;
mod cost;
mod machine;
mod prices;
mod quiet;
mod ranges;
mod room;
mod slab;
mod state;
mod store;
mod tables;
mod touch;
mod usage;
mod violation;

pub use call::Call;
pub use calls::exchange_thread_capture_mode;
pub use calls::{AddressRange, Advice, Census, Faults, IpcHandle, Mark, MemoryInfo};
pub use code::{Code, Result};
pub use config::{Config, DeviceConfig, HandleProperties, ManagedAccess, Progress, StoreKind};
pub use cost::{Cost, CostTable, Points, Tail};
pub use machine::Machine;
pub use prices::Prices;
pub use tables::{CaptureInfo, CaptureMode, Graph, STREAM_LEGACY, STREAM_PER_THREAD};
pub use tables::{Target, Times};
pub use touch::{Access, Touch, Work};
pub use usage::{HostWaits, Paging, Usage, thread_driver_nanoseconds};
pub use violation::Violation;
