//! Events: a place in a stream's queue, or in a capture.

use crate::clock::Clock;
use crate::store::Cell;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u32,
    pub(crate) timing: bool,
    pub(crate) recorded: Recorded,
    /// Its note, if other processes may use it.
    pub(crate) note: Option<Cell>,
}

/// What an event stands for.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Never,
    /// An operation of a stream. `time_ns` is the virtual driver time at the call, if the event has
    /// timing; `clock` is the stream's, kept while the detector is on.
    At {
        slot: u32,
        sequence: u64,
        time_ns: u64,
        clock: Option<Clock>,
    },
    /// The key of the capture it was recorded in.
    Captured(u64),
    /// What another process last recorded in it.
    Elsewhere,
}
