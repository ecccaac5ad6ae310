//! Private pools: `set_begin_allocate_to_pool`, `set_end_allocate_to_pool_fn` and
//! `set_release_pool` take the addresses of these functions.
//!
//! PyTorch names a pool by a `std::pair<uint64_t, uint64_t>`, which the calling convention passes
//! as two numbers. A `std::function`, passed by reference to a temporary, tells which streams
//! belong to the pool. The function is copied, and the copy destroyed at `end`, because a capture's
//! filter points into the graph, which may be destroyed soon after. A lock keeps a call from
//! running during `end`, and two calls from running at once, as in PyTorch's own allocator.
//!
//! Each function has its own `cfg` for a known layout, because the header is made from this file.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::catching::Thrown;
use super::hook;
use super::std_function::StdFunction;
use crate::base::lock::{Lock, rank};
use crate::base::{DeviceOrdinal, Result, StreamHandle};
use crate::config::LogLevel;
use crate::ffi::{boundary, ordinal};
use crate::heap::PoolId;
use crate::instance;

/// The pools that are begun and not ended.
static BEGUN: Lock<Vec<Begun>, { rank::LEAF }> = Lock::new(Vec::new());

#[derive(Debug)]
struct Begun {
    device: DeviceOrdinal,
    pool: PoolId,
    filter: Arc<Filter>,
}

/// The function that tells which streams a pool is for, until it is closed.
#[derive(Debug)]
struct Filter {
    function: Mutex<Option<StdFunction>>,
    has_thrown: AtomicBool,
}

impl Filter {
    fn new(function: StdFunction) -> Self {
        Self { function: Mutex::new(Some(function)), has_thrown: AtomicBool::new(false) }
    }

    fn passes(&self, stream: StreamHandle) -> bool {
        let Some(result) = self.open().as_mut().map(|function| function.call(stream)) else {
            return false;
        };
        result.unwrap_or_else(|Thrown| {
            if !self.has_thrown.swap(true, Relaxed) {
                let message = format!(
                    "the filter of a private pool threw an exception for stream {:#x}; such \
                     requests are served from outside of the pool",
                    stream.0
                );
                instance::log().write(LogLevel::Warn, &message);
            }
            false
        })
    }

    /// Waits for calls on other threads, and destroys the function.
    fn close(&self) {
        drop(self.open().take());
    }

    fn open(&self) -> MutexGuard<'_, Option<StdFunction>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For `set_begin_allocate_to_pool`: from now on requests on `device` are served from the private
/// pool named by the two numbers, if `filter` returns true for their stream.
///
/// `filter` is a `std::function<bool(cudaStream_t)> *` of libstdc++. It is copied, called by the
/// threads that allocate, one at a time, and destroyed when the pool is ended; it must not call
/// this library. Memory of the pool stays mapped at its addresses until the pool is released. If
/// the pool cannot be begun, PyTorch gets a RuntimeError, and any other caller a last error.
///
/// # Safety
/// `filter` is NULL, which is an error, or points to such a function.
#[cfg(std_function_known)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn genesis_torch_pool_begin(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
    filter: *const c_void,
) {
    // SAFETY: the caller's contract.
    let begun =
        boundary::call(|| unsafe { begin(device, PoolId(pool_first, pool_second), filter) });
    if let Err(error) = begun {
        super::fail(error);
    }
}

/// For `set_end_allocate_to_pool_fn`: ends `genesis_torch_pool_begin`. The pool keeps its memory. If
/// the pool is not begun, PyTorch gets a RuntimeError, and any other caller a last error.
#[cfg(std_function_known)]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn genesis_torch_pool_end(device: c_int, pool_first: u64, pool_second: u64) {
    let end = || end(ordinal(device)?, PoolId(pool_first, pool_second));
    if let Err(error) = boundary::call(end) {
        super::fail(error);
    }
}

/// For `set_release_pool`: ends one use of a pool; `genesis_torch_pool_begin` counts them. The last
/// returns the pool's free memory to the driver.
#[cfg(std_function_known)]
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_pool_release(device: c_int, pool_first: u64, pool_second: u64) {
    hook("genesis_torch_pool_release", || {
        instance::heap()?.release_pool(ordinal(device)?, PoolId(pool_first, pool_second))
    });
}

/// # Safety
/// As for [`genesis_torch_pool_begin`].
unsafe fn begin(device: c_int, pool: PoolId, filter: *const c_void) -> Result<()> {
    let heap = instance::heap()?;
    let device = ordinal(device)?;
    // SAFETY: the caller's contract.
    let function = unsafe { StdFunction::copy_of(filter)? };
    let filter = Arc::new(Filter::new(function));
    let asked = Arc::clone(&filter);
    heap.begin_pool(device, pool, Arc::new(move |stream| asked.passes(stream)))?;
    BEGUN.lock().push(Begun { device, pool, filter });
    Ok(())
}

fn end(device: DeviceOrdinal, pool: PoolId) -> Result<()> {
    let heap = instance::heap()?;
    let mut begun = BEGUN.lock();
    let found = begun.iter().position(|begun| begun.device == device && begun.pool == pool);
    let ending = found.map(|position| begun.swap_remove(position));
    drop(begun);
    let ended = heap.end_pool(device, pool);
    if let Some(ending) = ending {
        ending.filter.close();
    }
    ended
}
