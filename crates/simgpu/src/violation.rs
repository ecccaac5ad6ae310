//! What the machine found wrong with its use.

use std::fmt;
use std::sync::Arc;

use crate::call::Call;
use crate::touch::Touch;

/// A use of the machine that a real one would not survive, or that could make results wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two touches of the same memory, at least one of them a write, and not ordered.
    Race {
        /// The one enqueued first.
        first: Arc<Touch>,
        /// The one enqueued later.
        second: Arc<Touch>,
        /// Where in the second's addresses the overlap starts.
        address: u64,
        /// How far the overlap goes, in bytes.
        bytes: u64,
    },
    /// A touch of an address where nothing is mapped: never allocated, freed, or beyond the end.
    TouchUnmapped {
        /// The touch.
        touch: Arc<Touch>,
        /// The first such address.
        address: u64,
    },
    /// A touch by a device without access.
    TouchWithoutAccess {
        /// The touch.
        touch: Arc<Touch>,
        /// The first such address.
        address: u64,
    },
    /// Memory was unmapped or freed while the host could not know that a touch was complete.
    GoneWhileInUse {
        /// The touch.
        touch: Arc<Touch>,
        /// Where the mapping or allocation started.
        address: u64,
        /// Its size in bytes.
        bytes: u64,
    },
    /// An allocation was freed while other processes had it open, which CUDA's manual leaves
    /// undefined (`cuIpcCloseMemHandle`: the exporter must not free it before).
    FreedWhileOpen {
        /// Where it started.
        address: u64,
    },
    /// Pages of managed memory on the host, and what is pinned there, are more than it has.
    HostMemoryUsedUp {
        /// How many bytes they are.
        bytes: u64,
    },
    /// A call used a stream that had been destroyed.
    DestroyedStream {
        /// The stream.
        handle: usize,
        /// The driver call; `None`: a touch, or a test that moves the stream on.
        call: Option<Call>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race { first, second, address, bytes } => {
                let end = address + bytes;
                write!(formatter, "race on [{address:#x}, {end:#x}): {second} is not ordered ")?;
                write!(formatter, "after {first}")
            }
            Self::TouchUnmapped { touch, address } => {
                write!(formatter, "{touch}: nothing is mapped at {address:#x}")
            }
            Self::TouchWithoutAccess { touch, address } => {
                write!(formatter, "{touch}: no access to {address:#x}")
            }
            Self::GoneWhileInUse { touch, address, bytes } => {
                let end = address + bytes;
                write!(formatter, "[{address:#x}, {end:#x}) was unmapped or freed while {touch} ")?;
                formatter.write_str("was not known to be complete")
            }
            Self::FreedWhileOpen { address } => {
                write!(formatter, "{address:#x} was freed while another process has it open")
            }
            Self::HostMemoryUsedUp { bytes } => {
                write!(formatter, "the host has no memory for {bytes} managed and pinned bytes")
            }
            Self::DestroyedStream { handle, call } => {
                let name = call.map_or("a touch", Call::name);
                write!(formatter, "{name} was given the destroyed stream {handle:#x}")
            }
        }
    }
}
