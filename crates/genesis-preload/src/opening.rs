//! Opening `libgenesis.so` at the first call that could be served, and its end.
//!
//! Opening takes no lock: the loader has its own, and a thread that holds that one may call us.
//! Two threads may open at once; both find the same library, and the first to finish counts.

use std::ffi::{CString, c_int, c_void};

use preload_report::Library;

use crate::freed::Need;
use crate::genesis::Genesis;
use crate::process::{self, genesis_if_open};
use crate::{capture, fence, loader, next, report};

/// `libgenesis.so`, opened if it is not yet; `None` if calls pass. A driver must be there already.
#[inline]
pub(crate) fn genesis() -> Option<&'static Genesis> {
    match genesis_if_open() {
        None => open(),
        open => open,
    }
}

#[cold]
fn open() -> Option<&'static Genesis> {
    if !process::may_serve() {
        return None;
    }
    // A child that is forked meanwhile may not open anything, nor use what is half open.
    let _question = loader::ask()?;
    next::find_all();
    match Genesis::open() {
        Ok(genesis) => {
            if let Some(genesis) = process::set_genesis(genesis) {
                genesis.when_short(retire);
                capture::announce_all(genesis);
                // SAFETY: a function of this library. If it cannot be registered, Genesis reports
                // blocks that wait at the end as live.
                let _ = unsafe { libc::atexit(at_exit) };
            }
            report::note_library(Library::Open, None);
            genesis_if_open()
        }
        Err(reason) => {
            // Only the first thread to fail says it.
            if process::stop_serving() {
                eprintln!("genesis: {reason}; CUDA's own memory is used");
                report::note_library(Library::Missing, CString::new(reason).ok().as_deref());
            }
            None
        }
    }
}

/// When memory is short, freed blocks are given back.
extern "C" fn retire(_: *mut c_void, device: c_int, _wanted_bytes: usize) -> c_int {
    c_int::from(fence::retire(device, Need::Memory))
}

/// Before Genesis and the driver end, because they began earlier: what is allocated from now on
/// passes, and what is freed is freed at once.
extern "C" fn at_exit() {
    process::stop_serving();
    process::remove_fence();
    // Not in a child of a fork, where a lock may be held for ever.
    if genesis_if_open().is_some() {
        fence::end();
    }
}
