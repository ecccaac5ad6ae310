//! The allocator: a request in, a block out.
//!
//! | files | what they do |
//! |---|---|
//! | `state` | what a heap consists of: the types |
//! | `hot_path`, `extras`, `lane`, `lanes` | allocate and free while all is warm |
//! | `ladder`, `backing`, `segments`, `elastic`, `idle` | serve what a lane does not have |
//! | `release`, `choice`, `limits`, `peers` | give memory back, keep limits, reach other devices |
//! | `waits`, `gate`, `captures`, `pools`, `streams` | pending blocks, waits and captures, streams |
//! | `pause`, `debug` | tags whose memory goes away; finding wrong uses of memory |
//! | `devices`, `whole`, `report`, `describe`, `notes` | what callers ask, and what is told |
//!
//! Every thread may call everything at any time. Size, device and stream of a block come from its
//! own record, so [`Heap::free`] takes the pointer alone.
//!
//! Lock order: the index of lanes, one lane, what the device shares (`base::lock::rank`).

mod backing;
mod callbacks;
mod captures;
mod choice;
mod debug;
mod describe;
mod device;
mod devices;
mod elastic;
mod extras;
mod gate;
mod hot_path;
mod idle;
mod ladder;
mod lane;
mod lanes;
#[cfg(test)]
mod lanes_tests;
mod limits;
mod notes;
mod pause;
mod peers;
mod policy;
mod pools;
mod release;
mod report;
mod segments;
mod slack;
mod state;
mod streams;
mod waits;
mod whole;

pub use crate::order::{Stream, StreamName};
pub use callbacks::{CallbackId, OutOfMemoryCallback};
pub use debug::LiveDetail;
pub use describe::{DeviceDescription, Part, PartState, Region, StreamDescription};

pub use pools::{PoolFilter, PoolId};
pub use report::LiveBlock;
pub use state::{Clock, Heap, Surroundings};
