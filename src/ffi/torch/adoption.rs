//! Blocks that PyTorch did not ask for: made known to it.
//!
//! PyTorch keeps a list of what its pluggable allocator has returned, and refuses to free anything
//! else. A block that became live without a request (`genesis_private_pool_blocks_place`) gets onto
//! the list by a request that returns it: its address is announced, and then PyTorch is asked, on
//! the same thread, for more memory than any device has. Such a request fails otherwise, so only
//! failing requests look here.

use std::cell::Cell;
use std::ffi::c_void;

use crate::base::size::LARGEST_REQUEST_BYTES;
use crate::ffi::boundary;

thread_local! {
    static ANNOUNCED: Cell<usize> = const { Cell::new(0) };
}

/// Announces the live block at `ptr`: the next request of this thread for at least 2^62 bytes, which
/// no device has, returns `ptr` in place of failing. NULL withdraws the announcement.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_adopt_next(ptr: *mut c_void) {
    let _ = ANNOUNCED.try_with(|announced| announced.set(ptr as usize));
}

/// The block announced, if a request that failed is the one to return it.
pub(super) fn take(requested_bytes: usize) -> Option<*mut c_void> {
    if requested_bytes as u64 <= LARGEST_REQUEST_BYTES {
        return None;
    }
    let address = ANNOUNCED.try_with(|announced| announced.replace(0)).unwrap_or(0);
    if address == 0 {
        return None;
    }
    boundary::clear_last();
    Some(address as *mut c_void)
}
