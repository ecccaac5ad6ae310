//! Pausing a tag: its physical memory goes back to the driver and its addresses stay, until it is
//! resumed with the contents it had or without.
//!
//! | pausing | resuming |
//! |---|---|
//! | wait for the devices | new extents of the same sizes |
//! | under each lane's lock: blocks paused, extents set aside | mapped where the old ones were |
//! | wait again, for what was queued in between | live bytes back from pinned host memory |
//! | live bytes to pinned host memory, if wanted | under each lane's lock: blocks live and free |
//! | unmap every view, also those left in other lanes | |
//! | release | |
//!
//! Both do all of it or nothing. What can be undone comes first: pausing unmaps last, when
//! everything is saved, and resuming gives the saved bytes up last. An extent that the driver
//! does not take back when all are unmapped rests until it is needed, and the tag is paused all
//! the same. If the driver refuses even to undo, nothing is lost: the records (`paused`) keep
//! what memory there is, and the next resume goes on from there.
//!
//! Meanwhile other threads may do anything, also with blocks of the tag: those they free do not
//! come back, and what they allocate is new memory that is not paused. One thread at a time
//! pauses or resumes.

mod calls;
mod paused_extent;
mod pieces;
mod records;
mod tags;

pub(super) use paused_extent::PausedExtent;
pub(super) use tags::Tags;
