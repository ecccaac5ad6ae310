//! Private pools: memory set apart for a graph capture or for whoever asks.
//!
//! A captured graph holds the addresses its work used, so memory that was freed during the
//! capture may be reused by that graph only, and must stay where it is until the graph is gone.
//! Between `Heap::begin_pool` and `Heap::end_pool` the requests whose stream passes the
//! pool's filter are served from lanes of the pool's own, which share nothing with the others:
//! they neither take segments from outside nor lose any, until as many
//! `Heap::release_pool` as there were begins have come. Then what is free goes back to the
//! driver, which waits for all work of the device: a graph may be replayed on any stream, so no
//! event of a lane's own stream tells when its memory is out of use. What is still live goes
//! back once it has been freed, with the next release of cached memory.
//!
//! A stream may be capturing while any pool of its device is begun, so meanwhile nothing there
//! is waited for, polled or given back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::{Error, Result, StreamHandle};

/// Names a private pool, as PyTorch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub u64, pub u64);

/// Says whether requests on a stream, made by the calling thread, belong to a pool.
pub type PoolFilter = Arc<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// A pool's number among all that a device has had, never used again; or, with a bit to tell
/// them apart, a tag's among all of the heap (`heap::tags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolNumber(pub(super) u32);

const TAG_BIT: u32 = 1 << 31;

impl PoolNumber {
    /// What requests are served from unless a pool claims them.
    pub(super) const COMMON: Self = Self(0);

    /// What requests under the tag of that position are served from.
    pub(super) fn of_tag(position: u32) -> Self {
        Self(TAG_BIT | position)
    }

    /// The position of the tag it is, if it is one.
    pub(super) fn tag_position(self) -> Option<u32> {
        (self.0 & TAG_BIT != 0).then_some(self.0 & !TAG_BIT)
    }

    /// Whether it is a private pool's: one whose memory must stay where it is.
    #[inline]
    pub(super) fn is_private(self) -> bool {
        self != Self::COMMON && self.0 & TAG_BIT == 0
    }
}

/// Bits of a device's mode: a private pool is begun, or
const ROUTING: u8 = 1;
/// a tag may have been begun since the start.
const TAGGED: u8 = 2;

/// The private pools of one device.
#[derive(Debug)]
pub(super) struct Pools {
    mode: AtomicU8,
    state: Lock<State, { rank::DEVICE }>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u32,
    held: Vec<Held>,
    routes: Vec<Route>,
}

/// A pool whose addresses must stay.
#[derive(Debug)]
struct Held {
    id: PoolId,
    number: PoolNumber,
    /// Begins less releases.
    uses: u64,
}

/// A pool that is begun and not ended.
#[derive(Clone)]
struct Route {
    id: PoolId,
    number: PoolNumber,
    filter: PoolFilter,
}

impl Default for Pools {
    fn default() -> Self {
        Self { mode: AtomicU8::new(TAGGED), state: Lock::default() }
    }
}

impl Pools {
    /// Whether every request is the common pool's.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.mode.load(Relaxed) == 0
    }

    /// Whether a pool is begun, so that a stream of the device may be capturing.
    #[inline]
    pub(super) fn is_routing(&self) -> bool {
        self.mode.load(Relaxed) & ROUTING != 0
    }

    /// Whether the calling thread may have begun a tag.
    pub(super) fn is_tagged(&self) -> bool {
        self.mode.load(Relaxed) & TAGGED != 0
    }

    /// Says whether threads may have begun a tag. The registry of tags is locked.
    pub(super) fn set_tagged(&self, tagged: bool) {
        self.set(TAGGED, tagged);
    }

    fn set(&self, bit: u8, value: bool) {
        if value {
            self.mode.fetch_or(bit, Relaxed);
        } else {
            self.mode.fetch_and(!bit, Relaxed);
        }
    }

    /// The private pool that claims a request on `stream`.
    #[cold]
    pub(super) fn route(&self, stream: StreamHandle) -> Option<PoolNumber> {
        // Filters are the caller's code: no lock is held while they run.
        let routes = self.state.lock().routes.clone();
        assert_none_held();
        let claimed = routes.iter().find(|route| (route.filter)(stream));
        claimed.map(|route| route.number)
    }

    /// Whether the segments of a pool's lanes must stay where they are.
    pub(super) fn is_held(&self, number: PoolNumber) -> bool {
        self.state.lock().held.iter().any(|held| held.number == number)
    }

    pub(super) fn begin(&self, id: PoolId, filter: PoolFilter) -> Result<()> {
        let mut state = self.state.lock();
        if state.routes.iter().any(|route| route.id == id) {
            return Err(misuse(id, "is begun already"));
        }
        let number = match state.held.iter_mut().find(|held| held.id == id) {
            Some(held) => {
                held.uses += 1;
                held.number
            }
            None => {
                state.last_number += 1;
                let number = PoolNumber(state.last_number);
                state.held.push(Held { id, number, uses: 1 });
                number
            }
        };
        state.routes.push(Route { id, number, filter });
        self.set(ROUTING, true);
        Ok(())
    }

    pub(super) fn end(&self, id: PoolId) -> Result<()> {
        let mut state = self.state.lock();
        let position = state.routes.iter().position(|route| route.id == id);
        let ended = position.map(|position| state.routes.remove(position));
        self.set(ROUTING, !state.routes.is_empty());
        // The filter may be the caller's code to drop: not under the lock.
        drop(state);
        ended.map(drop).ok_or_else(|| misuse(id, "is not begun"))
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

fn misuse(PoolId(first, second): PoolId, what: &str) -> Error {
    Error::invalid_argument(format!("the private pool ({first}, {second}) {what}"))
}

impl fmt::Debug for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Route").field("id", &self.id).finish_non_exhaustive()
    }
}
