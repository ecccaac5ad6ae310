//! The other processes that share this one's devices (`GENESIS_SHARE`).
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | joins them |
//! | `member` | tells the heap's ledger what they leave, and asks them |
//! | `letters` | questions and answers |
//! | `service` | the thread that answers, and writes levels |
//!
//! ```text
//!   short of memory                                       has memory cached
//!        ── give back so many bytes of this device ────▶   releases what is known to be idle
//!        ◀── so many ───────────────────────────────────   at once, waiting for no stream
//!   writes them down as promised to it; takes them
//! ```
//!
//! What each holds is in the device's register (`device_register`), where every process writes its
//! own entry. Nothing of this is on the path of a request that is served from free blocks: an entry
//! is written when memory is charged, before the driver is asked, and a read is a few system calls.
//! Without the option there is no file, no mailbox and no thread.

mod letters;
mod member;
mod service;

use std::sync::Arc;

use self::member::Member;
use crate::config::{LogLevel, Settings};
use crate::driver::Device;
use crate::heap::{Messages, Neighbours};

/// Joins those who share `device`, if `settings` ask for it. A failure is a message: the process then
/// goes on alone.
pub(super) fn join(
    device: &dyn Device,
    settings: &Settings,
    messages: &mut Messages,
) -> Option<Arc<dyn Neighbours>> {
    let name = settings.share.as_deref()?;
    let mut warn = |what: String| {
        messages
            .push((LogLevel::Warn, format!("device {}: GENESIS_SHARE{what}", device.ordinal())));
    };
    let opened = service::open().map_err(|error| format!("no mailbox: {error}"));
    let (member, missing) = opened
        .and_then(|address| Member::join(device, name, settings, address))
        .map_err(|reason| warn(format!(": not shared: {reason}")))
        .ok()?;
    if let Some(missing) = missing {
        warn(format!("_GUARANTEE: {missing} less than that: the others have been guaranteed them"));
    }
    let member = Arc::new(member);
    service::serve(Arc::clone(&member));
    Some(member)
}
