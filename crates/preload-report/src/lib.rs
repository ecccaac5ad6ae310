//! The file through which `libgenesis_preload.so` tells `genesis run` what it did in each process.
//!
//! `genesis run` makes the file ([`Report::create`]) and names it in [`PATH_VARIABLE`], which
//! every process of the program inherits. Each process maps a slot of it ([`Slot::claim`]) and
//! counts there with atomic additions. The kernel keeps them however the process ends: by `_exit`,
//! by a crash, or by becoming another program. When the program has ended, the command reads all
//! slots ([`Report::processes`]).
//!
//! ```text
//! | header                    | slot 0          | slot 1          | …   each on pages of its own
//!   magic, fingerprint,         process, library,
//!   slots claimed               bytes, calls
//! ```
//!
//! The writer's side allocates no host memory and takes no lock, so a slot may be claimed while a
//! library is loaded and in the child of a fork. A file that another version of this crate laid
//! out gets a mark that says so, and is not written to otherwise.
//!
//! The mapped structures are all atomics; the unsafe code is the mapping itself (`layout.rs`). The
//! file must not be made shorter while it is in use, so only processes of its user may write to it.

mod calls;
mod layout;
mod report;
mod slot;

use std::ffi::CStr;

pub use calls::{CALLS, call_index};
pub use layout::{Library, MOST_PROCESSES};
pub use report::{CallCount, Process, Report};
pub use slot::Slot;

/// The environment variable that names the file.
pub const PATH_VARIABLE: &CStr = c"GENESIS_PRELOAD_REPORT";
