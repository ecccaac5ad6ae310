//! The processes that share a device (`GENESIS_SHARE`).

use std::ffi::{c_char, c_int, c_void};

use super::{boundary, ordinal};
use crate::base::{Error, Status};
use crate::instance;

/// A process that shares a device with this one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The process's number.
    pub process: c_int,
    /// 1 for this process itself, otherwise 0.
    pub is_own: c_int,
    /// What is live in it, in bytes, as it has last said; at most a second ago.
    pub live_bytes: usize,
    /// What it has cached, in bytes.
    pub cached_bytes: usize,
    /// What it holds of the device, in bytes.
    pub held_bytes: usize,
    /// What the others leave to it, in bytes.
    pub guarantee_bytes: usize,
    /// The most that it may hold, in bytes; `SIZE_MAX` if there is no limit.
    pub limit_bytes: usize,
    /// Its part of the device by its weight, in bytes; 0 if it has none.
    pub part_bytes: usize,
    /// Its program's name.
    pub program: *const c_char,
}

/// Called for each process; `neighbour` is valid until it returns. It may call any function of the
/// library and must not throw.
#[allow(non_camel_case_types)]
pub type genesis_neighbour_visitor =
    Option<unsafe extern "C" fn(user_data: *mut c_void, neighbour: *const Neighbour)>;

/// Calls `visit` for every process that shares `device` with this one under the name in
/// `GENESIS_SHARE`: for this one first, then for the others; never, if the device is not shared. A
/// process that has ended is not among them. Reads a small file. Any thread, at any time.
///
/// # Safety
/// `visit` is NULL, which is an error, or good until this function returns, as is `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_neighbours_visit(
    device: c_int,
    visit: genesis_neighbour_visitor,
    user_data: *mut c_void,
) -> Status {
    boundary::status(|| {
        let visit = visit.ok_or(Error::invalid_argument("the visitor is null"))?;
        for (index, one) in instance::heap()?.neighbours(ordinal(device)?)?.iter().enumerate() {
            let program = boundary::to_c_string(&one.program);
            let neighbour = Neighbour {
                process: one.process as c_int,
                is_own: (index == 0).into(),
                live_bytes: one.live_bytes as usize,
                cached_bytes: one.cached_bytes as usize,
                held_bytes: one.held_bytes as usize,
                guarantee_bytes: one.guarantee_bytes as usize,
                limit_bytes: one.limit_bytes.map_or(usize::MAX, |bytes| bytes as usize),
                part_bytes: one.part_bytes.unwrap_or(0) as usize,
                program: program.as_ptr(),
            };
            // SAFETY: the caller's function and pointer, by the contract; the struct and its text
            // outlive the call.
            unsafe { visit(user_data, &neighbour) };
        }
        Ok(())
    })
}
