//! A GPU's memory system in software.
//!
//! A [`Machine`] has devices with a capacity, memory allocated whole (`cuMemAlloc`) or by
//! virtual memory management (`cuMemCreate`, `cuMemMap` and their family), streams that advance
//! when told, events, waits and stream capture. It obeys the rules of NVIDIA's driver API
//! manual and answers with CUDA's numbers; nothing here panics, and an error changes nothing.
//!
//! It is made for testing allocators, so it carries instruments that a GPU lacks:
//! - a race detector with vector clocks ([`Machine::touch`], [`Machine::take_violations`]);
//! - scripted faults ([`Machine::faults`]);
//! - counts of calls and virtual driver time by published prices ([`Machine::usage`],
//!   [`Prices`]);
//! - an inventory ([`Machine::census`]) and a check of itself ([`Machine::validate`]).
//!
//! ```
//! use simgpu::{Access, Config, Machine, StoreKind};
//!
//! let mut config = Config::new(StoreKind::AddressesOnly, 1, 80 << 30);
//! config.detect_races = true;
//! let machine = Machine::new(config)?;
//! let address = machine.allocate(0, 1 << 20)?;
//! let (producer, consumer) = (0x10, 0x20); // any handle names a stream
//! machine.touch(0, producer, address, 1 << 20, Access::Write, "fill")?;
//! machine.touch(0, consumer, address, 1 << 20, Access::Read, "use")?;
//! assert_eq!(machine.take_violations().len(), 1); // nothing orders the two
//! # Ok::<(), simgpu::Code>(())
//! ```
//!
//! Where to read on: `machine` (what there is, the one lock), `quiet` (calls without it),
//! `context` (what belongs to one), `room` (full queues),
//! `allocation` and `virtual_memory` (the calls), `contents` (fills, and a look at bytes),
//! `address_space` and `physical` (their tables), `store` (bytes or none), `host_memory` (pinned
//! memory and copies to and from it), `stream`, `event`, `capture` (order), `touch`, `race`,
//! `clock` (the detector).
//!
//! It is meant to be at least as strict as a real driver: where sources differ on what one
//! forbids, refuses or gives again, the stricter holds, and the rule's own file says which.
//!
//! Not modelled: kernels and other copies (only what they touch), managed memory, pools of
//! `cuMemAllocAsync`, export of handles, address spaces of their own for further contexts.

mod address_space;
mod allocation;
mod capture;
mod clock;
mod code;
mod contents;
mod context;
mod cost;
mod event;
mod fault;
mod host_memory;
mod instruments;
mod machine;
mod physical;
mod prices;
mod quiet;
mod race;
mod ranges;
mod room;
mod slab;
mod store;
mod stream;
mod stream_table;
mod touch;
mod validate;
mod violation;
mod virtual_memory;

pub use address_space::AddressRange;
pub use capture::{CaptureInfo, CaptureMode, Graph, exchange_thread_capture_mode};
pub use code::{Code, Result};
pub use cost::{Cost, CostTable, Points, Tail};
pub use fault::{Faults, Target, Times};
pub use instruments::{Call, Census, HostWaits, Usage};
pub use machine::{Config, DeviceConfig, Machine, MemoryInfo, Progress};
pub use prices::Prices;
pub use store::StoreKind;
pub use stream::Mark;
pub use stream_table::{STREAM_LEGACY, STREAM_PER_THREAD};
pub use touch::Access;
pub use violation::{Touch, Violation};
pub use virtual_memory::HandleProperties;
