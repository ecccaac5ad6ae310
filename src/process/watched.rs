//! Descriptors that forked children close, because a copy in a child would keep what ends with the
//! process from ending: a connection, or a lock of a file.

use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// How many descriptors a child closes at most; copies of more stay open there.
const MOST_WATCHED: usize = 256;

static WATCHED: [AtomicI32; MOST_WATCHED] = [const { AtomicI32::new(-1) }; MOST_WATCHED];

/// A descriptor that forked children close, until this is dropped: before the descriptor is closed,
/// because its number may then be another one's.
#[derive(Debug)]
pub(crate) struct Watched(Option<usize>);

impl Watched {
    /// Has children close `descriptor`, which only the library uses.
    pub(crate) fn new(descriptor: RawFd) -> Self {
        static REGISTERED: Once = Once::new();
        extern "C" fn in_child() {
            for place in &WATCHED {
                let descriptor = place.swap(-1, SeqCst);
                if descriptor >= 0 {
                    // SAFETY: the child's copy of a descriptor that only this file uses; no call
                    // of the library uses it in a child, and `close` may be called there.
                    unsafe { libc::close(descriptor) };
                }
            }
        }
        // SAFETY: the handler does only what a child may do in any state. The library is loaded as
        // long as it has a line, because its threads keep it loaded.
        REGISTERED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
        let take = |place: &&AtomicI32| place.compare_exchange(-1, descriptor, SeqCst, SeqCst);
        Self(WATCHED.iter().position(|place| take(&place).is_ok()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            WATCHED[place].store(-1, SeqCst);
        }
    }
}
