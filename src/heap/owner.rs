//! Whom a lane belongs to: a stream and a pool.

use super::captures::Captures;
use super::pools::PoolNumber;
use crate::config::Settings;
use crate::order::{Contexts, StreamKey, StreamName};

/// The stream and the pool that a lane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneKey {
    /// The stream in whose order the blocks are used.
    pub(super) stream: StreamKey,
    /// The pool the memory belongs to.
    pub(super) pool: PoolNumber,
}

/// A lane's key, and what is known of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: LaneKey,
    /// The stream's name.
    pub(super) name: StreamName,
    /// The context that the stream belongs to, among those of the device.
    pub(super) context: u16,
}

/// A stream that has no lane yet, and what one is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) owner: Owner,
    pub(super) settings: &'a Settings,
    /// Those of the device.
    pub(super) contexts: &'a Contexts,
    pub(super) captures: &'a Captures,
}
