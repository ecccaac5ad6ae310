//! When a freed block may be used again.
//!
//! Work on a GPU stream runs in the order it was queued, after the call that queued it has
//! returned. A block freed on the stream it was allocated on may therefore be handed out there
//! again at once: its next user is queued behind its last. Everything else needs proof:
//!
//! - **Other streams used the block** ([`recorded`]): when it is freed, an event is recorded
//!   on each of them, and the block is [`pending`] until all have completed.
//! - **Another stream wants the block** ([`fence`]): that stream waits for an event recorded
//!   on the block's own stream after the free.
//!
//! A stream handle is used only in the call that passed it in, because its owner may destroy it
//! right afterwards, and the next stream may get it ([`stream`]). What outlives a call is an event
//! of the library's own ([`events`]), made in the context of its stream ([`contexts`]). The
//! one exception is CUDA's own rule for `record_stream`: the streams named must outlive the
//! block, because what counts is the work queued on them until it is freed.

mod contexts;
mod events;
mod fence;
pub mod omission;
mod pending;
mod recorded;
mod stream;
#[cfg(test)]
mod tests;

pub use contexts::{Contexts, OWN_CONTEXT};
pub use events::EventCache;
pub use fence::{Fence, Readiness};
pub use omission::Step;
pub use pending::PendingFrees;
pub use recorded::{Recorded, RecordedStreams};
pub use stream::{Stream, StreamKey, StreamName};
