//! An arena: memory that is handed out by adding to a position, and freed all at once.
//!
//! A request moves the cursor of the current chunk ([`chunks`](super::chunks)). If it does not fit,
//! a chunk that an earlier rewind has left is next, else a new one: as large as all together until
//! then, so that there are few. A reset keeps one chunk with room for the most that was ever used
//! between two resets, or gives all back and takes a chunk of that size at the next request. So a
//! program that repeats itself soon has one chunk, and a reset is a few stores.
//!
//! **What outlives a reset.** A [`Lease`] holds memory for somebody who may still read it, such as a
//! tensor. At a reset the chunks go to the leases that are there; the last of them gives them back.
//! A rewind frees nothing as long as there are leases.

use std::sync::Arc;

use super::access::Access;
use super::chunks::{Chunk, Chunks};
use super::source::{Source, Threads, alignment_of, is_alignment, other_stream, padded, too_large};
use super::users::{User, Users};
use crate::base::lock::{Lock, rank};
use crate::base::size::{KIB, MIB};
use crate::base::{Error, Result, Status, StreamHandle};

/// Chunks are multiples of this, in bytes.
const CHUNK_UNIT_BYTES: u64 = 64 * KIB;
/// The first chunk, unless the user says otherwise.
const USUAL_CHUNK_BYTES: u64 = MIB;
/// A chunk for all of the high-water mark has this part more.
const SPARE_PART: u64 = 8;

/// How an arena grows, and who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaOptions {
    /// Which threads call it.
    pub threads: Threads,
    /// The smallest chunk, in bytes; 0: a mebibyte.
    pub chunk_bytes: u64,
    /// The most that it holds, in bytes; 0: no limit.
    pub limit_bytes: u64,
}

/// Names a position of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

/// What an arena has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaStatistics {
    /// Handed out since the last reset, with what alignment took, in bytes.
    pub used_bytes: u64,
    /// Held from the source, in bytes.
    pub held_bytes: u64,
    /// The most that was used between two resets, in bytes.
    pub high_water_bytes: u64,
    /// The blocks of the source that it holds.
    pub chunks: u64,
    /// How often it was reset.
    pub resets: u64,
}

/// An arena over a source. See the module's note.
#[derive(Debug)]
pub struct Arena<S: Source> {
    source: Arc<S>,
    options: ArenaOptions,
    usual_alignment_bytes: u64,
    state: Access<State<S>>,
}

#[derive(Debug)]
struct State<S: Source> {
    chunks: Chunks,
    users: Users,
    /// Requests minus calls of [`Arena::free_one`] since the last reset.
    live: u64,
    resets: u64,
    lease: Option<Arc<Lease<S>>>,
}

/// Keeps the memory that an arena has handed out, beyond its reset.
#[derive(Debug)]
pub struct Lease<S: Source> {
    source: Arc<S>,
    /// What the arena has left to it, and who used it.
    left: Lock<(Vec<Chunk>, Vec<StreamHandle>), { rank::LEAF }>,
}

/// What comes next on the way to memory.
enum Step {
    Served(u64),
    /// The stream must wait for the own one, in this generation.
    Join(u64),
    Grow(Need),
}

/// What decides on the size of a new chunk.
struct Need {
    held_bytes: u64,
    high_water_bytes: u64,
    is_first: bool,
    is_apart: bool,
}

/// What a reset or a rewind finds.
enum Freed<S: Source> {
    /// It is done; these chunks leave.
    Now(Vec<Chunk>),
    /// It is done; the lease has what these users used.
    Leased(Arc<Lease<S>>, Vec<Chunk>, Vec<User>),
    /// The own stream must wait for these first.
    Behind(Vec<User>),
}

impl<S: Source> Arena<S> {
    /// An arena that holds nothing yet.
    pub fn new(source: Arc<S>, options: ArenaOptions) -> Self {
        let chunks = Chunks::new(source.is_debugging());
        let or = |bytes: u64, usual_bytes: u64| if bytes == 0 { usual_bytes } else { bytes };
        let options = ArenaOptions {
            chunk_bytes: or(options.chunk_bytes, USUAL_CHUNK_BYTES),
            limit_bytes: or(options.limit_bytes, u64::MAX),
            ..options
        };
        let (users, lease) = (Users::default(), None);
        let state = State { chunks, users, live: 0, resets: 0, lease };
        let usual_alignment_bytes = source.usual_alignment_bytes();
        Self { source, options, usual_alignment_bytes, state: Access::new(state, options.threads) }
    }

    /// Allocates `bytes` for use on the own stream; returns address 0 for 0 bytes. An alignment of
    /// 0 is the source's usual one. `LimitReached` at the limit, `OutOfMemory` if the source has no
    /// more.
    #[inline]
    pub fn allocate(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        match self.bump(bytes, alignment_bytes) {
            Some(address) => Ok(address),
            None => self.allocate_slowly(bytes, alignment_bytes, None),
        }
    }

    /// [`Self::allocate`] from the current chunk; `None`, with nothing changed, if that cannot be all.
    #[inline(always)]
    pub fn bump(&self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        let usual_bytes = self.usual_alignment_bytes;
        let alignment_bytes = if alignment_bytes == 0 { usual_bytes } else { alignment_bytes };
        if !is_alignment(alignment_bytes) {
            return None;
        }
        self.state.quickly(move |state| {
            let start = state.chunks.bump(bytes, alignment_bytes)?;
            state.live += 1;
            Some(start)
        })
    }

    /// Allocates `bytes` for use on `stream`, which must exist until the memory is free.
    pub fn allocate_on(
        &self,
        bytes: u64,
        alignment_bytes: u64,
        stream: StreamHandle,
    ) -> Result<u64> {
        let other = other_stream(&*self.source, stream)?;
        self.allocate_slowly(bytes, alignment_bytes, other)
    }

    /// Makes `stream` one that uses memory handed out before: it waits for the own stream, and a
    /// reset for it.
    pub fn join(&self, stream: StreamHandle) -> Result<()> {
        let Some(stream) = other_stream(&*self.source, stream)? else { return Ok(()) };
        let generation = self.state.with(|state| state.users.generation())?;
        self.join_in(generation, stream)
    }

    fn join_in(&self, generation: u64, stream: StreamHandle) -> Result<()> {
        if let Some(own) = self.source.stream() {
            self.source.order(stream, own)?;
        }
        self.state.with(|state| state.users.join(stream, generation))
    }

    /// [`Self::allocate`], with a lease of the memory.
    pub fn allocate_leased(
        &self,
        bytes: u64,
        alignment_bytes: u64,
    ) -> Result<(u64, Arc<Lease<S>>)> {
        loop {
            let lease = self.lease()?;
            let address = self.allocate(bytes, alignment_bytes)?;
            // A reset meanwhile has left the lease what was before, and not this.
            if Arc::ptr_eq(&lease, &self.lease()?) {
                return Ok((address, lease));
            }
        }
    }

    #[cold]
    fn allocate_slowly(
        &self,
        bytes: u64,
        alignment_bytes: u64,
        other: Option<StreamHandle>,
    ) -> Result<u64> {
        let alignment_bytes = alignment_of(&*self.source, alignment_bytes)?;
        if bytes == 0 {
            return Ok(0);
        }
        loop {
            match self.state.with(|state| state.step(bytes, alignment_bytes, other))? {
                Step::Served(address) => return Ok(address),
                Step::Join(generation) => {
                    other.map_or(Ok(()), |stream| self.join_in(generation, stream))?;
                }
                Step::Grow(need) => {
                    let Some(address) = self.grow(&need, bytes, alignment_bytes)? else { continue };
                    // The new memory is the own stream's.
                    if let Err(error) = other.map_or(Ok(()), |stream| self.join(stream)) {
                        self.free_one()?;
                        return Err(error);
                    }
                    return Ok(address);
                }
            }
        }
    }

    /// Serves a request from a new chunk; `None` if another thread has grown the arena meanwhile, to
    /// where this one would exceed the limit.
    fn grow(&self, need: &Need, bytes: u64, alignment_bytes: u64) -> Result<Option<u64>> {
        let needed_bytes = padded(bytes, alignment_bytes).ok_or_else(|| too_large(bytes))?;
        let chunk = self.acquire(need, needed_bytes)?;
        let start = self.state.with(|state| {
            if state.chunks.held_bytes().saturating_add(chunk.bytes) > self.options.limit_bytes {
                return None;
            }
            state.users.begin_generation();
            state.live += 1;
            Some(state.chunks.add(chunk, bytes, alignment_bytes))
        });
        match start {
            Ok(Some(Some(address))) => Ok(Some(address)),
            Ok(Some(None)) => {
                Err(Error::new(Status::Internal, "a chunk is smaller than its request"))
            }
            refused => {
                self.source.give_back(chunk.address);
                refused.map(|_| None)
            }
        }
    }

    /// A block of the source with at least `needed_bytes`, and more if there is.
    fn acquire(&self, need: &Need, needed_bytes: u64) -> Result<Chunk> {
        let &Need { held_bytes, high_water_bytes, is_first, is_apart } = need;
        let limit_bytes = self.options.limit_bytes;
        let room_bytes = limit_bytes.saturating_sub(held_bytes);
        if needed_bytes > room_bytes {
            return Err(full(limit_bytes, held_bytes, needed_bytes));
        }
        let remembered_bytes = if is_first {
            high_water_bytes.saturating_add(high_water_bytes / SPARE_PART)
        } else {
            held_bytes
        };
        let wanted_bytes = needed_bytes.max(self.options.chunk_bytes).max(remembered_bytes);
        let wanted_bytes = wanted_bytes.checked_next_multiple_of(CHUNK_UNIT_BYTES);
        let wanted_bytes = wanted_bytes.unwrap_or(needed_bytes).min(room_bytes);
        let bytes = if is_apart { needed_bytes } else { wanted_bytes };
        match self.source.acquire(bytes) {
            Ok(address) => Ok(Chunk { address, bytes }),
            Err(error) if error.is_shortage() && needed_bytes < bytes => {
                let address = self.source.acquire(needed_bytes)?;
                Ok(Chunk { address, bytes: needed_bytes })
            }
            Err(error) => Err(error),
        }
    }

    /// Frees all memory at once. Work that uses it may still be queued. If it fails, nothing is
    /// freed.
    #[inline]
    pub fn reset(&self) -> Result<()> {
        let is_apart = self.source.is_debugging();
        self.settle(|state| Ok(state.try_reset(is_apart)))
    }

    /// Counts one request as freed, and resets when all are.
    pub fn free_one(&self) -> Result<()> {
        let is_apart = self.source.is_debugging();
        self.settle(|state| {
            if state.live > 1 {
                state.live -= 1;
                return Ok(Freed::Now(Vec::new()));
            }
            Ok(state.try_reset(is_apart))
        })
    }

    /// Returns a mark at the present position.
    pub fn mark(&self) -> Result<Mark> {
        self.state.with(|state| Mark(state.chunks.mark()))
    }

    /// Frees what was allocated after `mark`, which can be used again. A mark ends with a reset and
    /// with a rewind to an earlier one: then `InvalidArgument`, and nothing is changed.
    pub fn rewind(&self, mark: Mark) -> Result<()> {
        self.settle(|state| state.try_rewind(mark))
    }

    /// Calls `free` until the own stream has waited for all users that it names.
    #[inline]
    fn settle(&self, mut free: impl FnMut(&mut State<S>) -> Result<Freed<S>>) -> Result<()> {
        loop {
            match self.state.with(&mut free)?? {
                Freed::Now(leaving) => {
                    self.give_back(&leaving);
                    return Ok(());
                }
                Freed::Leased(lease, chunks, users) => {
                    lease.take_over(&chunks, &users);
                    return Ok(());
                }
                Freed::Behind(users) => self.wait_for(&users)?,
            }
        }
    }

    fn wait_for(&self, users: &[User]) -> Result<()> {
        let Some(own) = self.source.stream() else { return Ok(()) };
        for &user in users {
            self.source.order(own, user.stream)?;
            self.state.with(|state| state.users.settle(user))?;
        }
        Ok(())
    }

    /// Gives back chunks that are not in use; all, if nothing was allocated since the last reset.
    pub fn trim(&self) -> Result<()> {
        let leaving = self.state.with(|state| state.chunks.trim())?;
        self.give_back(&leaving);
        Ok(())
    }

    fn give_back(&self, chunks: &[Chunk]) {
        chunks.iter().for_each(|chunk| self.source.give_back(chunk.address));
    }

    /// Holds the memory that is handed out, also beyond the next reset.
    fn lease(&self) -> Result<Arc<Lease<S>>> {
        self.state.with(|state| {
            Arc::clone(state.lease.get_or_insert_with(|| Arc::new(Lease::new(&self.source))))
        })
    }

    /// What it has.
    pub fn statistics(&self) -> Result<ArenaStatistics> {
        self.state.with(|state| ArenaStatistics {
            used_bytes: state.chunks.used_bytes(),
            held_bytes: state.chunks.held_bytes(),
            high_water_bytes: state.chunks.high_water_bytes(),
            chunks: state.chunks.count() as u64,
            resets: state.resets,
        })
    }

    /// Returns true if `address` is in memory of the arena, handed out or not.
    pub fn has(&self, address: u64) -> Result<bool> {
        self.state.with(|state| state.chunks.has(address))
    }

    /// Where its memory comes from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Reserves all memory up to the limit, which there is.
    pub(super) fn reserve(&self) -> Result<()> {
        let need = self.state.with(|state| state.need())?;
        if need.is_apart {
            return Ok(());
        }
        let chunk = self.acquire(&need, self.options.limit_bytes)?;
        let kept = self.state.with(|state| state.chunks.keep(chunk));
        kept.inspect_err(|_| self.source.give_back(chunk.address))
    }

    /// Which threads may call.
    pub fn threads(&self) -> Threads {
        self.state.threads()
    }

    /// Checks every invariant; the error names the one that is broken.
    pub fn validate(&self) -> std::result::Result<(), String> {
        let checked = self.state.with(|state| state.chunks.validate());
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl<S: Source> Drop for Arena<S> {
    /// Gives everything back, to a lease or to the source, which waits for the users.
    fn drop(&mut self) {
        let left = self
            .state
            .with(|state| (state.lease.take(), state.chunks.abandon(), state.users.leave()));
        let Ok((lease, chunks, users)) = left else { return };
        // Gives them back at once if nobody else has it.
        lease.unwrap_or_else(|| Arc::new(Lease::new(&self.source))).take_over(&chunks, &users);
    }
}

impl<S: Source> Lease<S> {
    fn new(source: &Arc<S>) -> Self {
        Self { source: Arc::clone(source), left: Lock::default() }
    }

    fn take_over(&self, chunks: &[Chunk], users: &[User]) {
        let mut left = self.left.lock();
        left.0.extend(chunks);
        left.1.extend(users.iter().map(|user| user.stream));
    }
}

impl<S: Source> Drop for Lease<S> {
    fn drop(&mut self) {
        let (chunks, users) = std::mem::take(&mut *self.left.lock());
        chunks.iter().for_each(|chunk| self.source.give_back_after(chunk.address, &users));
    }
}

impl<S: Source> State<S> {
    fn step(&mut self, bytes: u64, alignment_bytes: u64, other: Option<StreamHandle>) -> Step {
        if other.is_some_and(|stream| !self.users.count_use(stream)) {
            return Step::Join(self.users.generation());
        }
        let chunks = &mut self.chunks;
        let served = chunks.bump(bytes, alignment_bytes);
        match served.or_else(|| chunks.advance(bytes, alignment_bytes)) {
            Some(address) => {
                self.live += 1;
                Step::Served(address)
            }
            None => Step::Grow(self.need()),
        }
    }

    fn need(&self) -> Need {
        let chunks = &self.chunks;
        Need {
            held_bytes: chunks.held_bytes(),
            high_water_bytes: chunks.high_water_bytes(),
            is_first: chunks.count() == 0,
            is_apart: chunks.is_apart,
        }
    }

    fn is_leased(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| Arc::strong_count(lease) > 1)
    }

    #[inline]
    fn try_reset(&mut self, is_apart: bool) -> Freed<S> {
        let lease = if self.is_leased() { self.lease.take() } else { None };
        let unsettled = self.users.unsettled();
        if lease.is_none() && !unsettled.is_empty() {
            return Freed::Behind(unsettled);
        }
        self.live = 0;
        self.resets += 1;
        self.chunks.is_apart = is_apart;
        self.users.begin_generation();
        let users = self.users.leave();
        match lease {
            Some(lease) => Freed::Leased(lease, self.chunks.abandon(), users),
            None => Freed::Now(self.chunks.reset()),
        }
    }

    fn try_rewind(&mut self, Mark(number): Mark) -> Result<Freed<S>> {
        if !self.chunks.has_mark(number) {
            let message = "the mark has ended, by a reset or by a rewind to an earlier one";
            return Err(Error::invalid_argument(message));
        }
        let unsettled = self.users.unsettled();
        if !unsettled.is_empty() {
            return Ok(Freed::Behind(unsettled));
        }
        self.users.stay();
        self.users.begin_generation();
        Ok(Freed::Now(self.chunks.rewind(number, self.is_leased())))
    }
}

#[cold]
fn full(limit_bytes: u64, held_bytes: u64, needed_bytes: u64) -> Error {
    let message = format!(
        "the arena is full: it holds {held_bytes} of at most {limit_bytes} bytes, and \
         {needed_bytes} more are needed"
    );
    Error::new(Status::LimitReached, message)
}
