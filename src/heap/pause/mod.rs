//! Pausing a *tag* (a name under which allocations are made): its physical memory is released
//! and its addresses stay, until it is resumed, with its old contents or without.
//!
//! | pausing | resuming |
//! |---|---|
//! | wait for the devices | new extents of the same sizes |
//! | under each lane's lock: blocks paused, extents set aside | mapped where the old ones were |
//! | wait again, for work queued in between | live bytes back |
//! | live bytes to host memory or a file, if wanted (`transfer`) | under each lane's lock: blocks live and free |
//! | unmap every view, also those left in other lanes | |
//! | release | |
//!
//! Both do everything or nothing. Steps that can be undone come first: pausing unmaps last, when
//! everything is saved, and resuming frees the saved bytes last. If the driver does not take an
//! extent (one handle of memory) back after all are unmapped, the extent rests until it is
//! needed, and the tag is still paused. If the driver refuses even to undo, nothing is lost: the
//! records (`records`) keep the memory there is, and the next resume continues from there.
//!
//! Meanwhile other threads may do anything, also with blocks of the tag: those they free do not
//! return, and what they allocate is new memory that is not paused. One thread at a time
//! pauses or resumes.

mod calls;
mod pieces;
mod progress;
mod records;
mod stages;
mod transfer;

pub use pieces::Keeping;
pub use progress::{ProgressCallback, set_progress_callback};
