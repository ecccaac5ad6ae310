//! Calls without the lock, while nothing goes on.
//!
//! A machine is *quiet* while all of this holds: streams advance by themselves, none is held or
//! captures, nothing is queued, no fault is scripted, no race is looked for, and no test is told of
//! each call. Then all work there ever was has completed. So every event that was recorded, and not in a capture, is
//! complete. To record one without timing again, or to wait on it, changes nothing that could be
//! observed: such calls are only counted. Programs make them for every block that several
//! streams share; their threads would hardly meet in a real driver, and do not meet at the
//! machine's lock here.
//!
//! What this needs is written under the lock and read without it:
//! - whether the machine is quiet, published as the lock is let go;
//! - a word for each event, each created stream and each further context, which tells if it is
//!   good for such calls.
//!
//! A call that changes any of it has done so when it returns, so a call that comes after it
//! knows. In all other cases the call takes the lock and finds out. Which device a context belongs to
//! is told here whether the machine is quiet or not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::call::Call;
use crate::cost::CostTable;
use crate::tables::{STREAM_LEGACY, created_index, thread_token};
use crate::usage::Usage;

/// In how many places calls are counted: in the first half each of the first threads has its own, to which
/// it adds without a locked instruction; later threads share the others.
const SHARDS: usize = 32;

/// What is known without the lock.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// True if there may be violations: see [`crate::Machine::take_violations`].
    pub(crate) has_violations: AtomicBool,
    is_quiet: AtomicBool,
    /// For created streams: the context, counted from 1, and above it the id.
    streams: Words,
    /// For events: the context, counted from 1, and above it the generation.
    events: Words,
    /// For contexts that are not primary: the device, counted from 1.
    contexts: Words,
    /// By device, then by thread.
    calls: Vec<[Calls; SHARDS]>,
}

/// Calls made without the lock. Aligned to two cache lines, which are fetched together.
#[derive(Debug)]
#[repr(align(128))]
struct Calls([AtomicU64; Call::COUNT]);

impl Quiet {
    pub(crate) fn new(devices: usize) -> Self {
        let counts = || Calls([const { AtomicU64::new(0) }; Call::COUNT]);
        Self {
            has_violations: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            streams: Words::default(),
            events: Words::default(),
            contexts: Words::default(),
            calls: (0..devices).map(|_| std::array::from_fn(|_| counts())).collect(),
        }
    }

    /// Publishes whether the machine is quiet. Called with the machine's lock.
    pub(crate) fn set(&self, is_quiet: bool) {
        // Readers keep the cache line while nothing changes.
        if self.is_quiet.load(Ordering::Relaxed) != is_quiet {
            self.is_quiet.store(is_quiet, Ordering::Release);
        }
    }

    /// The stream whose handle has number `index` belongs to that context and has that id;
    /// `None`: it is gone.
    pub(crate) fn set_stream(&self, index: usize, stream: Option<(u32, u64)>) {
        // An id of more than 32 bits is not known here.
        let word = |(context, id): (u32, u64)| {
            u32::try_from(id).map_or(0, |id| u64::from(id) << 32 | (u64::from(context) + 1))
        };
        self.streams.set(index, stream.map_or(0, word));
    }

    /// The event `key` belongs to `context`, has no timing, and was recorded outside of captures;
    /// `None`: one of these is not so, or the event is gone.
    pub(crate) fn set_event(&self, key: u64, context: Option<u32>) {
        let (generation, index) = event_parts(key);
        let word = |context| generation | (u64::from(context) + 1);
        self.events.set(index, context.map_or(0, word));
    }

    /// A further context belongs to `device`; `None`: it is gone.
    pub(crate) fn set_context(&self, context: u32, device: Option<u32>) {
        self.contexts.set(context as usize, device.map_or(0, |device| u64::from(device) + 1));
    }

    /// Adds the calls of `device` that were made without the lock, and their price.
    pub(crate) fn add_to(&self, usage: &mut Usage, device: u32, costs: &CostTable) {
        for call in Call::ALL {
            let shards = self.calls[device as usize].iter();
            let count = shards.map(|calls| calls.0[call as usize].load(Ordering::Relaxed)).sum();
            usage.charge_calls(call, count, costs);
        }
    }

    /// The context of the stream that a call in `context` means by `stream`, if known here.
    #[inline]
    pub(crate) fn stream_context(&self, context: u32, stream: usize) -> Option<u32> {
        if stream == 0 || stream == STREAM_LEGACY {
            return Some(context);
        }
        let word = self.streams.get(created_index(stream)?);
        (word as u32).checked_sub(1)
    }

    /// The id of a created stream, if known here.
    pub(crate) fn stream_id(&self, stream: usize) -> Option<u64> {
        let word = self.streams.get(created_index(stream)?);
        (word != 0).then_some(word >> 32)
    }

    /// The context of the event `key`, if known here.
    #[inline]
    pub(crate) fn event_context(&self, key: u64) -> Option<u32> {
        let (generation, index) = event_parts(key);
        let word = self.events.get(index);
        if word & !0xFFFF_FFFF == generation { (word as u32).checked_sub(1) } else { None }
    }

    /// Returns true if the machine was quiet when the lock was last let go.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire)
    }

    /// The device of a context; `None` if there is no such context.
    #[inline]
    pub(crate) fn device_of(&self, context: u32) -> Option<u32> {
        if (context as usize) < self.calls.len() {
            return Some(context);
        }
        (self.contexts.get(context as usize) as u32).checked_sub(1)
    }

    /// Counts a call and returns true, if there is such a context.
    #[inline]
    pub(crate) fn count(&self, context: u32, call: Call) -> bool {
        let device = self.device_of(context);
        let Some(shards) = device.and_then(|device| self.calls.get(device as usize)) else {
            return false;
        };
        let (own, common) = shards.split_at(SHARDS / 2);
        // Tokens count from 1, and none comes again.
        let thread = thread_token() as usize - 1;
        if let Some(Calls(own)) = own.get(thread) {
            let count = &own[call as usize];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            common[thread % common.len()].0[call as usize].fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

/// The generation in an event's key, left in its place, and the index.
#[inline]
fn event_parts(key: u64) -> (u64, usize) {
    (key & !0xFFFF_FFFF, key as u32 as usize)
}

/// Words by index, 0 until they are set. They stay where they are, so readers need no lock.
#[derive(Debug)]
struct Words([OnceLock<Box<[AtomicU64]>>; 33]);

impl Default for Words {
    fn default() -> Self {
        Self([const { OnceLock::new() }; 33])
    }
}

impl Words {
    #[inline]
    fn get(&self, index: usize) -> u64 {
        let (chunk, place) = Self::place(index);
        let words = self.0.get(chunk).and_then(OnceLock::get);
        words.map_or(0, |words| words[place].load(Ordering::Acquire))
    }

    fn set(&self, index: usize, word: u64) {
        let (chunk, place) = Self::place(index);
        let make = || std::iter::repeat_with(AtomicU64::default).take(1 << chunk).collect();
        if let Some(words) = self.0.get(chunk) {
            words.get_or_init(make)[place].store(word, Ordering::Release);
        }
    }

    /// Chunk n has the words from 2^n − 1 on, 2^n of them.
    #[inline]
    fn place(index: usize) -> (usize, usize) {
        let chunk = (index + 1).ilog2() as usize;
        (chunk, index + 1 - (1 << chunk))
    }
}
