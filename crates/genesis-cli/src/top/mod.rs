//! `genesis top`: what running processes hold, as they say themselves once a second.
//!
//! ```text
//! found   the processes that publish a file, and what it says now   → Found
//! course  what one process has said, one reading after the other    → rates, history
//! app     what is on the screen, and what a key does to it
//! draw    the screen                plain   the same as text, once
//! screen  the terminal: keys in, frames out, left as it was
//! ```
//!
//! A process is only ever read: its file is a profile without a history
//! (`genesis::observe::publication` says where). Nothing here touches a device.

mod app;
mod course;
mod draw;
#[cfg(test)]
mod draw_tests;
mod found;
mod plain;
mod screen;

pub(crate) use app::App;
pub(crate) use course::Course;
pub(crate) use found::{Found, find, find_all};
pub(crate) use plain::{describe, list};
pub(crate) use screen::show;
