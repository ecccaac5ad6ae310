//! The blocks that `cudaMalloc` handed out lately, by address, so that `cudaFree` need not ask
//! Genesis what a pointer is. Genesis's answer costs a lock and a search.
//!
//! A table of [`PLACES`] blocks: a newer one takes the place of an older one, of which Genesis is
//! then asked. A block leaves the table when it is freed. So
//!
//! ```text
//! in the table   =>   handed out here and not freed since, unless its device is lost
//! ```
//!
//! **Without a lock**: an entry is emptied before its other word changes and named after, so a
//! reader that finds the same name before and after has read what belongs to it. Blocks are taken
//! out under the lock of their device's freed blocks (`freed`), so one of two threads that free the
//! same block finds it gone. If a block takes a place just when the former one is taken out, its
//! name may be lost with it: then Genesis is asked, as for any block that is not here.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// How many blocks there are at most: a power of two.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 14;
/// Sizes are below 2^47 bytes.
const SIZE_BITS: u32 = 56;

/// A block that was handed out.
#[derive(Clone, Copy)]
pub(crate) struct Handed {
    pub(crate) requested_bytes: usize,
    pub(crate) device: c_int,
}

struct Entry {
    /// 0: no block.
    address: AtomicU64,
    /// The size asked for, and above it the device.
    details: AtomicU64,
}

static TABLE: [Entry; PLACES] =
    [const { Entry { address: AtomicU64::new(0), details: AtomicU64::new(0) } }; PLACES];

/// The place of a block.
#[inline]
fn entry(address: u64) -> &'static Entry {
    // Fibonacci hashing. Addresses are multiples of 512.
    let product = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(product >> (u64::BITS - PLACE_BITS)) as usize]
}

/// A block was handed out.
#[inline]
pub(crate) fn note(address: u64, requested_bytes: usize, device: c_int) {
    let entry = entry(address);
    entry.address.store(0, Relaxed);
    fence(Release);
    entry.details.store(requested_bytes as u64 | (device as u64) << SIZE_BITS, Relaxed);
    entry.address.store(address, Release);
}

/// The block at `address`, if it is in the table.
#[inline]
pub(crate) fn find(address: u64) -> Option<Handed> {
    let entry = entry(address);
    if entry.address.load(Acquire) != address {
        return None;
    }
    let details = entry.details.load(Relaxed);
    fence(Acquire);
    (entry.address.load(Relaxed) == address).then_some(Handed {
        requested_bytes: (details & ((1 << SIZE_BITS) - 1)) as usize,
        device: (details >> SIZE_BITS) as c_int,
    })
}

/// Takes the block at `address` out; returns true if it was there.
#[inline]
pub(crate) fn take(address: u64) -> bool {
    let entry = entry(address);
    let is_there = entry.address.load(Relaxed) == address;
    if is_there {
        entry.address.store(0, Relaxed);
    }
    is_there
}
