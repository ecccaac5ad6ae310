//! The ends of streams: Genesis is told of each before it happens.
//!
//! A stream's handle may name another stream as soon as it is destroyed, while the old one's work
//! is still queued. Genesis knows streams by their handles here (`genesis`), so it must be told of
//! every end while the stream can still be used:
//!
//! | what ends | which streams end |
//! |---|---|
//! | a stream, by any form of `cuStreamDestroy` | that one |
//! | a context, which is destroyed | its own |
//! | a device, which is reset | those of its primary context |
//! | a green context, which is destroyed | its own: they stay, but can do nothing any more |
//!
//! For the last three, the streams that Genesis was told of are listed here with their context,
//! green or not. Primary contexts of listed streams are retained for good, so only a reset ends
//! them.
//!
//! **Lock**: one, held for a few instructions; nothing is called under it. A stream that was named
//! lately is found without it.

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

/// Streams that are in the list, hashed by their handles: most lookups need no list.
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

/// Takes the streams out of the list for which `is_ending` is true.
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

/// Tells Genesis, if it is open, of streams that are about to end.
fn announce(streams: &[usize]) {
    if let Some(genesis) = process::genesis_if_open() {
        streams.iter().for_each(|&stream| genesis.forget_stream(stream));
    }
}

/// Returns true if the program itself ends something, and not a call of ours.
fn is_watched() -> bool {
    !inside::is_inside() && process::may_serve()
}

/// Destroys `stream` by CUDA's own function, whose answer is returned.
pub(crate) fn destroy(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    if !is_watched() || stream <= PER_THREAD {
        return real();
    }
    take(|known| known.stream == stream);
    // Listed or not: others than this library may have named it to Genesis.
    announce(&[stream]);
    capture::lose(|target| target.is_of(stream), real)
}

/// Ends a context, green or not, by CUDA's own function, whose answer is returned.
pub(crate) fn end_with(context: usize, real: impl FnOnce() -> c_int) -> c_int {
    if !is_watched() || context == 0 {
        return real();
    }
    announce(&take(|known| known.owner == context));
    capture::lose(|target| target.is_in(context), real)
}

/// Resets a device by CUDA's own function, whose answer is returned. The device's memory is gone
/// afterwards.
pub(crate) fn reset(ordinal: Option<c_int>, real: impl FnOnce() -> c_int) -> c_int {
    let Some(ordinal) = ordinal.filter(|_| is_watched()) else { return real() };
    let context =
        driver().and_then(|driver| driver.with_primary_context(ordinal, |context| context));
    let status = end_with(context.unwrap_or(0), real);
    // Before Genesis is open, it has nothing to lose.
    if status == 0 && process::genesis_if_open().is_some() {
        device::get(ordinal).into_iter().for_each(device::Device::lose);
    }
    status
}
