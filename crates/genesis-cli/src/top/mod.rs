//! `genesis top`: what running processes hold, as they themselves publish it once a second.
//!
//! ```text
//! found   the processes that publish a file, and its contents now   → Found
//! shared  the devices that processes share, and what each holds     → Shared
//! course  the readings of one process, one after the other          → rates, history
//! app     what is shown, and the effect of each key
//! draw    the screen                plain   the same as text, once
//! screen  the terminal: keys in, frames out, restored at the end
//! ```
//!
//! Processes are only read: the file of each is a profile without a history
//! (`genesis::observe::publication` has its path), and those who share a device have a register
//! (`device_register`). Nothing here touches a device.

mod app;
mod course;
mod draw;
#[cfg(test)]
mod draw_tests;
mod found;
mod plain;
mod screen;
mod shared;

pub(crate) use app::App;
pub(crate) use course::Course;
pub(crate) use found::{Found, find, find_all};
pub(crate) use plain::{describe, list};
pub(crate) use screen::show;
pub(crate) use shared::{Shared, describe_shared, find_shared};
