//! Contexts and streams: their queues and their names.
//!
//! A *slot* is a stream as the machine counts them: a small dense index, used by queues and
//! vector clocks. Slots 0 … devices − 1 are the legacy streams of the primary contexts.
//!
//! A *handle* is what callers pass:
//!
//! | handle | names |
//! |---|---|
//! | 0, 1 | the legacy stream of the context of the call |
//! | 2 | the calling thread's own stream in that context |
//! | a multiple of [`HANDLE_STEP`], from [`FIRST_HANDLE`] | a stream of `cuStreamCreate` |
//! | any other | an implicit stream of the context of the call, if the machine allows those |
//!
//! **Handles are reused at once**, the one destroyed last first, even while work of the
//! destroyed stream is outstanding: a handle is an address in the driver, and `cuStreamDestroy`
//! returns without waiting (reported of real drivers in rapidsai/rmm#649). A stream's *id*
//! (`cuStreamGetId`) is never reused. Until its handle is reused, a destroyed stream stays known
//! as destroyed, so its use is an error and is reported; a real driver's answer is undefined.
//! An implicit handle cannot be told from a reused one: after its destruction it names a new
//! stream.
//!
//! A slot is reused once the stream is idle and the host knows it. From then on all that the old
//! stream did comes before anything new, so sharing a clock component hides no race.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::store::Cell as Note;

/// The legacy default stream, under its explicit name; 0 means the same.
pub const STREAM_LEGACY: usize = 1;
/// The default stream of the calling thread.
pub const STREAM_PER_THREAD: usize = 2;

/// Handles of created streams: from here up, this far apart.
const FIRST_HANDLE: usize = 0x5700_0000_0000;
const HANDLE_STEP: usize = 0x100;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: u32,
    /// The slot of its legacy stream.
    pub(crate) legacy: u32,
    /// Devices whose plain allocations it may touch, as a bit set.
    pub(crate) peers: u64,
    /// Never reused; changed by a reset of the device.
    pub(crate) id: u64,
    pub(crate) is_alive: bool,
}

impl Context {
    /// The primary context of `device`, whose legacy stream has the slot of that number.
    pub(crate) fn primary(device: u32) -> Self {
        Self { device, legacy: device, peers: 0, id: u64::from(device) + 1, is_alive: true }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) context: u32,
    /// The context's device.
    pub(crate) device: u32,
    /// Never reused; set when the stream is added.
    pub(crate) id: u64,
    pub(crate) handle: usize,
    /// True if it is ordered with the legacy stream of its context.
    pub(crate) blocking: bool,
    /// True while a test holds it back, like a kernel that does not end.
    pub(crate) held: bool,
    /// How many operations were ever enqueued; the last one's number.
    pub(crate) enqueued: u64,
    /// How many of them have completed.
    pub(crate) done: u64,
    /// Those that have not: numbers `done + 1 ..= enqueued`.
    pub(crate) queue: VecDeque<Operation>,
    /// The capture it takes part in.
    pub(crate) capture: Option<u64>,
    /// What comes before its next operation; kept while the detector is on.
    pub(crate) clock: Clock,
    /// The version of the host's knowledge that the clock contains.
    pub(crate) host_version: u64,
}

/// A piece of queued work. Its touches were judged when it was enqueued.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Operations that must have completed, as slots and numbers.
    pub(crate) after: Vec<(u32, u64)>,
    /// The record of another process's event that must be complete.
    pub(crate) until: Option<Until>,
    /// How long it takes, in virtual nanoseconds.
    pub(crate) duration_ns: u64,
}

/// A record of another process's event.
#[derive(Debug)]
pub(crate) struct Until {
    pub(crate) note: Note,
    pub(crate) record: u64,
}

impl Until {
    /// What is recorded in the event now.
    pub(crate) fn now(note: &Note) -> Self {
        Self { record: note.first().load(Ordering::Acquire), note: note.clone() }
    }

    /// Returns true if the work is complete, or if its process or the event is gone: a driver
    /// completes what a process that ended had queued.
    pub(crate) fn is_over(&self) -> bool {
        !self.note.is_valid() || self.note.second().load(Ordering::Acquire) >= self.record
    }
}

#[derive(Debug)]
pub(crate) struct StreamTable {
    pub(crate) slots: Vec<Stream>,
    /// How many operations all queues hold together.
    pub(crate) queued: usize,
    /// How many operations wait for another process.
    pub(crate) elsewhere: usize,
    /// How many streams are held back.
    pub(crate) held: usize,
    pub(crate) names: HashMap<Name, Entry>,
    /// Slots of destroyed streams.
    pub(crate) retired: VecDeque<u32>,
    /// Handles to be reused, the last one first.
    recyclable: Vec<usize>,
    /// How many different handles there were.
    created: usize,
    /// The id set last.
    last_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Created(usize),
    Implicit(u32, usize),
    Thread(u32, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Live(u32),
    Destroyed,
}

impl StreamTable {
    pub(crate) fn new(devices: u32) -> Self {
        let legacy = |device| {
            let id = u64::from(device) + 1;
            Stream { context: device, device, id, blocking: true, ..Stream::default() }
        };
        Self {
            slots: (0..devices).map(legacy).collect(),
            queued: 0,
            elsewhere: 0,
            held: 0,
            names: HashMap::new(),
            retired: VecDeque::new(),
            recyclable: Vec::new(),
            created: 0,
            last_id: u64::from(devices),
        }
    }

    /// The slots of the streams of a context, destroyed ones with work left included.
    pub(crate) fn of_context(&self, context: u32) -> impl Iterator<Item = u32> {
        self.filter(move |stream| stream.context == context)
    }

    /// The slots of the streams of `device`, destroyed ones with work left included.
    pub(crate) fn of_device(&self, device: u32) -> impl Iterator<Item = u32> {
        self.filter(move |stream| stream.device == device)
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Marks a slot without a name: it is reused once nothing of it is outstanding.
    pub(crate) fn retire(&mut self, slot: u32) {
        self.retired.push_back(slot);
    }

    /// A handle for a created stream: the one freed last, or a new one.
    pub(crate) fn take_handle(&mut self) -> usize {
        self.recyclable.pop().unwrap_or_else(|| {
            self.created += 1;
            FIRST_HANDLE + (self.created - 1) * HANDLE_STEP
        })
    }

    /// Makes the handle of a destroyed stream free for the next one.
    pub(crate) fn recycle(&mut self, handle: usize) {
        self.recyclable.push(handle);
    }

    fn filter(&self, is_wanted: impl Fn(&Stream) -> bool) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.slots).filter(move |(_, stream)| is_wanted(stream)).map(|(slot, _)| slot)
    }
}

/// Which of the created streams `handle` names, counted from 0, if it can name one.
#[inline]
pub(crate) fn created_index(handle: usize) -> Option<usize> {
    let is_one = handle >= FIRST_HANDLE && handle.is_multiple_of(HANDLE_STEP);
    is_one.then(|| (handle - FIRST_HANDLE) / HANDLE_STEP)
}

/// A number of the calling thread, never reused.
#[inline]
pub(crate) fn thread_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static TOKEN: Cell<u64> = const { Cell::new(0) };
    }
    TOKEN.with(|token| {
        if token.get() == 0 {
            token.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        token.get()
    })
}
