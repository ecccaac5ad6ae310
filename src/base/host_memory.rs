//! The host's own memory: what the library's tables, texts and files in the making take.
//!
//! No collection is ever refused memory, which would end the process: where malloc refuses, a reserve
//! serves ([`super::host_malloc`]). From the first refusal on the host's memory *is short*. Then:
//!
//! | what is called | |
//! |---|---|
//! | a request that its lane does not serve, the first one of a stream, all that makes, starts or writes something | refused, unless memory is there again ([`require`]) |
//! | a request that its lane serves | refused once half of the reserve is used ([`require_room`]) |
//! | frees, releases, figures | served |
//!
//! Memory is there again if malloc has [`PROBE_BYTES`] in one piece, and twice what lies in the reserve:
//! then each table that lies there can grow out of it.
//!
//! If the reserve is exhausted too, the process ends, as Rust's collections do it. Of what the C library
//! needs itself (for a thread's first variables, say), nothing is kept back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use super::host_malloc::is_short;
use super::host_malloc::{self, RESERVE_BYTES};
use super::size::Bytes;
use super::{Error, Result, Status};

/// The least that malloc must have in one piece for memory to be there again, in bytes.
const PROBE_BYTES: usize = 1 << 20;

/// Whether a refusal was told since memory became short.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Succeeds if new memory can be had, and fails with `OutOfHostMemory` otherwise.
#[inline]
pub fn require() -> Result<()> {
    if is_short() && !is_there_again() { Err(refused()) } else { Ok(()) }
}

/// Fails as [`require`] does, once half of the reserve is used.
pub fn require_room() -> Result<()> {
    if host_malloc::used_bytes() <= RESERVE_BYTES / 2 { Ok(()) } else { require() }
}

/// Returns true the first time it is asked while memory is short.
pub fn is_news() -> bool {
    !IS_TOLD.swap(true, Relaxed)
}

/// From now on `on_refusal` is called whenever malloc refuses memory: by any thread, with any lock held,
/// so it may do no more than store to atomics. The first one given stays.
pub fn on_refusal(on_refusal: fn()) {
    host_malloc::on_refusal(on_refusal);
}

#[cold]
fn is_there_again() -> bool {
    let is_there = host_malloc::probe(PROBE_BYTES.max(2 * host_malloc::used_bytes()));
    if is_there {
        IS_TOLD.store(false, Relaxed);
    }
    is_there
}

#[cold]
fn refused() -> Error {
    let message = format!(
        "the host's own memory is short: it has none for the library's tables, and {} of {} kept back are \
         used; free host memory, or raise what limits it (ulimit -v, overcommit)",
        Bytes(host_malloc::used_bytes() as u64),
        Bytes(RESERVE_BYTES as u64)
    );
    Error::new(Status::OutOfHostMemory, message)
}
