//! Functions that allocate from one private pool each.
//!
//! PyTorch's `CUDAPluggableAllocator` calls a function without a pointer of the caller's. So that a
//! `torch.cuda.MemPool` can have its segments from a private pool, there are a number of functions
//! that do the same, and each is lent to one pool. **Locks**: none; which pool has a function is read
//! under a lock of its own, which is not held while memory is allocated.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::{Error, Status};
use crate::ffi::private_pools::PoolId;
use crate::ffi::{boundary, genesis_stream, ordinal, pointer, stream_handle, write_required};
use crate::instance;

/// The type of `genesis_torch_malloc`.
type Malloc = extern "C-unwind" fn(usize, c_int, genesis_stream) -> *mut c_void;

/// Lists a function for each number.
macro_rules! functions {
    ($($number:literal)*) => { [$(malloc_from::<$number>),*] };
}

static FUNCTIONS: [Malloc; 32] = functions! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
};

/// The pool of each function.
static POOLS: Mutex<[Option<PoolId>; FUNCTIONS.len()]> = Mutex::new([None; FUNCTIONS.len()]);

fn pools() -> MutexGuard<'static, [Option<PoolId>; FUNCTIONS.len()]> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates from the pool of the function `NUMBER`, as `genesis_torch_malloc` does from all memory.
extern "C-unwind" fn malloc_from<const NUMBER: usize>(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    let allocated = boundary::call(|| {
        let Some(pool) = pools()[NUMBER] else {
            return Err(Error::invalid_argument("the private pool of this function was released"));
        };
        let (heap, device) = (instance::heap()?, ordinal(device)?);
        let stream = super::identify(heap, device, stream_handle(stream))?;
        heap.allocate_from(pool.into(), size as u64, device, stream)
    });
    match allocated {
        Ok(address) => pointer(address),
        Err(error) => super::fail_allocation(error, size, device),
    }
}

/// Writes to `function` the address of a function with the type of `genesis_torch_malloc`, which
/// allocates from the private pool `pool` of the device that it is called for, whatever the calling
/// thread has begun. PyTorch's `CUDAPluggableAllocator` takes it, with `genesis_torch_free` beside it;
/// so a `torch.cuda.MemPool` can have its segments from the pool. The pool must be held while the
/// function is called (`genesis_private_pool_hold`). The same function for the same pool, until
/// `genesis_torch_pool_function_release`. Any thread.
///
/// Returns `GENESIS_STATUS_OUT_OF_MEMORY` if 32 pools have one.
///
/// # Safety
/// `function` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_torch_pool_function_get(
    pool: PoolId,
    function: *mut *mut c_void,
) -> Status {
    let get = || {
        let mut pools = pools();
        let own = pools.iter().position(|other| *other == Some(pool));
        let free = || pools.iter().position(Option::is_none);
        let number = own.or_else(free).ok_or_else(no_function)?;
        pools[number] = Some(pool);
        Ok(FUNCTIONS[number] as *mut c_void)
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(function, get) })
}

/// Takes the pool's function back: another pool may have it. Nobody may call it any more.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_pool_function_release(pool: PoolId) -> Status {
    boundary::status(|| {
        let mut pools = pools();
        let own = pools.iter_mut().find(|other| **other == Some(pool));
        *own.ok_or_else(|| without_function(pool))? = None;
        Ok(())
    })
}

fn no_function() -> Error {
    let message = format!("{} private pools have a function already", FUNCTIONS.len());
    Error::new(Status::OutOfMemory, message)
}

fn without_function(PoolId { first, second }: PoolId) -> Error {
    Error::invalid_argument(format!("the private pool ({first}, {second}) has no function"))
}
