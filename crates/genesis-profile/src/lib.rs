//! What a profile of the allocator's memory is, and every form it is written in.
//!
//! The library fills a [`Profile`] from what it has seen; here it becomes text, pages and files
//! for other tools. Nothing here knows how the allocator works, and the allocator knows no
//! format.

pub mod model;

pub use model::Profile;
