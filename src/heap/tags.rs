//! Tags: names under which threads allocate, so that memory can be paused by name.
//!
//! A tag has lanes of its own, one for each stream, as a private pool has. So an extent (one handle
//! of memory) holds blocks of one tag only. Unlike a private pool's, its free memory may move to
//! any lane outside private pools: free memory has no tag. Tags share the heap's number space with
//! pools, marked by a bit. A tag is known from its first use until the heap ends.
//!
//! Each thread has a stack of tags. It may hold tags of several heaps; each heap sees its own.
//!
//! A heap without tags pays nothing: every allocation tests the device's mode anyway
//! (`heap::pools`). A device may be opened while the first tag is begun, so it starts in the mode
//! with tags, and its first allocation corrects that under the registry's lock.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::pools::PoolNumber;
use crate::base::lock::{Lock, rank};
use crate::base::{Error, Result, Status};

/// The tags of one heap.
#[derive(Debug)]
pub(super) struct Tags {
    /// The heap's number among those of the process.
    heap: u64,
    known: Lock<Vec<Tag>, { rank::LEAF }>,
    /// Whether any tag is known.
    is_used: AtomicBool,
    /// Whether a thread is changing the mappings of a whole tag or device.
    in_transition: AtomicBool,
}

#[derive(Debug)]
struct Tag {
    name: Arc<str>,
    /// How often it was resumed.
    generation: u64,
}

/// While it lives, no other thread changes the mappings of a whole tag or device.
pub(super) struct Transition<'a>(&'a Tags);

thread_local! {
    /// Heap and number of each tag that the thread has begun, innermost last.
    static BEGUN: RefCell<Vec<(u64, PoolNumber)>> = const { RefCell::new(Vec::new()) };
}

impl Tags {
    /// No tags yet, for a new heap.
    pub(super) fn new() -> Self {
        static HEAPS: AtomicU64 = AtomicU64::new(0);
        let heap = HEAPS.fetch_add(1, Relaxed);
        Self {
            heap,
            known: Lock::default(),
            is_used: AtomicBool::new(false),
            in_transition: AtomicBool::new(false),
        }
    }

    /// The number of the tag `name`, which is known from now on. If it is the first of all,
    /// `on_first` runs under the registry's lock.
    fn number_of(&self, name: &str, on_first: impl FnOnce()) -> PoolNumber {
        let mut known = self.known.lock();
        if known.is_empty() {
            self.is_used.store(true, Relaxed);
            on_first();
        }
        let position = known.iter().position(|tag| &*tag.name == name);
        let position = position.unwrap_or_else(|| {
            known.push(Tag { name: name.into(), generation: 0 });
            known.len() - 1
        });
        PoolNumber::of_tag(position as u32)
    }

    /// Begins the tag `name` for the calling thread. If it is the first of all, `on_first` runs.
    pub(super) fn begin(&self, name: &str, on_first: impl FnOnce()) -> Result<()> {
        let number = self.number_of(name, on_first);
        let begun = BEGUN.try_with(|begun| begun.borrow_mut().push((self.heap, number)));
        begun.map_err(|_| Error::invalid_argument("the thread is ending"))
    }

    /// Ends the innermost tag that the calling thread has begun.
    pub(super) fn end(&self) -> Result<()> {
        let ended = BEGUN.try_with(|begun| {
            let mut begun = begun.borrow_mut();
            let position = begun.iter().rposition(|&(heap, _)| heap == self.heap)?;
            Some(begun.remove(position))
        });
        let none = || Error::invalid_argument("the thread has begun no tag");
        ended.ok().flatten().map(drop).ok_or_else(none)
    }

    /// The number of a known tag.
    pub(super) fn find(&self, name: &str) -> Result<PoolNumber> {
        let known = self.known.lock();
        match known.iter().position(|tag| &*tag.name == name) {
            Some(position) => Ok(PoolNumber::of_tag(position as u32)),
            None => Err(unknown(name, &known)),
        }
    }

    /// The name of the tag with this number, if it is a tag's.
    pub(super) fn name(&self, number: PoolNumber) -> Option<Arc<str>> {
        let position = number.tag_position()?;
        self.known.lock().get(position as usize).map(|tag| Arc::clone(&tag.name))
    }

    /// How often a known tag was resumed.
    pub(super) fn generation(&self, name: &str) -> Result<u64> {
        let known = self.known.lock();
        let found = known.iter().find(|tag| &*tag.name == name);
        found.map(|tag| tag.generation).ok_or_else(|| unknown(name, &known))
    }

    /// Counts a resume of a known tag.
    pub(super) fn count_resume(&self, name: &str) {
        if let Some(tag) = self.known.lock().iter_mut().find(|tag| &*tag.name == name) {
            tag.generation += 1;
        }
    }

    /// The number of the innermost tag that the calling thread has begun. If no tag is known,
    /// `set` runs first, under the registry's lock.
    pub(super) fn current_unless(&self, set: impl FnOnce()) -> PoolNumber {
        if !self.is_used.load(Relaxed) {
            let known = self.known.lock();
            if known.is_empty() {
                set();
                return PoolNumber::COMMON;
            }
        }
        // A thread that is ending no longer has tags.
        let current = BEGUN.try_with(|begun| {
            let begun = begun.borrow();
            let mut ours = begun.iter().rev().filter(|&&(heap, _)| heap == self.heap);
            ours.next().map(|&(_, number)| number)
        });
        current.ok().flatten().unwrap_or(PoolNumber::COMMON)
    }

    /// Begins what only one thread at a time may do; `Busy` if another thread has.
    pub(super) fn begin_transition(&self) -> Result<Transition<'_>> {
        if self.in_transition.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            let message = "another thread is pausing or resuming a tag, or enabling a peer";
            return Err(Error::new(Status::Busy, message));
        }
        Ok(Transition(self))
    }
}

impl Drop for Transition<'_> {
    fn drop(&mut self) {
        self.0.in_transition.store(false, Release);
    }
}

#[cold]
fn unknown(name: &str, known: &[Tag]) -> Error {
    let names: Vec<String> = known.iter().map(|tag| format!("{:?}", tag.name)).collect();
    let known = if names.is_empty() {
        "none has been used".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    Error::invalid_argument(format!("no tag {name:?}: {known}"))
}
