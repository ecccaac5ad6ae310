//! Private pools: counting their uses, and their blocks one by one.

use std::ffi::{c_int, c_void};

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle, write_required};
use crate::base::size::SizeClass;
use crate::base::{Error, Result, Status};
use crate::heap::{self, PartState, Place, PoolId, StreamName};
use crate::instance;

/// What a block of a private pool is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Handed out.
    Live = 0,
    /// Freed, but other streams may still use it.
    Pending = 1,
    /// Cached.
    Free = 2,
}

/// A block of a private pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolBlock {
    /// The first byte.
    pub address: *mut c_void,
    /// The size requested, in bytes; 0 unless it is live.
    pub requested_bytes: usize,
    /// The size of the block, in bytes.
    pub allocated_bytes: usize,
    /// The stream it was allocated on.
    pub stream: genesis_stream,
    /// What it is, a `genesis_block_state`.
    pub state: c_int,
    /// 1 if its memory is for blocks of at most 1 MiB, otherwise 0.
    pub is_small: c_int,
    /// The first byte of the contiguous memory around it.
    pub segment_address: *mut c_void,
    /// The size of that memory, in bytes.
    pub segment_bytes: usize,
}

impl From<heap::PoolBlock> for PoolBlock {
    fn from(block: heap::PoolBlock) -> Self {
        let state = match block.state {
            PartState::Live | PartState::Paused => BlockState::Live,
            PartState::Pending => BlockState::Pending,
            PartState::Free | PartState::Unmapped => BlockState::Free,
        };
        Self {
            address: pointer(block.address),
            requested_bytes: block.requested_bytes as usize,
            allocated_bytes: block.bytes as usize,
            stream: block.stream.handle().0 as genesis_stream,
            state: state as c_int,
            is_small: (block.class == SizeClass::Small).into(),
            segment_address: pointer(block.segment.start),
            segment_bytes: (block.segment.end - block.segment.start) as usize,
        }
    }
}

impl From<&PoolBlock> for Place {
    fn from(block: &PoolBlock) -> Self {
        Self {
            address: block.address as u64,
            bytes: block.allocated_bytes as u64,
            requested_bytes: block.requested_bytes as u64,
            stream: StreamName::of(stream_handle(block.stream)),
        }
    }
}

/// Counts a use of a private pool of `device`, which two numbers name, and makes the pool if it is
/// not held. Its memory stays at its addresses until `genesis_private_pool_release` has been called
/// for each use.
///
/// If `lends` is not 0, from now on a request on `device` that belongs to no pool takes free memory
/// of this one, on the same stream, rather than fail.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_hold(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
    lends: c_int,
) -> Status {
    let pool = PoolId(pool_first, pool_second);
    boundary::status(|| instance::heap()?.hold_pool(ordinal(device)?, pool, lends != 0))
}

/// Ends one use of a private pool. The last returns the pool's free memory to the driver, which may
/// wait for the device; what is live returns later, once it is freed.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_private_pool_release(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
) -> Status {
    let pool = PoolId(pool_first, pool_second);
    boundary::status(|| instance::heap()?.release_pool(ordinal(device)?, pool))
}

/// Writes to `uses` how often a private pool was held or begun and not released; 0 if it is not
/// held.
///
/// # Safety
/// `uses` is NULL, which is an error, or points to a writable `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_uses_get(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
    uses: *mut u64,
) -> Status {
    let pool = PoolId(pool_first, pool_second);
    let get = || instance::heap()?.pool_uses(ordinal(device)?, pool);
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(uses, get) })
}

/// Writes the blocks of a private pool, by address, to `blocks`, which has room for `capacity`; and
/// to `count` how many there are, which may be more. A copy of those that are live, kept, is a
/// state of the pool for `genesis_private_pool_blocks_place`.
///
/// Linear in the number of blocks. Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not
/// held.
///
/// # Safety
/// `blocks` has room for `capacity` blocks, or that is 0; `count` is NULL, which is an error, or
/// points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_blocks_get(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
    blocks: *mut PoolBlock,
    capacity: usize,
    count: *mut usize,
) -> Status {
    let get = || {
        check_array(blocks, capacity)?;
        let pool = PoolId(pool_first, pool_second);
        let found = instance::heap()?.pool_blocks(ordinal(device)?, pool)?;
        let total = found.len();
        for (index, block) in found.into_iter().take(capacity).enumerate() {
            // SAFETY: within the array, by the caller's contract.
            unsafe { blocks.add(index).write(block.into()) };
        }
        Ok(total)
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(count, get) })
}

/// Makes free memory of a private pool live at the addresses of `blocks`, with their sizes and for
/// their streams, which must exist: all of them, or none. Each is freed by `genesis_free`. The
/// other fields are not read.
///
/// A captured graph writes to the same addresses each time it runs. To use its results after a
/// replay, free what became live in the pool since the capture, and place what was live after it.
/// Waits for the device if other streams still use blocks of the pool.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is not held, if blocks overlap, or if one
/// is not wholly free.
///
/// # Safety
/// `blocks` points to `count` blocks, or that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_blocks_place(
    device: c_int,
    pool_first: u64,
    pool_second: u64,
    blocks: *const PoolBlock,
    count: usize,
) -> Status {
    boundary::status(|| {
        check_array(blocks, count)?;
        let blocks = match count {
            0 => &[],
            // SAFETY: not null, and as long by the caller's contract.
            _ => unsafe { std::slice::from_raw_parts(blocks, count) },
        };
        let places: Vec<Place> = blocks.iter().map(Place::from).collect();
        let pool = PoolId(pool_first, pool_second);
        instance::heap()?.place_in_pool(ordinal(device)?, pool, &places)
    })
}

fn check_array(blocks: *const PoolBlock, count: usize) -> Result<()> {
    if blocks.is_null() && count > 0 {
        return Err(Error::invalid_argument("the array of blocks is null"));
    }
    Ok(())
}
