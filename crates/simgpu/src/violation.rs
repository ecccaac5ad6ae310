//! What the machine found wrong with its use.
//!
//! Collected until a test takes them; at most [`MOST_KEPT`], so that a program that goes on
//! after the first thousand does not fill the host's memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Call;
use crate::machine::{Machine, State};
use crate::touch::Access;

/// How many violations are kept; later ones are dropped.
const MOST_KEPT: usize = 10_000;

/// One access by a stream to a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The device of the stream.
    pub device: u32,
    /// The stream's handle; `None` for the host.
    pub stream: Option<usize>,
    /// Which operation of the stream it is, counted from 1.
    pub sequence: u64,
    /// Where it starts.
    pub address: u64,
    /// How far it goes, in bytes.
    pub bytes: u64,
    /// Whether it reads or writes.
    pub access: Access,
    /// What the test called it.
    pub label: String,
    /// The stream, as the clocks count them.
    pub(crate) slot: u32,
}

/// A use of the machine that a real one would not survive, or that could give wrong results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two touches of the same memory, at least one of them a write, with nothing to order them.
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
    /// A touch by a device that was not given access.
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
    /// A call was given a stream that had been destroyed.
    DestroyedStream {
        /// The stream.
        handle: usize,
        /// The driver call; `None`: a touch, or a test that moves the stream on.
        call: Option<Call>,
    },
}

impl fmt::Display for Touch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let (label, address, end) = (&self.label, self.address, self.address + self.bytes);
        write!(formatter, "{verb} {label:?} of [{address:#x}, {end:#x}) by ")?;
        match self.stream {
            None => formatter.write_str("the host"),
            Some(stream) => write!(
                formatter,
                "stream {stream:#x} of device {} (operation {})",
                self.device, self.sequence
            ),
        }
    }
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
            Self::DestroyedStream { handle, call } => {
                let name = call.map_or("a touch", Call::name);
                write!(formatter, "{name} was given the destroyed stream {handle:#x}")
            }
        }
    }
}

impl Machine {
    /// The violations found since they were last taken, in order. Cheap where there are none:
    /// threads that ask after every call do not meet at the lock.
    pub fn take_violations(&self) -> Vec<Violation> {
        if !self.quiet.has_violations.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.quiet.has_violations.store(false, Ordering::Release);
        std::mem::take(&mut self.lock().violations)
    }
}

impl State {
    pub(crate) fn report(&mut self, violation: Violation) {
        if self.violations.len() < MOST_KEPT {
            self.violations.push(violation);
            self.quiet.has_violations.store(true, Ordering::Release);
        }
    }
}
