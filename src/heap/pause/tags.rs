//! Tags: names that threads give their allocations, so that memory can be paused by name.
//!
//! A tag is a kind of pool: its blocks lie in lanes of its own, one for each stream, so that an
//! extent holds blocks of one tag only. Unlike a private pool's, their memory is as free to move
//! as any: what is free in it has no tag. Tags are numbered heap-wide in the space of pools'
//! numbers, apart by a bit, and are known from their first use for as long as the heap is.
//!
//! Each thread has a stack of tags. It holds numbers of several heaps, where there are several;
//! each heap sees its own.
//!
//! A heap that never sees a tag pays nothing: a device's mode, which every allocation looks at
//! (`heap::pools`), says so. Devices start out as if there were tags, since they may be opened
//! while the first is begun, and the first allocation corrects that under the registry's lock.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::super::pools::PoolNumber;
use crate::base::lock::{Lock, rank};
use crate::base::{Error, Result, Status};

/// The tags of one heap.
#[derive(Debug)]
pub(in super::super) struct Tags {
    /// The heap's number among those of the process.
    heap: u64,
    known: Lock<Vec<Tag>, { rank::LEAF }>,
    /// Whether any is known.
    is_used: AtomicBool,
    /// Whether somebody is changing what is mapped, of a whole tag or device.
    in_transition: AtomicBool,
}

#[derive(Debug)]
struct Tag {
    name: Arc<str>,
    /// How often its memory has come back.
    generation: u64,
}

/// While it lives, nobody else changes what is mapped of a whole tag or device.
pub(super) struct Transition<'a>(&'a Tags);

thread_local! {
    /// The heaps and pools of the tags that the thread has begun, innermost last.
    static BEGUN: RefCell<Vec<(u64, PoolNumber)>> = const { RefCell::new(Vec::new()) };
}

impl Tags {
    /// None yet, of a heap of its own.
    pub(in super::super) fn new() -> Self {
        static HEAPS: AtomicU64 = AtomicU64::new(0);
        let heap = HEAPS.fetch_add(1, Relaxed);
        Self {
            heap,
            known: Lock::default(),
            is_used: AtomicBool::new(false),
            in_transition: AtomicBool::new(false),
        }
    }

    /// The pool of the tag `name`, which is known from now on; `on_first` runs, under the
    /// registry's lock, when it is the first of all.
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

    /// Begins the tag `name` for the calling thread; `on_first` runs if it is the first of all.
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

    /// The pool of a known tag.
    pub(super) fn find(&self, name: &str) -> Result<PoolNumber> {
        let known = self.known.lock();
        match known.iter().position(|tag| &*tag.name == name) {
            Some(position) => Ok(PoolNumber::of_tag(position as u32)),
            None => Err(unknown(name, &known)),
        }
    }

    /// The name of the tag whose pool `number` is, if it is a tag's.
    pub(in super::super) fn name(&self, number: PoolNumber) -> Option<Arc<str>> {
        let position = number.tag_position()?;
        self.known.lock().get(position as usize).map(|tag| Arc::clone(&tag.name))
    }

    /// How often memory of a known tag has come back.
    pub(super) fn generation(&self, name: &str) -> Result<u64> {
        let known = self.known.lock();
        let found = known.iter().find(|tag| &*tag.name == name);
        found.map(|tag| tag.generation).ok_or_else(|| unknown(name, &known))
    }

    /// Counts that memory of a known tag has come back.
    pub(super) fn count_resume(&self, name: &str) {
        if let Some(tag) = self.known.lock().iter_mut().find(|tag| &*tag.name == name) {
            tag.generation += 1;
        }
    }

    /// The pool of the innermost tag that the calling thread has begun. If no tag is known, `set`
    /// runs first, under the registry's lock.
    pub(in super::super) fn current_unless(&self, set: impl FnOnce()) -> PoolNumber {
        if !self.is_used.load(Relaxed) {
            let known = self.known.lock();
            if known.is_empty() {
                set();
                return PoolNumber::COMMON;
            }
        }
        // A thread that is ending has no tags any more.
        let current = BEGUN.try_with(|begun| {
            let begun = begun.borrow();
            let mut ours = begun.iter().rev().filter(|&&(heap, _)| heap == self.heap);
            ours.next().map(|&(_, number)| number)
        });
        current.ok().flatten().unwrap_or(PoolNumber::COMMON)
    }

    /// Begins what one thread at a time may do.
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
    let known = match names.is_empty() {
        true => "none has been used".to_owned(),
        false => format!("there are {}", names.join(", ")),
    };
    Error::invalid_argument(format!("no tag {name:?}: {known}"))
}
