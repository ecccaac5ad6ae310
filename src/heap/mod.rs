//! The allocator: a request in, a block out.
//!
//! | files | what they do |
//! |---|---|
//! | `state` | what a heap consists of: the types |
//! | `hot_path`, `extras`, `lane`, `lanes` | allocate and free in the steady state |
//! | `ladder`, `attempts`, `backing`, `segments`, `elastic`, `windows`, `idle` | serve a request after a miss |
//! | `trough`, `first_cycle`, `rising_peak` | a lane's live memory, followed through the cycles of its program |
//! | `moves` | whether a program comes to rest |
//! | `plan`, `ready` | memory made ready before it is asked for |
//! | `release`, `choice`, `optimize`, `fragmentation`, `watch`, `limits`, `peers` | release memory, keep limits, access by peers |
//! | `managed` | memory whose pages move |
//! | `waits`, `fences`, `gate`, `captures`, `streams` | pending blocks, events, captures, streams |
//! | `pools`, `pool_blocks` | private pools, and their blocks one by one |
//! | `own_memory`, `pool_memory`, `pool_limits` | private pools with memory of their own; limits |
//! | `tags`, `account`, `accounts` | tags, what they hold, and their limits |
//! | `pause`, `paused_extent`, `saved_bytes` | pausing the memory of a tag, and its contents |
//! | `debug` | finding misuse of memory |
//! | `devices`, `whole`, `report`, `describe`, `notes`, `steps` | calls and queries; events reported |
//!
//! Any thread may call any function at any time. A block's own record has its size, device and
//! stream, so [`Heap::free`] takes only the pointer.
//!
//! Lock order: the index of lanes, one lane, what the device shares (`base::lock::rank`).

mod account;
mod accounts;
mod attempts;
mod backing;
mod callbacks;
mod callers;
mod captures;
mod choice;
mod debug;
mod describe;
mod description;
mod device;
mod devices;
mod elastic;
mod extras;
mod fences;
mod first_cycle;
mod fragmentation;
mod gate;
mod history;
mod hot_path;
mod idle;
mod kept;
mod ladder;
mod lane;
mod lanes;
#[cfg(all(test, feature = "shuttle"))]
mod lanes_models;
#[cfg(test)]
mod lanes_tests;
mod limits;
mod loading;
mod managed;
mod moves;
mod notes;
mod optimize;
mod own_memory;
mod owner;
mod pause;
mod paused_extent;
mod peers;
mod plan;
mod policy;
mod pool_blocks;
mod pool_limits;
mod pool_memory;
mod pools;
mod ready;
mod release;
mod report;
mod rising_peak;
mod saved_bytes;
mod segments;
mod shared_blocks;
mod sharing;
mod state;
mod steps;
mod streams;
mod tags;
mod trough;
mod waits;
mod watch;
mod whole;
mod windows;

pub use crate::memory::{
    Communication, Neighbour, Neighbours, Registrar, SegmentSource, Taken, Wanted,
};
pub use crate::order::{Stream, StreamKey, StreamName};
pub use account::TagUsage;
pub use callbacks::{CallbackId, OutOfMemoryCallback};
pub use debug::LiveDetail;
pub use description::{DeviceDescription, LiveBlock, Part, PartState, Region, StreamDescription};

#[cfg(feature = "ablations")]
pub use elastic::ablation;
pub use elastic::extent_sizes;
pub use optimize::Optimization;
pub use pause::{Keeping, ProgressCallback, set_progress_callback};
pub use plan::{DeviceModel, DevicePlan, ExtentPlan, LanePlan, ViewPlan};
pub use pool_blocks::{Place, PoolBlock};
pub use pool_limits::PoolUsage;
pub use pool_memory::PoolOptions;
pub use pools::{PoolFilter, PoolId};
pub use shared_blocks::ShareId;
pub use sharing::{Imported, Incoming, Outgoing, SharedBlock};
pub use state::{Clock, Heap, Join, Lasts, Messages, Surroundings};
pub use steps::Step;
pub use trough::Levels;
pub use watch::{Compaction, CompactionCallback};
