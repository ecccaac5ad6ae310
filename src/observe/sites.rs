//! The table of call sites: numbers for the stacks from which calls were made.
//!
//! A stack is a slice of words, innermost first; the layer `callsite` gives the words their
//! meaning. Two stacks are the same site if they are equal word by word.
//!
//! [`StackMap`] maps a stack to a number. It only grows, so a known stack is found without a lock
//! and without host allocation. It is an open hash table of atomics, at least half empty; a slot
//! holds 32 bits of the hash and the number of an entry. An entry is written before its slot, and
//! neither ever changes. One lock orders threads that add.
//!
//! [`SiteTable`] numbers stacks in order of appearance. It has room for [`MOST_STACKS`]; all later
//! ones are one site, [`OTHERS`]. Finding a known stack then costs no more.
//!
//! **Not done.** Two stacks with different words and the same frames are two sites.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use genesis_profile::model::{Frame, Site};
use once_cell::sync::OnceCell;

use crate::base::hash::{mix, spread};
use crate::base::lock::{Lock, rank};

/// The number of the unknown site.
pub const UNKNOWN: u32 = 0;
/// The number of the site for all stacks without room.
pub const OTHERS: u32 = 1;
/// The number of the first stack.
pub const FIRST: u32 = 2;
/// The most stacks with numbers of their own.
pub const MOST_STACKS: usize = 1 << 16;

const SLOTS: usize = 2 * MOST_STACKS;
const CHUNK_ENTRIES: usize = 1 << 10;
const CHUNKS: usize = MOST_STACKS / CHUNK_ENTRIES;
const HASH_MASK: u64 = 0xFFFF_FFFF << 32;

/// A map from stacks to numbers that only grows. All threads.
#[derive(Debug)]
pub struct StackMap {
    /// 0 if empty, else the upper half of a hash, and the place of an entry + 1.
    slots: OnceCell<Box<[AtomicU64]>>,
    chunks: [OnceCell<Box<[OnceCell<Entry>]>>; CHUNKS],
    count: AtomicU32,
    adding: Lock<(), { rank::LEAF }>,
}

#[derive(Debug)]
struct Entry {
    stack: Box<[u64]>,
    number: u32,
}

impl StackMap {
    /// An empty map; it takes no memory before the first stack.
    pub const fn new() -> Self {
        Self {
            slots: OnceCell::new(),
            chunks: [const { OnceCell::new() }; CHUNKS],
            count: AtomicU32::new(0),
            adding: Lock::new(()),
        }
    }

    /// The number of `stack`, if it is there.
    #[inline]
    pub fn find(&self, stack: &[u64]) -> Option<u32> {
        self.search(stack, hash(stack)).ok()
    }

    /// Adds `stack` with the number that `number` returns for its place, which is 0 for the first.
    /// Returns its number, which another thread may have added. `None` if there is no room.
    pub fn add(&self, stack: &[u64], number: impl FnOnce(u32) -> u32) -> Option<u32> {
        let hash = hash(stack);
        let slots = self.slots();
        let own: Box<[u64]> = stack.into();
        let chunk_of = |place: usize| {
            let empty = || (0..CHUNK_ENTRIES).map(|_| OnceCell::new()).collect();
            self.chunks.get(place / CHUNK_ENTRIES).map(|chunk| chunk.get_or_init(empty))
        };
        // Outside of the lock, because it is large.
        chunk_of(self.len())?;
        let _adding = self.adding.lock();
        let at = match self.search(stack, hash) {
            Ok(number) => return Some(number),
            Err(at) => at?,
        };
        let place = self.len();
        let number = number(place as u32);
        let entry = chunk_of(place)?.get(place % CHUNK_ENTRIES)?;
        let _ = entry.set(Entry { stack: own, number });
        slots.get(at)?.store(hash & HASH_MASK | (place as u64 + 1), Release);
        self.count.store(place as u32 + 1, Release);
        Some(number)
    }

    /// The number of stacks.
    pub fn len(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stack at `place`, in the order in which they were added.
    pub fn stack(&self, place: usize) -> Option<&[u64]> {
        self.entry(place).map(|entry| &*entry.stack)
    }

    /// The number of `stack`, or else the slot that it would have, if there are slots.
    #[inline]
    fn search(&self, stack: &[u64], hash: u64) -> Result<u32, Option<usize>> {
        let slots = self.slots.get().ok_or(None)?;
        let mut at = hash as usize % SLOTS;
        loop {
            // At least half of them are empty, so one is found.
            let slot = slots[at].load(Acquire);
            if slot == 0 {
                return Err(Some(at));
            }
            if (slot ^ hash) & HASH_MASK == 0
                && let Some(entry) = self.entry((slot & !HASH_MASK) as usize - 1)
                && *entry.stack == *stack
            {
                return Ok(entry.number);
            }
            at = (at + 1) % SLOTS;
        }
    }

    #[inline]
    fn entry(&self, place: usize) -> Option<&Entry> {
        self.chunks.get(place / CHUNK_ENTRIES)?.get()?.get(place % CHUNK_ENTRIES)?.get()
    }

    fn slots(&self) -> &[AtomicU64] {
        self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Default for StackMap {
    fn default() -> Self {
        Self::new()
    }
}

/// The hash of a stack.
#[inline]
fn hash(stack: &[u64]) -> u64 {
    mix(stack.iter().fold(stack.len() as u64, |hash, &word| {
        let product = spread(hash ^ word);
        product ^ product >> 29
    }))
}

/// The sites of a process. All threads.
#[derive(Debug, Default)]
pub struct SiteTable {
    stacks: StackMap,
    others: AtomicU64,
}

impl SiteTable {
    /// An empty table.
    pub const fn new() -> Self {
        Self { stacks: StackMap::new(), others: AtomicU64::new(0) }
    }

    /// The number of the site with `stack`, a new one if necessary; [`UNKNOWN`] for no words.
    #[inline]
    pub fn intern(&self, stack: &[u64]) -> u32 {
        match self.stacks.find(stack) {
            Some(number) => number,
            None => self.add(stack),
        }
    }

    #[cold]
    fn add(&self, stack: &[u64]) -> u32 {
        if stack.is_empty() {
            return UNKNOWN;
        }
        self.stacks.add(stack, |place| place + FIRST).unwrap_or_else(|| {
            self.others.fetch_add(1, Relaxed);
            OTHERS
        })
    }

    /// The number of sites; each number is below this.
    pub fn len(&self) -> usize {
        self.stacks.len() + FIRST as usize
    }

    /// Returns true if no stack is known.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// How often there was no room for a stack.
    pub fn others(&self) -> u64 {
        self.others.load(Relaxed)
    }

    /// The stack of the site `number`; none for [`UNKNOWN`] and [`OTHERS`].
    pub fn stack(&self, number: u32) -> Option<&[u64]> {
        self.stacks.stack(number.checked_sub(FIRST)? as usize)
    }
}

/// A site in one line: its most telling frame, such as "train.py:12 (step)"; "" if unknown.
pub fn location(site: &Site) -> String {
    site.telling_frame().map_or_else(String::new, |frame| frame_text(&site.frames[frame]))
}

/// A frame in one line, such as "train.py:12 (step)".
pub fn frame_text(frame: &Frame) -> String {
    match (&*frame.function, frame.line) {
        ("", 0) => frame.file.clone(),
        ("", line) => format!("{}:{line}", frame.file),
        (function, 0) if frame.file.is_empty() => function.to_owned(),
        (function, 0) => format!("{} ({function})", frame.file),
        (function, line) => format!("{}:{line} ({function})", frame.file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_keeps_its_number_and_no_two_share_one() {
        let table = SiteTable::new();
        assert_eq!((table.intern(&[]), table.len()), (UNKNOWN, 2));
        let stacks: [&[u64]; 5] = [&[1], &[1, 2], &[2, 1], &[0], &[0, 0]];
        for _ in 0..2 {
            for (number, stack) in (FIRST..).zip(stacks) {
                assert_eq!(table.intern(stack), number);
                assert_eq!(table.stack(number), Some(stack));
            }
        }
        assert_eq!((table.len(), table.others()), (7, 0));
        assert_eq!([UNKNOWN, OTHERS, 7].map(|number| table.stack(number)), [None; 3]);
    }

    #[test]
    fn what_has_no_room_is_the_others_and_what_is_there_stays() {
        let table = SiteTable::new();
        let stack = |number: usize| [number as u64, 7, number as u64 % 3];
        for number in 0..MOST_STACKS {
            assert_eq!(table.intern(&stack(number)) as usize, number + FIRST as usize);
        }
        for number in [MOST_STACKS, MOST_STACKS + 1, MOST_STACKS] {
            assert_eq!(table.intern(&stack(number)), OTHERS);
        }
        assert_eq!((table.len(), table.others()), (MOST_STACKS + 2, 3));
        for number in (0..MOST_STACKS).step_by(97) {
            assert_eq!(table.intern(&stack(number)) as usize, number + FIRST as usize);
        }
    }

    #[test]
    fn threads_agree_on_numbers() {
        const STACKS: u64 = 3000;
        let table = SiteTable::new();
        let numbers =
            || -> Vec<u32> { (0..STACKS).map(|number| table.intern(&[number, !number])).collect() };
        let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(numbers)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(table.len(), STACKS as usize + 2);
        for (number, stack) in all[0].iter().zip(0..) {
            assert_eq!(table.stack(*number), Some(&[stack, !stack][..]));
        }
        assert!(all.iter().all(|numbers| *numbers == all[0]));
    }

    #[test]
    fn a_location_is_in_the_users_code_where_there_is_some() {
        let frame = |file: &str, line, function: &str| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        };
        let torch = frame("/v/lib/python3.11/site-packages/torch/nn/linear.py", 134, "forward");
        let own = frame("/home/me/train.py", 12, "step");
        let object = frame("/usr/lib/libthing.so", 0, "0x1234");
        let of = |frames: &[&Frame]| {
            location(&Site { frames: frames.iter().copied().cloned().collect() })
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[&torch, &own]), "/home/me/train.py:12 (step)");
        assert_eq!(of(&[&object, &own]), "/home/me/train.py:12 (step)");
        assert_eq!(of(&[&object]), "/usr/lib/libthing.so (0x1234)");
        assert_eq!(of(&[&frame("", 0, "main"), &object]), "main");
        let innermost = "/v/lib/python3.11/site-packages/torch/nn/linear.py:134 (forward)";
        assert_eq!(of(&[&torch]), innermost);
        assert_eq!(of(&[&frame("a.c", 3, ""), &torch]), "a.c:3");
        let node = frame("/v/torch/lib/libtorch_cpu.so", 0, "MmBackward0::apply");
        let backward = "/v/torch/lib/libtorch_cpu.so (MmBackward0::apply)";
        assert_eq!(of(&[&object, &node, &object]), backward);
    }
}
