//! A pool of blocks of one size: taken from a stack and put back, each in constant time.
//!
//! | [`FixedPoolOptions`] | the pool |
//! |---|---|
//! | `count` | reserves so many blocks when it is made |
//! | `growth` | reserves so many more when none is free; 0: then it is full, an error |
//!
//! A pool of device memory belongs to one stream (see `super`). A block that another stream frees
//! is free once the own stream waits for that one; it knows which from the allocation. So a pool is
//! best used on one stream, and for many streams the heap itself is better.
//!
//! Pointers that are not live blocks of the pool are reported and harmless.

use std::cell::OnceCell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use super::access::Access;
use super::apart::Apart;
use super::slabs::{FREE, Front, OWN, Owner, Slabs};
use super::source::{Source, Threads, alignment_of, other_stream, padded};
use super::users::Users;
use crate::base::size::round_up;
use crate::base::{Error, Result, Status, StreamHandle};

/// The block is being freed.
const LEAVING: Owner = Owner::MAX;

/// What blocks a pool has, and who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPoolOptions {
    /// Which threads call it.
    pub threads: Threads,
    /// The size of a block, in bytes.
    pub block_bytes: u64,
    /// The alignment of each block, in bytes; 0: the source's usual one.
    pub alignment_bytes: u64,
    /// How many blocks it begins with.
    pub count: u32,
    /// By how many it grows; 0: it does not.
    pub growth: u32,
}

/// What a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPoolStatistics {
    /// Blocks handed out.
    pub live: u64,
    /// The most blocks that were handed out at one time.
    pub peak_live: u64,
    /// All blocks, free or not.
    pub capacity: u64,
    /// Held from the source, in bytes.
    pub held_bytes: u64,
    /// Requests that a full pool refused.
    pub refusals: u64,
}

/// A pool over a source. See the module's note.
#[derive(Debug)]
pub struct FixedPool<S: Source> {
    source: Arc<S>,
    options: FixedPoolOptions,
    stride_bytes: u64,
    /// What most calls need, if one thread at a time calls and there are blocks.
    front: OnceCell<Rc<Front>>,
    state: Access<State>,
}

#[derive(Debug)]
struct State {
    slabs: Slabs,
    /// Under debugging: blocks of the source in place of slabs.
    apart: Option<Apart>,
    users: Users,
    /// The other streams that have blocks, by owner, and how many.
    owners: Vec<(StreamHandle, u64)>,
    refusals: u64,
}

/// What comes next on the way to a block.
enum Step {
    Served(u64),
    /// The stream must wait for the own one, in this generation.
    Join(u64),
    /// There is none; the owner who wants one, if it is to be a block of the source.
    None(Option<Owner>),
}

/// A block on its way to be free.
struct Leaving {
    owner: Owner,
    /// The own stream waits for this one first.
    behind: Option<StreamHandle>,
    block_of_source: Option<u64>,
}

impl<S: Source> FixedPool<S> {
    /// A pool that has reserved its first blocks.
    pub fn new(source: Arc<S>, options: FixedPoolOptions) -> Result<Self> {
        let alignment_bytes = alignment_of(&*source, options.alignment_bytes)?;
        let block_bytes = options.block_bytes;
        let stride_bytes =
            round_up(block_bytes, alignment_bytes).ok_or_else(|| no_size(block_bytes))?;
        let stride = NonZeroU64::new(stride_bytes)
            .ok_or_else(|| Error::invalid_argument("a pool of blocks of 0 bytes"))?;
        if options.count == 0 && options.growth == 0 {
            return Err(Error::invalid_argument("a pool without blocks that does not grow"));
        }
        let state = State {
            slabs: Slabs::new(stride),
            apart: source.is_debugging().then(Apart::default),
            users: Users::default(),
            owners: Vec::new(),
            refusals: 0,
        };
        let is_apart = state.apart.is_some();
        let options = FixedPoolOptions { alignment_bytes, ..options };
        let state = Access::new(state, options.threads);
        let front = OnceCell::new();
        let pool = Self { source, options, stride_bytes, front, state };
        if options.count > 0 && !is_apart {
            pool.reserve(options.count)?;
        }
        Ok(pool)
    }

    /// A block for use on the own stream. `LimitReached` if none is free and the pool does not
    /// grow; `OutOfMemory` if it cannot.
    #[inline]
    pub fn allocate(&self) -> Result<u64> {
        match self.take() {
            Some(address) => Ok(address),
            None => self.allocate_slowly(None)?.ok_or_else(|| self.full()),
        }
    }

    /// [`Self::allocate`] of a block that is there; `None`, with nothing changed, if there is none.
    #[inline(always)]
    pub fn take(&self) -> Option<u64> {
        self.take_quickly().or_else(|| self.take_behind_access())
    }

    /// [`Self::take`] of a block of the first ones, in a pool for one thread.
    #[inline(always)]
    pub fn take_quickly(&self) -> Option<u64> {
        self.front.get()?.take()
    }

    /// [`Self::take`] of any other.
    #[inline]
    pub fn take_behind_access(&self) -> Option<u64> {
        self.state.quickly(|state| state.slabs.take_own())
    }

    /// [`Self::allocate`] on `stream`, which must exist until the block is freed.
    pub fn allocate_on(&self, stream: StreamHandle) -> Result<u64> {
        self.try_allocate(Some(stream))?.ok_or_else(|| self.full())
    }

    /// A block for use on `stream`, or on the own one; `None` if the pool is full.
    #[inline]
    pub fn try_allocate(&self, stream: Option<StreamHandle>) -> Result<Option<u64>> {
        let other = match stream {
            Some(stream) => other_stream(&*self.source, stream)?,
            None => None,
        };
        let taken = if other.is_none() { self.take() } else { None };
        taken.map_or_else(|| self.allocate_slowly(other), |address| Ok(Some(address)))
    }

    #[cold]
    fn allocate_slowly(&self, other: Option<StreamHandle>) -> Result<Option<u64>> {
        loop {
            match self.state.with(|state| state.step(other))?? {
                Step::Served(address) => return Ok(Some(address)),
                Step::Join(generation) => self.join(generation, other)?,
                Step::None(Some(owner)) => return self.acquire_apart(owner, other),
                Step::None(None) if self.options.growth == 0 => {
                    self.state.with(|state| state.refusals += 1)?;
                    return Ok(None);
                }
                Step::None(None) => self.reserve(self.options.growth)?,
            }
        }
    }

    fn join(&self, generation: u64, other: Option<StreamHandle>) -> Result<()> {
        self.order_after_own(other)?;
        other.map_or(Ok(()), |other| self.state.with(|state| state.users.join(other, generation)))
    }

    /// Makes the other stream, if there is one, wait for the own one.
    fn order_after_own(&self, other: Option<StreamHandle>) -> Result<()> {
        let streams = other.zip(self.source.stream());
        streams.map_or(Ok(()), |(other, own)| self.source.order(other, own))
    }

    /// Adds `count` blocks.
    fn reserve(&self, count: u32) -> Result<()> {
        let FixedPoolOptions { block_bytes, alignment_bytes, .. } = self.options;
        let bytes = self.stride_bytes.checked_mul(count.into());
        let bytes = bytes.and_then(|bytes| padded(bytes, alignment_bytes));
        let address = self.source.acquire(bytes.ok_or_else(|| no_size(block_bytes))?)?;
        let added = self.state.with(|state| {
            state.users.begin_generation();
            let is_added = state.slabs.add(address, alignment_bytes, count);
            if is_added && self.options.threads == Threads::One {
                self.front.get_or_init(|| Rc::clone(state.slabs.front()));
            }
            is_added
        });
        match added {
            Ok(true) => Ok(()),
            refused => {
                self.source.give_back(address);
                refused.and_then(|_| Err(too_many()))
            }
        }
    }

    /// A block of the source in place of one of a slab, for use on the stream of `owner`, which is
    /// `other` or the own one.
    fn acquire_apart(&self, owner: Owner, other: Option<StreamHandle>) -> Result<Option<u64>> {
        let FixedPoolOptions { block_bytes, alignment_bytes, count, growth, .. } = self.options;
        let is_full = self.state.with(|state| {
            let is_full = growth == 0 && state.live_and_peak().0 >= count.into();
            state.refusals += u64::from(is_full);
            is_full
        })?;
        if is_full {
            return Ok(None);
        }
        let bytes = padded(block_bytes, alignment_bytes).ok_or_else(|| no_size(block_bytes))?;
        let block = self.source.acquire(bytes)?;
        let address = block.next_multiple_of(alignment_bytes);
        // The own stream may have used it since the other one joined.
        self.order_after_own(other).inspect_err(|_| self.source.give_back(block))?;
        let noted = self.state.with(|state| {
            state.count_owned(owner, 1);
            state.apart.get_or_insert_default().add(address, block, owner);
        });
        noted.inspect_err(|_| self.source.give_back(block))?;
        Ok(Some(address))
    }

    /// Frees the block at `address`; does nothing for address 0. Work of the stream that it was
    /// allocated on may still use it. `DoubleFree` and `ForeignPointer` change nothing.
    #[inline]
    pub fn free(&self, address: u64) -> Result<()> {
        if self.put(address) { Ok(()) } else { self.free_slowly(address) }
    }

    /// [`Self::free`] of a block that the own stream uses; false, with nothing changed, for others.
    #[inline(always)]
    pub fn put(&self, address: u64) -> bool {
        self.put_quickly(address) || self.put_behind_access(address)
    }

    /// [`Self::put`] of one of the first blocks, in a pool for one thread.
    #[inline(always)]
    pub fn put_quickly(&self, address: u64) -> bool {
        self.front.get().and_then(|front| front.put(address)).is_some()
    }

    /// [`Self::put`] of any other.
    #[inline]
    pub fn put_behind_access(&self, address: u64) -> bool {
        self.state.quickly(|state| state.slabs.put_own(address)).is_some()
    }

    #[cold]
    fn free_slowly(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        match self.state.with(|state| state.free(address))? {
            Ok(None) => Ok(()),
            Ok(Some(leaving)) => self.end_free(address, leaving),
            Err(status) => Err(self.not_live(address, status)),
        }
    }

    fn end_free(&self, address: u64, leaving: Leaving) -> Result<()> {
        if let (Some(own), Some(other)) = (self.source.stream(), leaving.behind) {
            let ordered = self.source.order(own, other);
            let is_free = ordered.is_ok();
            self.state.with(|state| state.end_free(address, leaving.owner, is_free))?;
            ordered?;
        }
        if let Some(block) = leaving.block_of_source {
            self.source.give_back(block);
        }
        Ok(())
    }

    /// Returns true if a block of the pool begins at `address`, live or not.
    pub fn has(&self, address: u64) -> Result<bool> {
        self.state.with(|state| match &state.apart {
            Some(apart) => apart.has(address),
            None => state.slabs.find(address).is_some(),
        })
    }

    /// The size of a block, in bytes, and what it is aligned to.
    pub fn block_bytes(&self) -> (u64, u64) {
        (self.options.block_bytes, self.options.alignment_bytes)
    }

    /// The first byte of its memory and its length, if it is one piece; `None` under debugging.
    pub(super) fn range(&self) -> Result<Option<(u64, u64)>> {
        let bytes = self.stride_bytes * u64::from(self.options.count);
        let is_one = self.options.growth == 0;
        let start = self.state.with(|state| state.slabs.first_block())?;
        Ok(start.filter(|_| is_one).map(|start| (start, bytes)))
    }

    /// What it has.
    pub fn statistics(&self) -> Result<FixedPoolStatistics> {
        self.state.with(|state| {
            let (live, peak_live) = state.live_and_peak();
            let capacity = if state.apart.is_some() { live } else { state.slabs.capacity() };
            FixedPoolStatistics {
                live,
                peak_live,
                capacity,
                held_bytes: capacity * self.stride_bytes,
                refusals: state.refusals,
            }
        })
    }

    /// What most calls need, if one thread at a time calls and there are blocks.
    pub(super) fn front(&self) -> Option<&Rc<Front>> {
        self.front.get()
    }

    /// Where its memory comes from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Which threads may call.
    pub fn threads(&self) -> Threads {
        self.state.threads()
    }

    /// Checks every invariant; the error names the one that is broken.
    pub fn validate(&self) -> std::result::Result<(), String> {
        let checked = self.state.with(|state| state.slabs.validate());
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// The error of a request that a full pool refuses.
    #[cold]
    pub(super) fn full(&self) -> Error {
        let FixedPoolOptions { block_bytes, count, .. } = self.options;
        let message =
            format!("the pool is full: all {count} blocks of {block_bytes} bytes are live");
        Error::new(Status::LimitReached, message)
    }

    #[cold]
    fn not_live(&self, address: u64, status: Status) -> Error {
        let block_bytes = self.options.block_bytes;
        let what = match status {
            Status::DoubleFree => "is already free",
            _ => "is no block",
        };
        let message = format!("{address:#x} {what}, in the pool of blocks of {block_bytes} bytes");
        Error::new(status, message)
    }
}

impl<S: Source> Drop for FixedPool<S> {
    /// Gives everything back to the source, which waits for other streams that have blocks.
    fn drop(&mut self) {
        let Ok((blocks, users)) = self.state.with(State::leave) else { return };
        blocks.iter().for_each(|&block| self.source.give_back_after(block, &users));
    }
}

impl State {
    fn live_and_peak(&self) -> (u64, u64) {
        match &self.apart {
            Some(apart) => apart.live_and_peak(),
            None => (self.slabs.live(), self.slabs.peak_live()),
        }
    }

    fn step(&mut self, other: Option<StreamHandle>) -> Result<Step> {
        if self.slabs.take_freed() {
            self.users.begin_generation();
        }
        let owner = match other {
            None => OWN,
            Some(stream) if !self.users.count_use(stream) => {
                return Ok(Step::Join(self.users.generation()));
            }
            Some(stream) => self.owner_of(stream)?,
        };
        Ok(match self.slabs.take(owner) {
            Some(address) => {
                self.count_owned(owner, 1);
                Step::Served(address)
            }
            None => Step::None(self.apart.is_some().then_some(owner)),
        })
    }

    /// The number of another stream, which has blocks or is about to.
    fn owner_of(&mut self, stream: StreamHandle) -> Result<Owner> {
        let known = self.owners.iter().position(|&(other, _)| other == stream);
        let unused = || self.owners.iter().position(|&(_, live)| live == 0);
        let index = known.or_else(unused).unwrap_or(self.owners.len());
        if index >= usize::from(LEAVING - OWN - 1) {
            return Err(Error::new(Status::Busy, "too many streams have blocks of the pool"));
        }
        if index == self.owners.len() {
            self.owners.push((stream, 0));
        }
        self.owners[index].0 = stream;
        Ok(index as Owner + OWN + 1)
    }

    /// The stream of `owner`, if it is not the own one.
    fn other(&self, owner: Owner) -> Option<StreamHandle> {
        let index = usize::from(owner).checked_sub(usize::from(OWN) + 1)?;
        self.owners.get(index).map(|&(stream, _)| stream)
    }

    /// Counts blocks that `owner` has gained or lost.
    fn count_owned(&mut self, owner: Owner, gained: i64) {
        if let Some(index) = usize::from(owner).checked_sub(usize::from(OWN) + 1) {
            self.owners[index].1 = self.owners[index].1.saturating_add_signed(gained);
        }
    }

    /// Frees a block, or begins to.
    fn free(&mut self, address: u64) -> std::result::Result<Option<Leaving>, Status> {
        match self.slabs.find(address).map(|place| (place, self.slabs.owner(place))) {
            Some((_, FREE | LEAVING)) => Err(Status::DoubleFree),
            Some((place, OWN)) => {
                self.slabs.put(place);
                Ok(None)
            }
            Some((place, owner)) => {
                self.slabs.set_owner(place, LEAVING);
                let behind = self.other(owner);
                Ok(Some(Leaving { owner, behind, block_of_source: None }))
            }
            None => self.free_apart(address).map(Some),
        }
    }

    #[cold]
    fn free_apart(&mut self, address: u64) -> std::result::Result<Leaving, Status> {
        let apart = self.apart.as_mut().ok_or(Status::ForeignPointer)?;
        let (block, owner) = apart.remove(address)?;
        self.users.begin_generation();
        Ok(Leaving { owner, behind: self.other(owner), block_of_source: Some(block) })
    }

    /// The own stream waits for the block's stream, or cannot: then the block is live as before.
    fn end_free(&mut self, address: u64, owner: Owner, is_free: bool) {
        let place = self.slabs.find(address);
        match (place, is_free) {
            (Some(place), true) => self.slabs.put(place),
            (Some(place), false) => self.slabs.set_owner(place, owner),
            (None, true) => {}
            (None, false) => self.apart.iter_mut().for_each(|apart| apart.restore(address, owner)),
        }
        self.count_owned(owner, -i64::from(is_free));
    }

    /// The blocks of the source, and the other streams that have some.
    fn leave(&mut self) -> (Vec<u64>, Vec<StreamHandle>) {
        let users = self.owners.iter().filter(|&&(_, live)| live > 0);
        let users = users.map(|&(stream, _)| stream).collect();
        let apart = self.apart.iter().flat_map(Apart::blocks_of_source);
        (self.slabs.blocks_of_source().chain(apart).collect(), users)
    }
}

#[cold]
fn too_many() -> Error {
    Error::new(Status::LimitReached, "a pool has at most 2^31 - 2 blocks")
}

#[cold]
fn no_size(block_bytes: u64) -> Error {
    let message = format!("blocks of {block_bytes} bytes do not fit into any memory");
    Error::new(Status::OutOfMemory, message)
}
