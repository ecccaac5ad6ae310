//! Visiting the live blocks, for leak checks.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};

use super::{ALL_DEVICES, boundary, genesis_stream, ordinal, pointer};
use crate::base::{Error, Status};
use crate::instance;

/// A live block and its allocation.
///
/// Age and location are known if the block was allocated while `GENESIS_DEBUG` was on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LiveBlock {
    /// The pointer to the block.
    pub address: *mut c_void,
    /// The size requested, in bytes.
    pub requested_bytes: usize,
    /// The size of the block, in bytes.
    pub allocated_bytes: usize,
    /// The device.
    pub device: c_int,
    /// The stream it was allocated on.
    pub stream: genesis_stream,
    /// The time since it was allocated, in nanoseconds; `UINT64_MAX` if unknown.
    pub age_ns: u64,
    /// The tag it was allocated under, or NULL.
    pub tag: *const c_char,
    /// Where it was allocated: lines such as "train.py:12 (step)", innermost first; "" if unknown.
    pub location: *const c_char,
}

/// Called for each live block; `block` is valid until it returns. It may call any function of the
/// library, also to free blocks, and must not throw.
#[allow(non_camel_case_types)]
pub type genesis_live_block_visitor =
    Option<unsafe extern "C" fn(user_data: *mut c_void, block: *const LiveBlock)>;

/// Calls `visit` for every live block of `device` (-1: of all devices) whose request was at least
/// `least_bytes`, largest first. These are the leaks of a program that should have freed
/// everything.
///
/// Linear in the number of blocks. Naming a place for the first time takes milliseconds.
///
/// # Safety
/// `visit` is NULL, which is an error, or good until this function returns, as is `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_live_blocks_visit(
    device: c_int,
    least_bytes: usize,
    visit: genesis_live_block_visitor,
    user_data: *mut c_void,
) -> Status {
    boundary::demanding(|| {
        let visit = visit.ok_or(Error::invalid_argument("the visitor is null"))?;
        let heap = instance::heap()?;
        let device = match device {
            ALL_DEVICES => None,
            device => Some(ordinal(device)?),
        };
        let mut places: HashMap<u32, CString> = HashMap::new();
        for live in heap.live_details(device, least_bytes as u64)? {
            let place = places.entry(live.site).or_insert_with(|| {
                boundary::to_c_string(&heap.events().stack_lines(live.site).join("\n"))
            });
            let tag = live.tag.map(|tag| boundary::to_c_string(&tag));
            let age_ns = live.age.map(|age| age.as_nanos() as u64);
            let block = LiveBlock {
                address: pointer(live.block.address),
                requested_bytes: live.block.requested_bytes as usize,
                allocated_bytes: live.block.allocated_bytes as usize,
                device: live.block.device.0 as c_int,
                stream: live.block.stream.handle().0 as genesis_stream,
                age_ns: age_ns.unwrap_or(u64::MAX),
                tag: tag.as_ref().map_or(std::ptr::null(), |tag| tag.as_ptr()),
                location: place.as_ptr(),
            };
            // SAFETY: the caller's function and pointer, by the contract; the block and its texts
            // outlive the call.
            unsafe { visit(user_data, &block) };
        }
        Ok(())
    })
}
