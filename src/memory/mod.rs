//! What blocks are made of: segments and extents from the driver, the table of blocks cut from
//! them, and the directory that finds a block from its address.

mod blocks;
mod communication;
mod directory;
mod extent_store;
mod extents;
mod ledger;
mod neighbours;
mod segment_store;
mod shared_pages;
mod strays;

pub use blocks::{Block, BlockTable, Segment, State};
pub use communication::{Communication, Registrar};
pub use directory::{Directory, NO_SLOT, Slot};
pub use extent_store::ExtentStore;
pub use extents::{Edge, Extent, ExtentId, ExtentTable, Lending, Loan, View};
pub use ledger::{Ledger, Refusal};
pub use neighbours::{Neighbour, Neighbours, Taken, Wanted};
pub use segment_store::{SegmentSource, SegmentStore};
