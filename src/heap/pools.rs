//! Private pools: memory set apart for a graph capture or on request.
//!
//! A captured graph holds the addresses that its work used. So memory freed during the capture may
//! be reused by that graph only, and must stay where it is until the graph is gone. Between
//! `Heap::begin_pool` and `Heap::end_pool`, requests whose stream passes the pool's filter are
//! served from the pool's own lanes. These neither take segments from other lanes nor lose any,
//! until `Heap::release_pool` has been called as often as the pool was begun. Then free memory is
//! released to the driver, which waits for all work of the device: a graph may be replayed on any
//! stream, so no event of a lane's own stream shows when its memory is out of use. Live memory is
//! released once it is freed, with the next release of cached memory.
//!
//! If several begun pools accept a request, the one begun last serves it. `Heap::hold_pool` counts a
//! use without a begin, for those who name a pool in advance.
//!
//! A stream may be capturing while a pool of its device is begun for a capture, so meanwhile the heap
//! does not wait, poll or release memory there. A pool may also be begun for requests only.

use std::fmt;
use std::sync::Arc;

use super::account::PoolAccount;
use super::pool_memory::OwnMemory;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use crate::base::{Backup, Error, Result, StreamHandle};
use crate::memory::Communication;

/// Names a private pool, as PyTorch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub u64, pub u64);

/// Returns true if requests on a stream, made by the calling thread, belong to a pool.
pub type PoolFilter = Arc<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// What a pool is begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    /// A stream may be captured meanwhile.
    Capture,
    /// Requests only: no stream is captured into the pool.
    Requests,
}

/// A pool's number, unique among all pools that a device ever had; or, marked by a bit, the number
/// of a nesting of tags, unique in the heap (`heap::tags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolNumber(pub(super) u32);

const TAG_BIT: u32 = 1 << 31;

impl PoolNumber {
    /// For requests that belong to no pool and no tag.
    pub(super) const COMMON: Self = Self(0);

    /// For requests under the nesting of tags at that position.
    pub(super) fn of_nesting(position: usize) -> Self {
        Self(TAG_BIT | position as u32)
    }

    /// The nesting's position, if this is a nesting's number.
    pub(super) fn nesting_position(self) -> Option<u32> {
        self.is_tagged().then_some(self.0 & !TAG_BIT)
    }

    /// Returns true if it is the number of a nesting of tags.
    #[inline]
    pub(super) fn is_tagged(self) -> bool {
        self.0 & TAG_BIT != 0
    }

    /// Returns true if it is a private pool's number: the pool's memory must stay where it is.
    #[inline]
    pub(super) fn is_private(self) -> bool {
        self != Self::COMMON && self.0 & TAG_BIT == 0
    }
}

/// Whose memory something is, and what is kept of it while it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The tag's position.
    pub(super) tag: u32,
    pub(super) backup: Backup,
}

/// Bit of a device's mode: a private pool is begun in which a stream may be captured.
const ROUTING: u8 = 1;
/// Bit of a device's mode: a tag may have been begun since the start.
const TAGGED: u8 = 2;
/// Bit of a device's mode: a private pool is begun.
const BEGUN: u8 = 4;

/// The private pools of one device.
#[derive(Debug)]
pub(super) struct Pools {
    mode: AtomicU8,
    /// Whether there ever was a pool with memory of its own.
    has_own: AtomicBool,
    /// Whether there ever was a pool whose memory others reach by its address.
    has_communication: AtomicBool,
    state: Lock<State, { rank::DEVICE }>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u32,
    held: Vec<Held>,
    /// What pools have of their own; also of pools that are not held and whose lanes hold memory.
    own: Vec<(PoolNumber, Arc<OwnMemory>)>,
    routes: Vec<Route>,
}

/// A pool whose addresses must stay.
#[derive(Debug)]
struct Held {
    id: PoolId,
    number: PoolNumber,
    /// Begins and holds, minus releases.
    uses: u64,
    /// Whether its free memory serves a request from outside that would otherwise fail.
    lends: bool,
    /// Whether a graph may have been captured from it, which writes to its free memory.
    has_graphs: bool,
    /// Whether it is scratch, whose free memory is cached like that of no pool.
    is_scratch: bool,
    account: Arc<PoolAccount>,
    /// How its memory is made, if others reach it by its address.
    communication: Option<Arc<Communication>>,
    /// Whose memory it is, if it is a tag's.
    mark: Option<Mark>,
}

/// A pool that is begun and not ended.
#[derive(Clone)]
struct Route {
    id: PoolId,
    number: PoolNumber,
    filter: PoolFilter,
    purpose: PoolUse,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            mode: AtomicU8::new(TAGGED),
            has_own: AtomicBool::new(false),
            has_communication: AtomicBool::new(false),
            state: Lock::default(),
        }
    }
}

impl Pools {
    /// The name of the private pool `number`, unless it has been released.
    pub(super) fn name(&self, number: PoolNumber) -> Option<PoolId> {
        let state = self.state.lock();
        state.held.iter().find(|held| held.number == number).map(|held| held.id)
    }

    /// Returns true if requests belong to no pool and no tag.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.mode.load(Relaxed) == 0
    }

    /// Returns true if a pool is begun, so that requests must be routed.
    pub(super) fn is_begun(&self) -> bool {
        self.mode.load(Relaxed) & BEGUN != 0
    }

    /// Returns true if a pool is begun for a capture; then a stream of the device may be capturing.
    #[inline]
    pub(super) fn is_routing(&self) -> bool {
        self.mode.load(Relaxed) & ROUTING != 0
    }

    /// Returns true if the calling thread may have begun a tag.
    pub(super) fn is_tagged(&self) -> bool {
        self.mode.load(Relaxed) & TAGGED != 0
    }

    /// Sets whether threads may have begun a tag. The caller has locked the registry of tags.
    pub(super) fn set_tagged(&self, tagged: bool) {
        self.set(TAGGED, tagged);
    }

    fn set_modes(&self, state: &State) {
        let is_capture = |route: &Route| route.purpose == PoolUse::Capture;
        self.set(ROUTING, state.routes.iter().any(is_capture));
        self.set(BEGUN, !state.routes.is_empty());
    }

    fn set(&self, bit: u8, value: bool) {
        if value {
            self.mode.fetch_or(bit, Relaxed);
        } else {
            self.mode.fetch_and(!bit, Relaxed);
        }
    }

    /// The private pool whose filter accepts a request on `stream`.
    #[cold]
    pub(super) fn route(&self, stream: StreamHandle) -> Option<PoolNumber> {
        // Filters are the caller's code: no lock is held while they run.
        let routes = self.state.lock().routes.clone();
        assert_none_held();
        let claimed = routes.iter().rev().find(|route| (route.filter)(stream));
        claimed.map(|route| route.number)
    }

    /// Returns true if somebody uses the pool.
    pub(super) fn is_held(&self, number: PoolNumber) -> bool {
        self.state.lock().held.iter().any(|held| held.number == number)
    }

    /// Returns true if the segments of a pool's lanes must stay where they are.
    pub(super) fn must_stay(&self, number: PoolNumber) -> bool {
        let stays = |held: &Held| !held.is_scratch || held.has_graphs;
        self.state.lock().held.iter().any(|held| held.number == number && stays(held))
    }

    pub(super) fn begin(&self, id: PoolId, filter: PoolFilter, purpose: PoolUse) -> Result<()> {
        let mut state = self.state.lock();
        if state.routes.iter().any(|route| route.id == id) {
            return Err(misuse(id, "is begun already"));
        }
        let held = state.hold(id);
        held.has_graphs |= purpose == PoolUse::Capture;
        let number = held.number;
        state.routes.push(Route { id, number, filter, purpose });
        self.set_modes(&state);
        Ok(())
    }

    /// Counts a use; if `lends`, the pool lends from now on.
    pub(super) fn hold(&self, id: PoolId, lends: bool) {
        let mut state = self.state.lock();
        state.hold(id).lends |= lends;
    }

    /// Makes a pool and counts a use. `in_use` are the pools whose lanes hold memory.
    pub(super) fn create(
        &self,
        id: PoolId,
        own: Option<Arc<OwnMemory>>,
        communication: Option<Arc<Communication>>,
        in_use: &[PoolNumber],
    ) -> Result<()> {
        let mut state = self.state.lock();
        if state.held.iter().any(|held| held.id == id) {
            return Err(misuse(id, "is held already"));
        }
        let held = state.hold(id);
        held.is_scratch = own.as_ref().is_some_and(|own| own.has_arenas);
        if communication.is_some() {
            held.communication = communication;
            self.has_communication.store(true, Relaxed);
        }
        let number = held.number;
        let State { held, own: all, .. } = &mut *state;
        all.retain(|(number, _)| {
            in_use.contains(number) || held.iter().any(|held| held.number == *number)
        });
        if let Some(own) = own {
            all.push((number, own));
            self.has_own.store(true, Relaxed);
        }
        Ok(())
    }

    /// What the pool has of its own.
    pub(super) fn own(&self, number: PoolNumber) -> Option<Arc<OwnMemory>> {
        if !number.is_private() || !self.has_own.load(Relaxed) {
            return None;
        }
        let state = self.state.lock();
        let found = state.own.iter().find(|(other, _)| *other == number);
        found.map(|(_, own)| Arc::clone(own))
    }

    /// How the memory of the pool is made, if it is held and others reach it by its address.
    pub(super) fn communication(&self, number: PoolNumber) -> Option<Arc<Communication>> {
        if !number.is_private() || !self.has_communication.load(Relaxed) {
            return None;
        }
        let state = self.state.lock();
        state.held.iter().find(|held| held.number == number)?.communication.clone()
    }

    /// What is reserved for the private pool, unless it has been released.
    pub(super) fn account(&self, number: PoolNumber) -> Option<Arc<PoolAccount>> {
        if !number.is_private() {
            return None;
        }
        let state = self.state.lock();
        let found = state.held.iter().find(|held| held.number == number);
        found.map(|held| Arc::clone(&held.account))
    }

    /// Returns true if a pool that is held may give free memory back: no graph writes to it.
    pub(super) fn may_shrink(&self, number: PoolNumber) -> bool {
        let state = self.state.lock();
        state.held.iter().any(|held| held.number == number && !held.has_graphs)
    }

    /// From now on the pool's memory is paused with the tag of `mark`; `None`: with none.
    pub(super) fn set_mark(&self, id: PoolId, mark: Option<Mark>) -> Result<()> {
        let mut state = self.state.lock();
        let held = state.held.iter_mut().find(|held| held.id == id);
        held.ok_or_else(|| misuse(id, "is not held"))?.mark = mark;
        Ok(())
    }

    /// Whose memory the pool's is, if it is held, and all of it is the device's own.
    pub(super) fn mark(&self, number: PoolNumber) -> Option<Mark> {
        let state = self.state.lock();
        if state.own.iter().any(|(other, _)| *other == number) {
            return None;
        }
        state.held.iter().find(|held| held.number == number)?.mark
    }

    /// Returns true if there may be pools with memory of their own.
    pub(super) fn has_own(&self) -> bool {
        self.has_own.load(Relaxed)
    }

    /// How many uses there are.
    pub(super) fn uses(&self, id: PoolId) -> u64 {
        let state = self.state.lock();
        state.held.iter().find(|held| held.id == id).map_or(0, |held| held.uses)
    }

    /// The number of a pool that is held.
    pub(super) fn number_of(&self, id: PoolId) -> Result<PoolNumber> {
        let state = self.state.lock();
        let held = state.held.iter().find(|held| held.id == id);
        held.map(|held| held.number).ok_or_else(|| misuse(id, "is not held"))
    }

    /// The pools that lend, the one held longest first.
    pub(super) fn lenders(&self) -> Vec<PoolNumber> {
        let state = self.state.lock();
        let mut lenders: Vec<PoolNumber> =
            state.held.iter().filter(|held| held.lends).map(|held| held.number).collect();
        lenders.sort_by_key(|number| number.0);
        lenders
    }

    /// Ends what [`Self::begin`] began; returns what it was for.
    pub(super) fn end(&self, id: PoolId) -> Result<PoolUse> {
        let mut state = self.state.lock();
        let position = state.routes.iter().position(|route| route.id == id);
        let ended = position.map(|position| state.routes.remove(position));
        self.set_modes(&state);
        // Dropping the filter may run the caller's code: not under the lock.
        drop(state);
        ended.map(|route| route.purpose).ok_or_else(|| misuse(id, "is not begun"))
    }

    pub(super) fn release(&self, id: PoolId) -> Result<()> {
        let mut state = self.state.lock();
        let Some(position) = state.held.iter().position(|held| held.id == id) else {
            return Err(misuse(id, "is not held"));
        };
        state.held[position].uses -= 1;
        if state.held[position].uses == 0 {
            state.held.swap_remove(position);
        }
        Ok(())
    }
}

impl State {
    /// Counts a use of the pool, which is made if nobody holds it.
    fn hold(&mut self, id: PoolId) -> &mut Held {
        let position = self.held.iter().position(|held| held.id == id).unwrap_or_else(|| {
            self.last_number += 1;
            let number = PoolNumber(self.last_number);
            let account = Arc::new(PoolAccount::new((id.0, id.1)));
            self.held.push(Held {
                id,
                number,
                uses: 0,
                lends: false,
                has_graphs: false,
                is_scratch: false,
                account,
                communication: None,
                mark: None,
            });
            self.held.len() - 1
        });
        let held = &mut self.held[position];
        held.uses += 1;
        held
    }
}

fn misuse(PoolId(first, second): PoolId, what: &str) -> Error {
    Error::invalid_argument(format!("the private pool ({first}, {second}) {what}"))
}

impl fmt::Debug for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Route").field("id", &self.id).finish_non_exhaustive()
    }
}
