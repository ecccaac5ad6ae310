//! The foundation of every layer: units and sizes, identifiers, errors, ranked locks, blocking
//! calls, the host's own memory, nodes that are used again, threads by number, hashing, steps left out
//! for tests and benches.
//!
//! Imports nothing of the project.

mod backup;
pub mod blocking;
pub mod error;
mod gauge;
pub(crate) mod hash;
mod host_malloc;
pub mod host_memory;
pub mod id;
pub(crate) mod left_out;
pub mod lock;
pub(crate) mod nodes;
mod padded;
mod part_limit;
mod reserve;
mod shortage;
pub mod size;
pub(crate) mod sync;
pub mod thread;

pub use backup::Backup;
pub use blocking::blocking;
pub use error::{Error, Failure, Result, Status};
pub use gauge::Gauge;
pub use id::{DeviceOrdinal, StreamHandle};
pub use padded::CachePadded;
pub use part_limit::{Part, PartLimit};
pub use shortage::Shortage;
