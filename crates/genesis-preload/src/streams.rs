//! The ends of streams: Genesis is told of each before it comes.
//!
//! A stream's handle may name another stream as soon as it is destroyed, while the old one's work
//! is still queued. Genesis knows streams by their handles here (`genesis`), so it must hear of
//! every end while the stream can still be used: of `cuStreamDestroy` in all its forms, and where
//! streams end with what they are of. That is a context that is destroyed, a device that is reset,
//! and a green context, whose streams stay but can do nothing any more. For those, the streams that
//! Genesis was told of are kept with what they end with. Primary contexts among that are retained
//! for good, so that a reset alone ends them.
//!
//! **Lock**: one, held for a few instructions and while nothing is called. A stream that was named
//! lately is found without.

use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver_api::{PER_THREAD, driver};
use crate::{capture, device, inside, process};

/// A stream that Genesis was told of.
struct Named {
    stream: usize,
    /// The context, green or not, that it ends with.
    owner: usize,
}

static NAMED: Mutex<Vec<Named>> = Mutex::new(Vec::new());

/// Streams that are in the list, each at a place of its handle's: so most need no look at it.
static RECENT: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];

fn named() -> MutexGuard<'static, Vec<Named>> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(stream: usize) -> &'static AtomicUsize {
    &RECENT[(stream >> 4 ^ stream >> 12) % RECENT.len()]
}

/// Genesis is about to be told of `stream`.
#[inline]
pub(crate) fn note(stream: usize) {
    if stream > PER_THREAD && place(stream).load(Relaxed) != stream {
        add(stream);
    }
}

#[cold]
fn add(stream: usize) {
    let owner = driver().and_then(|driver| {
        let context = driver.context_of(stream)?;
        // Retained with that, if it is a primary one.
        device::with_context(context);
        driver.owner_of(stream)
    });
    let Some(owner) = owner else { return };
    let mut named = named();
    match named.iter_mut().find(|known| known.stream == stream) {
        Some(known) => known.owner = owner,
        None => named.push(Named { stream, owner }),
    }
    place(stream).store(stream, Relaxed);
}

/// Takes those out of the list for which `is_ending` says so.
fn take(is_ending: impl Fn(&Named) -> bool) -> Vec<usize> {
    let mut taken = Vec::new();
    named().retain(|known| {
        let is_kept = !is_ending(known);
        if !is_kept {
            let _ = place(known.stream).compare_exchange(known.stream, 0, Relaxed, Relaxed);
            taken.push(known.stream);
        }
        is_kept
    });
    taken
}

/// Tells Genesis, if it is there, of streams that are about to end.
fn announce(streams: &[usize]) {
    if let Some(genesis) = process::genesis_if_open() {
        streams.iter().for_each(|&stream| genesis.forget_stream(stream));
    }
}

/// Whether the end of something is the program's doing, and to be looked at.
fn is_watched() -> bool {
    !inside::is_inside() && process::may_serve()
}

/// Destroys `stream` by CUDA's own function; its answer.
pub(crate) fn destroy(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    if !is_watched() || stream <= PER_THREAD {
        return real();
    }
    take(|known| known.stream == stream);
    // Known here or not: others than this library may have named it to Genesis.
    announce(&[stream]);
    capture::lose(|target| target.is_of(stream), real)
}

/// Ends a context, green or not, by CUDA's own function; its answer.
pub(crate) fn end_with(context: usize, real: impl FnOnce() -> c_int) -> c_int {
    if !is_watched() || context == 0 {
        return real();
    }
    announce(&take(|known| known.owner == context));
    capture::lose(|target| target.is_in(context), real)
}

/// Resets a device by CUDA's own function; its answer. Its memory is gone afterwards.
pub(crate) fn reset(ordinal: Option<c_int>, real: impl FnOnce() -> c_int) -> c_int {
    let Some(ordinal) = ordinal.filter(|_| is_watched()) else { return real() };
    let context =
        driver().and_then(|driver| driver.with_primary_context(ordinal, |context| context));
    let status = end_with(context.unwrap_or(0), real);
    // Before Genesis is there, nothing is lost with it.
    if status == 0 && process::genesis_if_open().is_some() {
        device::get(ordinal).into_iter().for_each(device::Device::lose);
    }
    status
}
