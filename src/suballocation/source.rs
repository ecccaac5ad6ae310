//! Where the memory of an object comes from, and who uses it.

use std::fmt::Debug;

use crate::base::size::ALIGNMENT_BYTES;
use crate::base::{Error, Result, Status, StreamHandle};

/// Blocks of memory for use on one stream. Any thread may call it.
pub trait Source: Debug {
    /// Returns the address of a block of at least `bytes`, which are not 0, aligned to 512.
    fn acquire(&self, bytes: u64) -> Result<u64>;

    /// Takes back a block. Work queued on the own stream may still use it.
    fn give_back(&self, address: u64);

    /// The own stream; `None` for host memory.
    fn stream(&self) -> Option<StreamHandle>;

    /// Makes work queued on `stream` from now on wait, on the device, for that queued on `other`.
    fn order(&self, stream: StreamHandle, other: StreamHandle) -> Result<()>;

    /// Has a block that is given back later wait for the work queued on `stream` until then.
    fn record(&self, address: u64, stream: StreamHandle) -> Result<()>;

    /// Takes back a block that `users` may still use. If it cannot wait for one of them, the block
    /// stays as it is: it is never reused.
    fn give_back_after(&self, address: u64, users: &[StreamHandle]) {
        if users.iter().try_for_each(|&user| self.record(address, user)).is_ok() {
            self.give_back(address);
        }
    }

    /// Returns true if each request is to be a block of the source.
    fn is_debugging(&self) -> bool;

    /// Alignment of requests that name none, in bytes.
    fn usual_alignment_bytes(&self) -> u64 {
        if self.stream().is_some() { 256 } else { 16 }
    }
}

/// Which threads call an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One at a time; the caller sees to it.
    One,
    /// Any, at any time.
    Any,
}

/// The alignment that a request asks for, in bytes; 0 is the source's usual one.
pub(super) fn alignment_of(source: &impl Source, alignment_bytes: u64) -> Result<u64> {
    match alignment_bytes {
        0 => Ok(source.usual_alignment_bytes()),
        bytes if is_alignment(bytes) => Ok(bytes),
        bytes => Err(wrong_alignment(bytes)),
    }
}

/// Returns true for what requests can be aligned to.
#[inline(always)]
pub(super) fn is_alignment(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes <= MOST_ALIGNMENT_BYTES
}

/// A gibibyte: more than any page.
const MOST_ALIGNMENT_BYTES: u64 = 1 << 30;

#[cold]
fn wrong_alignment(bytes: u64) -> Error {
    Error::invalid_argument(format!("an alignment of {bytes} is no power of two up to 2^30"))
}

#[cold]
pub(super) fn too_large(bytes: u64) -> Error {
    let message = format!("a request of {bytes} bytes is larger than any memory");
    Error::new(Status::OutOfMemory, message)
}

/// How many bytes more than `bytes` a block of the source must have, so that a part of it is
/// aligned.
pub(super) fn padded(bytes: u64, alignment_bytes: u64) -> Option<u64> {
    bytes.checked_add(alignment_bytes.saturating_sub(ALIGNMENT_BYTES))
}

/// The stream other than the own one, if `stream` is one.
pub(super) fn other_stream(
    source: &impl Source,
    stream: StreamHandle,
) -> Result<Option<StreamHandle>> {
    match source.stream() {
        None => Err(Error::invalid_argument("host memory is used on no stream")),
        Some(own) => Ok((own != stream).then_some(stream)),
    }
}
