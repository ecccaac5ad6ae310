//! What this library is in a process: whether it serves calls, and with which `libgenesis.so`.
//!
//! Nothing is opened when the library is loaded. `libgenesis.so` is opened at the first call that
//! could be served (`opening`); from then on one load finds it. Every call passes to CUDA
//!
//! - with `GENESIS_PRELOAD=off`,
//! - if `libgenesis.so` cannot be opened or does not work on CUDA,
//! - in a child of a fork, where CUDA does not work either.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};

use preload_report::Library;

use crate::environment::is_off;
use crate::genesis::Genesis;
use crate::{loader, report};

/// The environment has not been read yet.
const UNREAD: u8 = 0;
/// Calls may be served.
const SERVING: u8 = 1;
/// Every call passes.
const PASSING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static GENESIS: AtomicPtr<Genesis> = AtomicPtr::new(ptr::null_mut());
/// True in a fork of a process that used it, and in forks of such a fork.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
static HAS_FENCE: AtomicBool = AtomicBool::new(true);

/// Returns true if calls may be served at all.
pub(crate) fn may_serve() -> bool {
    match STATE.load(Acquire) {
        UNREAD => read_environment(),
        state => state == SERVING,
    }
}

/// `libgenesis.so` if it is open and may be used.
#[inline]
pub(crate) fn genesis_if_open() -> Option<&'static Genesis> {
    // SAFETY: null, or a box that was leaked.
    unsafe { GENESIS.load(Acquire).as_ref() }
}

/// Returns true if freed blocks wait for a fence.
#[inline]
pub(crate) fn has_fence() -> bool {
    HAS_FENCE.load(Relaxed)
}

/// `libgenesis.so` is open; `None` if another thread was faster, whose is used then.
pub(crate) fn set_genesis(genesis: Genesis) -> Option<&'static Genesis> {
    let genesis = Box::into_raw(Box::new(genesis));
    // SAFETY: made here. What is in place is never freed; the loser of a race was seen by no other
    // thread.
    unsafe {
        match GENESIS.compare_exchange(ptr::null_mut(), genesis, AcqRel, Acquire) {
            Ok(_) => Some(&*genesis),
            Err(_) => {
                drop(Box::from_raw(genesis));
                None
            }
        }
    }
}

/// From now on every call passes; returns true if calls were served until now.
pub(crate) fn stop_serving() -> bool {
    STATE.swap(PASSING, AcqRel) == SERVING
}

/// From now on freed blocks are given back at once.
pub(crate) fn remove_fence() {
    HAS_FENCE.store(false, Relaxed);
}

/// Reads the environment; returns true if calls may be served.
#[cold]
fn read_environment() -> bool {
    // Before the loader is asked for anything.
    watch_for_fork();
    HAS_FENCE.store(!is_off(c"GENESIS_PRELOAD_FENCE"), Relaxed);
    let state = if is_off(c"GENESIS_PRELOAD") { PASSING } else { SERVING };
    // Another thread may have read the same, and more may have happened since.
    let _ = STATE.compare_exchange(UNREAD, state, AcqRel, Acquire);
    STATE.load(Acquire) == SERVING
}

/// What a process that begins reports of `libgenesis.so`.
fn standing() -> Library {
    if may_serve() {
        Library::NotAsked
    } else if IS_FORKED.load(Relaxed) {
        Library::ForkedChild
    } else if is_off(c"GENESIS_PRELOAD") {
        Library::Off
    } else {
        Library::Missing
    }
}

/// In a child of a fork every call passes.
fn watch_for_fork() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        let is_lost = loader::note_fork();
        if !GENESIS.swap(ptr::null_mut(), AcqRel).is_null() || is_lost {
            STATE.store(PASSING, Release);
            IS_FORKED.store(true, Relaxed);
        }
        report::claim_slot(standing());
    }
    if !IS_WATCHED.swap(true, AcqRel) {
        // SAFETY: the handler stores to atomics, makes system calls and asks for a little memory,
        // all of which the C library allows a child. If it cannot be registered, a fork is as
        // unguarded as with CUDA itself.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// When the library is loaded: takes a slot of the report if one is wanted, and does nothing else.
extern "C" fn at_load() {
    if report::is_wanted() {
        report::claim_slot(standing());
        watch_for_fork();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
