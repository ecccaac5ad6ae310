//! What holds for the events of a thread's present call: its call site, once it is found, its
//! stream, and the metadata that the program has set.
//!
//! Events of memory are noted under locks, where no call site may be searched, by code that knows
//! no stream. They have both if the caller tells before ([`EventStream::during`]).

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use super::{Action, Event, EventStream};
use crate::observe::sites::UNKNOWN;

/// Of an event without metadata.
const NO_METADATA: u32 = 0;

thread_local! {
    static SITE: Cell<u32> = const { Cell::new(UNKNOWN) };
    static STREAM: Cell<u64> = const { Cell::new(0) };
    static METADATA: Cell<u32> = const { Cell::new(NO_METADATA) };
}

/// The call site of this thread's present call, if it was found by [`EventStream::during`].
pub(super) fn site() -> u32 {
    SITE.try_with(Cell::get).unwrap_or(UNKNOWN)
}

impl EventStream {
    /// Runs `body`, all of whose events have the call site of now, if call sites are wanted, and
    /// the stream with the key `stream` if they have no other. No lock may be held.
    pub fn during<T>(&self, stream: u64, body: impl FnOnce() -> T) -> T {
        /// Restores what held before, also if `body` panics.
        struct Before(u32, u64);
        impl Drop for Before {
            fn drop(&mut self) {
                let _ = SITE.try_with(|site| site.set(self.0));
                let _ = STREAM.try_with(|stream| stream.set(self.1));
            }
        }
        let found = self.site();
        // A thread that is ending has neither.
        let site = SITE.try_with(|site| site.replace(found)).unwrap_or(UNKNOWN);
        let stream = STREAM.try_with(|now| now.replace(stream)).unwrap_or(0);
        let _before = Before(site, stream);
        body()
    }

    /// Has all later events of this thread's calls carry `text`; "" for none. While nobody has set
    /// any, events do not look for it.
    pub fn set_metadata(&self, text: &str) {
        let number = match text {
            "" => NO_METADATA,
            text => self.names().number(text) + 1,
        };
        if number != NO_METADATA {
            self.has_metadata.store(true, Relaxed);
        }
        let _ = METADATA.try_with(|metadata| metadata.set(number));
    }

    /// Adds what holds for the thread to an event of a block or of memory.
    #[inline]
    pub(super) fn add_thread(&self, event: &mut Event) {
        if event.site == UNKNOWN && event.action.is_of_memory() {
            event.site = site();
            if event.stream == 0 {
                event.stream = STREAM.try_with(Cell::get).unwrap_or(0);
            }
        }
        if self.has_metadata.load(Relaxed) && event.action.is_of_block_or_memory() {
            event.name = METADATA.try_with(Cell::get).unwrap_or(NO_METADATA);
        }
    }
}

impl Action {
    /// Returns true for what happens to memory within a call.
    #[inline]
    fn is_of_memory(self) -> bool {
        use Action::{Map, Ready, Release, Reserve, Unmap};
        matches!(self, Ready | Reserve | Release | Map | Unmap)
    }

    #[inline]
    fn is_of_block_or_memory(self) -> bool {
        use Action::{Allocate, Free, OutOfMemory, Pending};
        self.is_of_memory() || matches!(self, Allocate | Free | OutOfMemory | Pending)
    }
}
