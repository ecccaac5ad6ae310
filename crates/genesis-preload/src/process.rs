//! What this library is in a process: whether it serves, and the slot it reports to.
//!
//! Nothing is opened when the library is loaded. `libgenesis.so` is, at the first call that could
//! be served; from then on one load says that it is there. It is not, and every call passes to
//! CUDA, with `GENESIS_PRELOAD=off`, where the library cannot be opened or does not work on CUDA,
//! and in a child of a fork, where CUDA does not work either.
//!
//! Opening takes no lock: the loader has its own, and a thread that holds that one may call us.
//! Two threads may open at once, find the same library, and the first to be done counts.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};

use preload_report::{Library, PATH_VARIABLE, Slot};

use crate::genesis::Genesis;
use crate::{capture, fence, loader, next};

/// Nothing is known of the environment yet.
const UNREAD: u8 = 0;
/// Calls may be served.
const SERVING: u8 = 1;
/// Every call passes.
const PASSING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static GENESIS: AtomicPtr<Genesis> = AtomicPtr::new(ptr::null_mut());
/// Whether the process is a fork of one that used it, or a fork of such a fork.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
static HAS_FENCE: AtomicBool = AtomicBool::new(true);
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Whether calls may be served at all.
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

/// `libgenesis.so`, opened if need be; `None` if calls pass. A driver must be there already.
#[inline]
pub(crate) fn genesis() -> Option<&'static Genesis> {
    match genesis_if_open() {
        None => open(),
        open => open,
    }
}

/// Whether freed blocks wait for a fence.
#[inline]
pub(crate) fn has_fence() -> bool {
    HAS_FENCE.load(Relaxed)
}

/// Where this process reports to, if anywhere.
#[inline]
pub(crate) fn slot() -> Option<&'static Slot> {
    // SAFETY: null, or a box that was leaked.
    unsafe { SLOT.load(Acquire).as_ref() }
}

#[cold]
fn open() -> Option<&'static Genesis> {
    if !may_serve() {
        return None;
    }
    // A child that is forked meanwhile may not open anything, nor use what is half open.
    let _question = loader::ask()?;
    next::find_all();
    match Genesis::open() {
        Ok(genesis) => {
            let genesis = Box::into_raw(Box::new(genesis));
            let former = GENESIS.compare_exchange(ptr::null_mut(), genesis, AcqRel, Acquire);
            match former {
                // SAFETY: never freed from now on.
                Ok(_) => unsafe {
                    (*genesis).begin();
                    capture::announce(&*genesis);
                    // Where it cannot be registered, Genesis takes for live what waits at the end.
                    let _ = libc::atexit(at_exit);
                },
                // SAFETY: made here, and nobody else has seen it.
                Err(_) => drop(unsafe { Box::from_raw(genesis) }),
            }
            note_library(Library::Open, None);
            genesis_if_open()
        }
        Err(reason) => {
            // The first to be told says it.
            if STATE.swap(PASSING, AcqRel) == SERVING {
                eprintln!("genesis: {reason}; CUDA's own memory is used");
                note_library(Library::Missing, CString::new(reason).ok().as_deref());
            }
            None
        }
    }
}

/// Reads the environment; whether calls may be served.
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

fn is_off(name: &CStr) -> bool {
    variable(name).is_some_and(|value| value.to_bytes().trim_ascii() == b"off")
}

/// What the environment says of `name`.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a NUL-terminated name; the text is the process's own. A program that changes its
    // environment on another thread meanwhile is in error with any library.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

fn note_library(library: Library, error: Option<&CStr>) {
    if let Some(slot) = slot() {
        slot.set_library(library, error);
    }
}

/// What a process that begins has to say of `libgenesis.so`.
fn standing() -> Library {
    match may_serve() {
        true => Library::NotAsked,
        false if IS_FORKED.load(Relaxed) => Library::ForkedChild,
        false if is_off(c"GENESIS_PRELOAD") => Library::Off,
        false => Library::Missing,
    }
}

/// Takes a slot in the report, if there is one.
fn claim_slot(library: Library) {
    let Some(path) = variable(PATH_VARIABLE) else { return };
    if path.is_empty() || path == c"off" {
        return;
    }
    let slot = Slot::claim(path).map_or(ptr::null_mut(), |slot| Box::into_raw(Box::new(slot)));
    // What was there is the parent's: other processes have a slot of their own.
    SLOT.store(slot, Release);
    note_library(library, None);
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
        claim_slot(standing());
    }
    if !IS_WATCHED.swap(true, AcqRel) {
        // SAFETY: the handler stores to atomics, makes system calls and asks for a little memory,
        // all of which the C library allows a child. Where it cannot be registered, a fork is as
        // unguarded as with CUDA itself.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Before Genesis and the driver see the end, as they began before: what is allocated now passes,
/// and what is freed is freed at once.
extern "C" fn at_exit() {
    STATE.store(PASSING, Release);
    HAS_FENCE.store(false, Relaxed);
    // Not in a child of a fork, where a lock may be held for ever.
    if genesis_if_open().is_some() {
        fence::end();
    }
}

/// When the library is loaded: takes a slot where somebody wants a report, and else nothing.
extern "C" fn at_load() {
    if variable(PATH_VARIABLE).is_some() {
        claim_slot(standing());
        watch_for_fork();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
