//! The history that PyTorch's snapshots show. `genesis.torch` calls these functions for
//! `torch.cuda.memory._record_memory_history` and `_snapshot`.

use std::ffi::{c_char, c_int};

use crate::base::{Error, Result, Status};
use crate::config::CallSites;
use crate::ffi::boundary::{self, text};
use crate::instance::history::{self, Stacks};
use crate::instance::{self, EVENTS};

/// Records a history of all calls from now on, beside the profile if one is being made.
///
/// At least the latest `most_events` events are kept. With `stacks` 1 those of allocations have
/// stacks, with 2 those of frees also, with 0 none. `call_sites` is the kind of the stacks, as for
/// GENESIS_CALL_SITES, in force until the history ends. If a history is being recorded, it
/// continues with these settings, without its earlier events if `clears` is not 0.
///
/// # Safety
/// `call_sites` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_torch_history_start(
    most_events: usize,
    stacks: c_int,
    call_sites: *const c_char,
    clears: c_int,
) -> Status {
    boundary::demanding(|| {
        let stacks = match stacks {
            0 => Stacks::Off,
            1 => Stacks::Allocations,
            2 => Stacks::All,
            _ => return Err(Error::invalid_argument(format!("stacks={stacks}: valid: 0, 1, 2"))),
        };
        // SAFETY: the caller's contract.
        let call_sites = kind_of_stacks(unsafe { text(call_sites, "kind of the stacks") }?)?;
        history::start(most_events, stacks, call_sites, clears != 0)
    })
}

fn kind_of_stacks(name: &str) -> Result<CallSites> {
    let known = CallSites::ALL.iter().find(|known| known.name() == name);
    known
        .copied()
        .ok_or_else(|| Error::invalid_argument(format!("{name}: valid: off, python, native, all")))
}

/// Ends the history and drops it. Does nothing if none is being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_history_stop() -> Status {
    boundary::status(history::stop)
}

/// Writes the present memory of every device, and the history if one is being recorded, to the file
/// at `path`, as `genesis_snapshot_write` does. It neither reads nor changes the profile.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_torch_history_write(path: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| history::write(unsafe { text(path, "path") }?))
}

/// Has the history note `metadata`, "" for none, at all later calls of this thread.
///
/// # Safety
/// `metadata` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_torch_metadata_set(metadata: *const c_char) -> Status {
    boundary::status(|| {
        instance::heap()?;
        // SAFETY: the caller's contract.
        EVENTS.set_metadata(unsafe { text(metadata, "metadata") }?);
        Ok(())
    })
}
