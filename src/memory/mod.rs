//! What blocks are made of: segments from the driver, the table of blocks cut from them, and
//! the directory that finds a block from its address.

mod blocks;
mod directory;
mod extents;
mod pages;
mod shared_pages;
mod supply;

pub use blocks::{Block, BlockTable, NO_SLOT, Segment, Slot, State};
pub use directory::Directory;
pub use extents::{Extent, ExtentId, Extents, View};
pub use pages::Pages;
pub use supply::{Refusal, Supply};
