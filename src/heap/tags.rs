//! Tags: names under which threads allocate, so that memory can be paused and limited by name.
//!
//! Each thread has a stack of tags. It may hold tags of several heaps; each heap sees its own. The
//! *nesting* of a request is the innermost tag, what is kept of the memory while that is paused, and
//! the set of the tags around it. The nameless tag ends the others' reach: under it, requests have
//! no tag. Threads that have begun none may have one by default. A nesting has lanes
//! of its own, one for each stream, as a private pool has. So an extent (one handle of memory)
//! holds blocks of one tag only, and a block's lane leads to all tags that it counts for. Unlike a
//! private pool's, its free memory may move to any lane outside private pools: free memory has no
//! tag. Nestings share the heap's number space with pools, marked by a bit. A tag is known from its
//! first use until the heap ends.
//!
//! A heap without tags pays nothing: every allocation tests the device's mode anyway
//! (`heap::pools`), and every free tests what it must heed (`heap::policy`). A device may be opened
//! while the first tag is begun, so it starts in the mode with tags, and its first allocation
//! corrects that under the registry's lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::account::Account;
use super::paused_extent::PausedExtent;
use super::pools::{Mark, PoolNumber, Pools};
use crate::base::lock::{Lock, rank};
use crate::base::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::base::sync::thread_local;
use crate::base::{Backup, DeviceOrdinal, Error, Result, Status};

/// The tags of one heap.
#[derive(Debug)]
pub(super) struct Tags {
    /// The heap's number among those of the process.
    heap: u64,
    pub(super) known: Lock<Known, { rank::LEAF }>,
    /// Whether any tag is known.
    is_used: AtomicBool,
    /// Whether a thread is changing the mappings of a whole tag or device.
    in_transition: AtomicBool,
    /// The number of the nesting of threads that have begun no tag.
    default: AtomicU32,
    /// The free bytes of a device that requests under tags leave to others.
    pub(super) margin_bytes: AtomicU64,
    /// Whether backups stay after memory was resumed.
    pub(super) retains: AtomicBool,
}

/// The registry.
#[derive(Debug)]
pub(super) struct Known {
    device_count: usize,
    tags: Vec<Tag>,
    positions: HashMap<Arc<str>, u32>,
    nestings: Vec<Arc<Nesting>>,
    numbers: HashMap<Arc<Nesting>, PoolNumber>,
}

#[derive(Debug)]
struct Tag {
    name: Arc<str>,
    /// How often it was resumed.
    generation: u64,
    /// What it holds, by device.
    accounts: Vec<Account>,
}

/// Tags by their positions, each once.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nesting {
    innermost: u32,
    backup: Backup,
    /// Sorted.
    around: Vec<u32>,
}

/// All addresses.
const EVERYWHERE: Range<u64> = 0..u64::MAX;

/// The memory of one tag, or of all, or what of it is one block's.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The tag's position; `None` for all.
    only: Option<u32>,
    /// The nestings of which it is.
    marks: HashMap<PoolNumber, Mark>,
    /// Where it begins.
    within: Range<u64>,
}

impl Chosen {
    /// What of it begins within these addresses.
    pub(super) fn within(self, range: Range<u64>) -> Self {
        Self { within: range, ..self }
    }

    /// The addresses within which it begins.
    pub(super) fn range(&self) -> &Range<u64> {
        &self.within
    }

    /// Returns true if it is chosen by its addresses, and not only by its tags.
    pub(super) fn is_block(&self) -> bool {
        self.within != EVERYWHERE
    }

    /// Returns true if memory of the tag at `position` is among it.
    fn has(&self, position: u32) -> bool {
        self.only.is_none_or(|only| only == position)
    }

    /// Returns true if a paused extent is among it.
    pub(super) fn has_record(&self, record: &PausedExtent) -> bool {
        self.has(record.mark.tag) && self.within.contains(&record.address)
    }

    /// Whose memory the lanes of `number` have, a nesting or one of `pools`, if it is chosen.
    pub(super) fn mark(&self, pools: &Pools, number: PoolNumber) -> Option<Mark> {
        if number.is_private() {
            pools.mark(number).filter(|mark| self.has(mark.tag))
        } else {
            self.marks.get(&number).copied()
        }
    }
}

/// While it lives, no other thread changes the mappings of a whole tag or device.
pub(super) struct Transition<'a>(&'a Tags);

thread_local! {
    /// Heap and nesting of each tag that the thread has begun, innermost last.
    static BEGUN: RefCell<Vec<(u64, PoolNumber)>> = const { RefCell::new(Vec::new()) };
}

impl Nesting {
    fn new(innermost: u32, backup: Backup, outer: Option<&Self>) -> Self {
        let mut around: Vec<u32> = outer.map_or(Vec::new(), |outer| outer.tags().collect());
        around.retain(|&tag| tag != innermost);
        around.sort_unstable();
        Self { innermost, backup, around }
    }

    /// The positions of the tags, the innermost first.
    fn tags(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.innermost).chain(self.around.iter().copied())
    }
}

impl Known {
    fn find(&self, name: &str) -> Result<u32> {
        self.positions.get(name).copied().ok_or_else(|| unknown(name, &self.tags))
    }

    /// The position of the tag `name`, which is known from now on.
    fn position_of(&mut self, name: &str) -> u32 {
        if let Some(&position) = self.positions.get(name) {
            return position;
        }
        let (position, name) = (self.tags.len() as u32, Arc::<str>::from(name));
        let accounts = vec![Account::default(); self.device_count];
        self.positions.insert(Arc::clone(&name), position);
        self.tags.push(Tag { name, generation: 0, accounts });
        position
    }

    fn nesting(&self, number: PoolNumber) -> Option<&Arc<Nesting>> {
        self.nestings.get(number.nesting_position()? as usize)
    }

    /// The number of a nesting, which is known from now on.
    fn number_of(&mut self, nesting: Nesting) -> PoolNumber {
        if let Some(&number) = self.numbers.get(&nesting) {
            return number;
        }
        let (nesting, number) = (Arc::new(nesting), PoolNumber::of_nesting(self.nestings.len()));
        self.nestings.push(Arc::clone(&nesting));
        self.numbers.insert(nesting, number);
        number
    }

    /// The accounts on `device` of the tags of a nesting, the innermost first, with their names.
    pub(super) fn accounts<E>(
        &mut self,
        number: PoolNumber,
        device: DeviceOrdinal,
        mut visit: impl FnMut(&Arc<str>, &mut Account) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some(nesting) = self.nesting(number).map(Arc::clone) else { return Ok(()) };
        nesting.tags().try_for_each(|position| {
            let Tag { name, accounts, .. } = &mut self.tags[position as usize];
            visit(name, &mut accounts[device.index()])
        })
    }

    /// All accounts on `device`, in the order in which their tags became known.
    pub(super) fn all_accounts(
        &self,
        device: DeviceOrdinal,
    ) -> impl Iterator<Item = (&Arc<str>, &Account)> {
        self.tags.iter().map(move |tag| (&tag.name, &tag.accounts[device.index()]))
    }

    /// The account on `device` of the tag at `position`.
    pub(super) fn account_mut(&mut self, position: u32, device: DeviceOrdinal) -> &mut Account {
        &mut self.tags[position as usize].accounts[device.index()]
    }
}

impl Tags {
    /// No tags yet, for a new heap of so many devices.
    pub(super) fn new(device_count: usize) -> Self {
        static HEAPS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let heap = HEAPS.fetch_add(1, Relaxed);
        Self {
            heap,
            known: Lock::new(Known {
                device_count,
                tags: Vec::new(),
                positions: HashMap::new(),
                nestings: Vec::new(),
                numbers: HashMap::new(),
            }),
            is_used: AtomicBool::new(false),
            default: AtomicU32::new(PoolNumber::COMMON.0),
            margin_bytes: AtomicU64::new(0),
            retains: AtomicBool::new(false),
            in_transition: AtomicBool::new(false),
        }
    }

    /// The position of the tag `name`, which is known from now on, and the registry. If it is the
    /// first of all, `on_first` runs under the registry's lock.
    pub(super) fn with_position<T>(
        &self,
        name: &str,
        on_first: impl FnOnce(),
        then: impl FnOnce(&mut Known, u32) -> T,
    ) -> T {
        let mut known = self.known.lock();
        if known.tags.is_empty() {
            self.is_used.store(true, Relaxed);
            on_first();
        }
        let position = known.position_of(name);
        then(&mut known, position)
    }

    /// Begins the tag `name` for the calling thread; the empty name is no tag. If it is the first of
    /// all, `on_first` runs.
    pub(super) fn begin(&self, name: &str, backup: Backup, on_first: impl FnOnce()) -> Result<()> {
        let number = match name {
            "" => PoolNumber::COMMON,
            _ => self.number_within(self.innermost(), name, backup, on_first),
        };
        let begun = BEGUN.try_with(|begun| begun.borrow_mut().push((self.heap, number)));
        begun.map_err(|_| Error::invalid_argument("the thread is ending"))
    }

    /// Gives threads that have begun no tag the tag `name`; the empty name is no tag.
    pub(super) fn set_default(&self, name: &str, backup: Backup, on_first: impl FnOnce()) {
        let number = match name {
            "" => PoolNumber::COMMON,
            _ => self.number_within(None, name, backup, on_first),
        };
        self.default.store(number.0, Relaxed);
    }

    /// The number of the nesting of `name` within that of the number `outer`.
    fn number_within(
        &self,
        outer: Option<PoolNumber>,
        name: &str,
        backup: Backup,
        on_first: impl FnOnce(),
    ) -> PoolNumber {
        self.with_position(name, on_first, |known, position| {
            let outer = outer.and_then(|number| known.nesting(number));
            let nesting = Nesting::new(position, backup, outer.map(Arc::as_ref));
            known.number_of(nesting)
        })
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

    /// The memory of the known tag `name`, or of all tags.
    pub(super) fn choose(&self, name: Option<&str>) -> Result<Chosen> {
        let known = self.known.lock();
        let only = name.map(|name| known.find(name)).transpose()?;
        let nestings = known.nestings.iter().enumerate();
        let marks = nestings.map(|(index, nesting)| {
            let mark = Mark { tag: nesting.innermost, backup: nesting.backup };
            (PoolNumber::of_nesting(index), mark)
        });
        let marks = marks.filter(|(_, mark)| only.is_none_or(|only| only == mark.tag));
        Ok(Chosen { only, marks: marks.collect(), within: EVERYWHERE })
    }

    /// The name of the tag at `position`.
    pub(super) fn name_at(&self, position: u32) -> Arc<str> {
        Arc::clone(&self.known.lock().tags[position as usize].name)
    }

    /// The name of the innermost tag of the nesting with this number, if it is a nesting's.
    pub(super) fn name(&self, number: PoolNumber) -> Option<Arc<str>> {
        if !number.is_tagged() {
            return None;
        }
        let known = self.known.lock();
        let innermost = known.nesting(number)?.innermost;
        Some(Arc::clone(&known.tags[innermost as usize].name))
    }

    /// How often a known tag was resumed.
    pub(super) fn generation(&self, name: &str) -> Result<u64> {
        let known = self.known.lock();
        Ok(known.tags[known.find(name)? as usize].generation)
    }

    /// Counts a resume of the tag at `position`.
    pub(super) fn count_resume(&self, position: u32) {
        self.known.lock().tags[position as usize].generation += 1;
    }

    /// The number of the nesting that the calling thread has begun. If no tag is known, `set` runs
    /// first, under the registry's lock.
    pub(super) fn current_unless(&self, set: impl FnOnce()) -> PoolNumber {
        if !self.is_used.load(Relaxed) {
            let known = self.known.lock();
            if known.tags.is_empty() {
                set();
                return PoolNumber::COMMON;
            }
        }
        self.innermost().unwrap_or_else(|| PoolNumber(self.default.load(Relaxed)))
    }

    fn innermost(&self) -> Option<PoolNumber> {
        // A thread that is ending no longer has tags.
        let current = BEGUN.try_with(|begun| {
            let begun = begun.borrow();
            let mut ours = begun.iter().rev().filter(|&&(heap, _)| heap == self.heap);
            ours.next().map(|&(_, number)| number)
        });
        current.ok().flatten()
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
