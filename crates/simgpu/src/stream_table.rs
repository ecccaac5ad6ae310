//! Streams and their names.
//!
//! A *slot* is a stream as the machine counts them: a small dense index, used by queues and
//! vector clocks. Slots 0 … devices − 1 are the legacy streams of the primary contexts. A
//! *handle* is what callers pass; handles 0 and 1 name the legacy stream of the context of the
//! call, 2 the calling thread's own stream in that context, and numbers from [`FIRST_HANDLE`] up
//! streams made by `cuStreamCreate`, whichever context is current. Any other handle names an
//! implicit stream of the context of the call, where the machine allows that.
//!
//! **Handles are given again at once**, the one destroyed last first, also while the work of the
//! destroyed stream is outstanding: a handle is an address in the driver, and `cuStreamDestroy`
//! returns without waiting (reported of real drivers in rapidsai/rmm#649). What never comes back
//! is a stream's *id* (`cuStreamGetId`). Until it is given again, a destroyed handle stays known
//! as destroyed, so that its use is an error and is reported; a real driver's answer is undefined.
//! An implicit handle cannot be told from one that was given again: after its destruction it
//! names a new stream.
//!
//! A slot is used again once the stream is idle and the host knows it: from then on all that
//! the old stream did comes before anything new, so sharing a clock component hides no race.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::machine::State;
use crate::violation::Violation;
use crate::{Call, Code, Result};

/// The legacy default stream, under its explicit name; 0 means the same.
pub const STREAM_LEGACY: usize = 1;
/// The default stream of the calling thread.
pub const STREAM_PER_THREAD: usize = 2;

/// Handles of created streams: from here up, this far apart.
const FIRST_HANDLE: usize = 0x5700_0000_0000;
const HANDLE_STEP: usize = 0x100;

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) context: u32,
    /// That of the context.
    pub(crate) device: u32,
    /// Never used again; given when the stream is added.
    pub(crate) id: u64,
    pub(crate) handle: usize,
    /// Whether it is ordered with the legacy stream of its context.
    pub(crate) blocking: bool,
    /// Whether a test holds it back, like a kernel that does not end.
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
    /// Which state of the host's knowledge the clock contains.
    pub(crate) host_version: u64,
}

/// A piece of queued work. What it touches was judged when it was enqueued.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Operations that must have completed, as slots and numbers.
    pub(crate) after: Vec<(u32, u64)>,
    /// How long it takes, in virtual nanoseconds.
    pub(crate) duration_ns: u64,
}

#[derive(Debug)]
pub(crate) struct StreamTable {
    pub(crate) slots: Vec<Stream>,
    /// How many operations all queues hold together.
    pub(crate) queued: usize,
    /// How many streams are held back.
    pub(crate) held: usize,
    names: HashMap<Name, Entry>,
    retired: VecDeque<u32>,
    /// Handles to be given again, the last one first.
    recyclable: Vec<usize>,
    created: usize,
    /// The id given last.
    last_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    Created(usize),
    Implicit(u32, usize),
    Thread(u32, u64),
}

#[derive(Clone, Copy, Debug)]
enum Entry {
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

    /// A slot without a name: it may serve again once nothing of it is outstanding.
    pub(crate) fn retire(&mut self, slot: u32) {
        self.retired.push_back(slot);
    }

    fn filter(&self, is_wanted: impl Fn(&Stream) -> bool) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.slots).filter(move |(_, stream)| is_wanted(stream)).map(|(slot, _)| slot)
    }
}

impl State {
    /// The slot that `handle` names in `context`, for a driver call (`None`: for a touch or a
    /// test); an implicit stream is made if need be.
    pub(crate) fn stream(
        &mut self,
        context: u32,
        handle: usize,
        call: impl Into<Option<Call>>,
    ) -> Result<u32> {
        let device = self.context_device(context)?;
        let name = match handle {
            0 | STREAM_LEGACY => return Ok(self.contexts[context as usize].legacy),
            STREAM_PER_THREAD => Name::Thread(context, thread_token()),
            handle if created_index(handle).is_some() => Name::Created(handle),
            handle => Name::Implicit(context, handle),
        };
        match self.streams.names.get(&name) {
            Some(&Entry::Live(slot)) => Ok(slot),
            Some(Entry::Destroyed) => {
                self.report(Violation::DestroyedStream { handle, call: call.into() });
                Err(Code::INVALID_HANDLE)
            }
            None => {
                let is_thread = matches!(name, Name::Thread(..));
                let is_allowed = is_thread || self.config.implicit_streams;
                if !is_allowed || matches!(name, Name::Created(_)) {
                    return Err(Code::INVALID_HANDLE);
                }
                let blocking = is_thread;
                let stream = Stream { context, device, handle, blocking, ..Stream::default() };
                let slot = self.add_stream(stream);
                self.streams.names.insert(name, Entry::Live(slot));
                Ok(slot)
            }
        }
    }

    pub(crate) fn create_stream(&mut self, context: u32, blocking: bool) -> Result<usize> {
        let device = self.context_device(context)?;
        let recycled = self.streams.recyclable.pop();
        let handle = recycled.unwrap_or_else(|| {
            self.streams.created += 1;
            FIRST_HANDLE + (self.streams.created - 1) * HANDLE_STEP
        });
        let stream = Stream { context, device, handle, blocking, ..Stream::default() };
        let slot = self.add_stream(stream);
        self.streams.names.insert(Name::Created(handle), Entry::Live(slot));
        if let Some(index) = created_index(handle) {
            self.quiet.set_stream(index, Some((context, self.streams.slots[slot as usize].id)));
        }
        Ok(handle)
    }

    /// Forgets the handle; the work in the queue stays and is finished like any other.
    pub(crate) fn destroy_stream(&mut self, context: u32, handle: usize) -> Result<()> {
        if handle <= STREAM_PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        let slot = self.stream(context, handle, Call::StreamDestroy)?;
        self.forget_captures(&[slot]);
        self.forget_name(match created_index(handle) {
            Some(_) => Name::Created(handle),
            None => Name::Implicit(context, handle),
        });
        self.streams.retire(slot);
        Ok(())
    }

    /// Ends the names of all streams of a context, but for the legacy stream's. Their slots may
    /// serve again.
    pub(crate) fn forget_streams(&mut self, context: u32) {
        let is_its = |slot: u32| self.streams.slots[slot as usize].context == context;
        let names = self.streams.names.iter();
        let of_context = names.filter_map(|(&name, &entry)| match entry {
            Entry::Live(slot) if is_its(slot) => Some((name, slot)),
            _ => None,
        });
        let mut of_context: Vec<(Name, u32)> = of_context.collect();
        // The newest ids first, so that handles come back in the order in which they were given.
        of_context.sort_by_key(|&(_, slot)| Reverse(self.streams.slots[slot as usize].id));
        for (name, slot) in of_context {
            self.forget_name(name);
            self.streams.retire(slot);
        }
    }

    fn forget_name(&mut self, name: Name) {
        let Name::Created(handle) = name else {
            self.streams.names.remove(&name);
            return;
        };
        self.streams.names.insert(name, Entry::Destroyed);
        self.streams.recyclable.push(handle);
        if let Some(index) = created_index(handle) {
            self.quiet.set_stream(index, None);
        }
    }

    /// A slot for `stream`, which gets an id.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> u32 {
        let stream = Stream { id: self.streams.next_id(), ..stream };
        if let Some(slot) = self.take_retired_slot() {
            let retired = &mut self.streams.slots[slot as usize];
            let (enqueued, done) = (retired.enqueued, retired.done);
            self.streams.held -= usize::from(retired.held);
            *retired = Stream { enqueued, done, ..stream };
            return slot;
        }
        self.streams.slots.push(stream);
        self.streams.slots.len() as u32 - 1
    }

    /// A destroyed stream's slot that may serve again. Only the oldest is looked at: one that
    /// is not ready goes to the back of the queue.
    fn take_retired_slot(&mut self) -> Option<u32> {
        let slot = self.streams.retired.pop_front()?;
        let stream = &self.streams.slots[slot as usize];
        let is_idle = stream.done == stream.enqueued;
        let is_known = self
            .detector
            .as_ref()
            .is_none_or(|detector| detector.host.get(slot) >= stream.enqueued);
        if is_idle && is_known {
            return Some(slot);
        }
        self.streams.retired.push_back(slot);
        None
    }
}

/// Which of the created streams `handle` names, counted from 0, if it can be the name of one.
pub(crate) fn created_index(handle: usize) -> Option<usize> {
    let is_one = handle >= FIRST_HANDLE && handle.is_multiple_of(HANDLE_STEP);
    is_one.then(|| (handle - FIRST_HANDLE) / HANDLE_STEP)
}

/// A number of the calling thread's own, never used again.
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
