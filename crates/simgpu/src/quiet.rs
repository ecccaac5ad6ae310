//! Calls without the lock, while nothing goes on.
//!
//! A machine is *quiet* while streams advance by themselves, none is held or captures, nothing is
//! queued, no fault is scripted and no race looked for. Then all work there ever was has completed.
//! So every event that was recorded, and not in a capture, is complete; and to record one without
//! timing anew, or to wait on it, changes nothing that anybody could tell: such calls are only
//! counted. The threads of a program, which make them for every block that several streams share,
//! need not meet at the machine's lock for that, as they would hardly meet in a real driver.
//!
//! What this takes is written under the lock and read without it: whether the machine is quiet, as
//! the lock is let go; and a word for each event, each created stream and each further context,
//! which says whether it is good for such calls. Whoever changes any of it has done so when its call returns, so a call that
//! comes after it knows. In all other cases the call takes the lock and finds out.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::machine::{Machine, State};
use crate::stream_table::{STREAM_LEGACY, created_index, thread_token};
use crate::{Call, CostTable, Progress, Usage};

/// Calls are counted in so many places, by thread.
const SHARDS: usize = 16;

/// What is known without the lock.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Whether there may be violations: see [`Machine::take_violations`].
    pub(crate) has_violations: AtomicBool,
    is_quiet: AtomicBool,
    /// Of created streams: the context, counted from 1, and above it the id.
    streams: Words,
    /// Of events: the context, counted from 1, and above it the generation.
    events: Words,
    /// Of contexts that are not primary: the device, counted from 1.
    contexts: Words,
    /// By device, then by thread.
    calls: Vec<[Calls; SHARDS]>,
}

/// Calls made without the lock. Two cache lines are fetched together.
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

    /// Whether the machine is quiet; told by whoever holds its lock.
    pub(crate) fn set(&self, is_quiet: bool) {
        // Readers keep the cache line while nothing changes.
        if self.is_quiet.load(Ordering::Relaxed) != is_quiet {
            self.is_quiet.store(is_quiet, Ordering::Release);
        }
    }

    /// The stream whose handle has number `index` is one of that context and has that id;
    /// `None`: it is gone.
    pub(crate) fn set_stream(&self, index: usize, stream: Option<(u32, u64)>) {
        // An id that does not fit is not known here.
        let word = |(context, id): (u32, u64)| {
            u32::try_from(id).map_or(0, |id| u64::from(id) << 32 | (u64::from(context) + 1))
        };
        self.streams.set(index, stream.map_or(0, word));
    }

    /// The event `key` is one of `context` without timing and was recorded, outside of captures;
    /// `None`: it is not so, or gone.
    pub(crate) fn set_event(&self, key: u64, context: Option<u32>) {
        let (generation, index) = event_parts(key);
        let word = |context| generation | (u64::from(context) + 1);
        self.events.set(index, context.map_or(0, word));
    }

    /// A further context is one of `device`; `None`: it is gone.
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

    /// The context of `stream`, as a call in `context` means it, if that is known here.
    pub(crate) fn stream_context(&self, context: u32, stream: usize) -> Option<u32> {
        if stream == 0 || stream == STREAM_LEGACY {
            return Some(context);
        }
        let word = self.streams.get(created_index(stream)?);
        (word as u32).checked_sub(1)
    }

    /// The id of a created stream, if that is known here.
    pub(crate) fn stream_id(&self, stream: usize) -> Option<u64> {
        let word = self.streams.get(created_index(stream)?);
        (word != 0).then_some(word >> 32)
    }

    /// The context of the event `key`, if that is known here.
    pub(crate) fn event_context(&self, key: u64) -> Option<u32> {
        let (generation, index) = event_parts(key);
        let word = self.events.get(index);
        if word & !0xFFFF_FFFF == generation { (word as u32).checked_sub(1) } else { None }
    }

    /// Counts a call, if there is such a context.
    fn count(&self, context: u32, call: Call) -> bool {
        let index = context as usize;
        let device = if index < self.calls.len() { index } else { self.further_device(index) };
        let Some(shards) = self.calls.get(device) else { return false };
        let calls = &shards[thread_token() as usize % SHARDS];
        calls.0[call as usize].fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The device of a context that is not primary; one that is not there has none.
    fn further_device(&self, context: usize) -> usize {
        (self.contexts.get(context) as usize).wrapping_sub(1)
    }
}

impl Machine {
    /// Whether all of `call` in `context` is done by counting it, which has been done then: the
    /// machine is quiet, and what the call is about `is_known`.
    pub(crate) fn quietly(
        &self,
        context: u32,
        call: Call,
        is_known: impl FnOnce(&Quiet) -> bool,
    ) -> bool {
        let quiet = &*self.quiet;
        // Asked first: what is read afterwards was written before the machine became quiet.
        quiet.is_quiet.load(Ordering::Acquire) && is_known(quiet) && quiet.count(context, call)
    }
}

impl State {
    /// Whether the machine is quiet: see the head of this file.
    pub(crate) fn is_quiet(&self) -> bool {
        self.progress == Progress::Automatic
            && self.streams.queued == 0
            && self.streams.held == 0
            && self.captures.len() == 0
            && self.detector.is_none()
            && self.script.is_empty()
    }
}

/// What of an event's key is its generation, in place, and its index.
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
    fn place(index: usize) -> (usize, usize) {
        let chunk = (index + 1).ilog2() as usize;
        (chunk, index + 1 - (1 << chunk))
    }
}
