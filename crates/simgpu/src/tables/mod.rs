//! What a machine keeps, a table a file. No table knows another; `state` has them together.

mod address_space;
mod captures;
mod events;
mod host_memory;
mod managed;
mod physical;
mod race;
mod script;
mod streams;

pub(crate) use address_space::{AddressSpace, Mapping, Origin};
pub(crate) use captures::{Capture, CapturedTouch};
pub use captures::{CaptureInfo, CaptureMode, Graph};
pub(crate) use events::{Event, Recorded};
pub(crate) use host_memory::{HostMemory, HostPiece};
pub(crate) use managed::{Advised, Location, ManagedPages, pages_of};
pub(crate) use physical::{Device, Memory, Sharing};
pub(crate) use race::Detector;
pub(crate) use script::{Effect, Rule, Script};
pub use script::{Target, Times};
pub(crate) use streams::{
    Context, Entry, Name, Operation, Stream, StreamTable, Until, created_index, thread_token,
};
pub use streams::{STREAM_LEGACY, STREAM_PER_THREAD};
