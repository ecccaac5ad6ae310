//! Queues that fill up behind held work: which calls block, and from which count on.
//!
//! A call blocks if it takes long and returns only after a thread has let the work go on. Calls
//! are tried one kind at a time, so that one kind does not wait because of another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Bench, Outcome, Table, Tried};
use crate::driver::{Answer, Driver, Event, HELD_FOR, Holder, Stream};

/// How long work is held for one kind of call; a call that takes [`BLOCKED`] or more blocks.
const HELD_FOR_ALL: Duration = Duration::from_millis(400);
const BLOCKED: Duration = Duration::from_millis(20);

/// What a kind of call needs.
struct Queue<'a> {
    driver: &'a Driver,
    /// The stream whose work is held.
    held: Stream,
    /// Another, which has nothing to do.
    free: Stream,
    /// Recorded behind the held work.
    waiting: Event,
    /// Recorded again and again.
    other: Event,
    /// A word for each stream.
    held_word: u64,
    free_word: u64,
    /// Addresses of a page, and the page.
    place: u64,
    page: u64,
    handle: u64,
    /// Created and not destroyed yet.
    spare_events: Mutex<Vec<Event>>,
}

type Kind = (&'static str, fn(&Queue<'_>) -> Answer);

/// Calls enqueued again and again while work is held.
const KINDS: [Kind; 5] = [
    ("launch on the held stream", |queue| queue.launch()),
    ("cuEventRecord on it", |queue| queue.driver.event_record(queue.other, queue.held)),
    ("cuStreamWaitEvent for it on a free stream", |queue| {
        queue.driver.stream_wait(queue.free, queue.waiting)
    }),
    ("cuEventQuery of an event behind it", |queue| {
        queue.driver.event_query(queue.waiting).map(|_| ())
    }),
    ("launch on a free stream", |queue| {
        queue.driver.fill(queue.free_word, 4, 1, queue.free)?;
        queue.driver.stream_synchronize(queue.free)
    }),
];

/// Calls of another thread while one is blocked by a full queue.
const OF_OTHERS: [Kind; 16] = [
    ("cuEventQuery", |queue| queue.driver.event_query(queue.waiting).map(|_| ())),
    ("cuEventRecord", |queue| queue.driver.event_record(queue.other, queue.free)),
    ("cuStreamWaitEvent", |queue| queue.driver.stream_wait(queue.free, queue.other)),
    ("cuStreamGetId", |queue| queue.driver.stream_id(queue.free).map(|_| ())),
    ("cuStreamIsCapturing", |queue| queue.driver.is_capturing(queue.free).map(|_| ())),
    ("cuEventCreate", |queue| {
        let event = queue.driver.event_create(false)?;
        queue.spare_events().push(event);
        Ok(())
    }),
    ("cuEventDestroy", |queue| {
        let event = queue.spare_events().pop();
        event.map_or(Ok(()), |event| queue.driver.event_destroy(event))
    }),
    ("launch", |queue| queue.driver.fill(queue.free_word, 4, 1, queue.free)),
    ("cuMemGetInfo", |queue| queue.driver.memory_info().map(|_| ())),
    ("cuMemCreate", |queue| {
        let handle = queue.driver.create(queue.driver.granularity(false)?)?;
        queue.driver.release(handle)
    }),
    ("cuMemAddressReserve", |queue| queue.driver.reserve(queue.page).map(|_| ())),
    ("cuMemMap and cuMemSetAccess", |queue| {
        queue.driver.map(queue.place, queue.page, queue.handle)?;
        queue.driver.set_access(queue.place, queue.page)
    }),
    ("cuMemUnmap", |queue| queue.driver.unmap(queue.place, queue.page)),
    ("cuStreamCreate", |queue| queue.driver.stream_create().map(|_| ())),
    ("cuMemAllocHost", |queue| queue.driver.host_allocate(4096).map(|_| ())),
    ("cuMemAlloc", |queue| queue.driver.allocate(4096).map(|_| ())),
];

/// Does any kind of call block, and from which count on?
pub(super) fn depth(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let holder = Holder::new(driver)?;
    let queue = Queue::new(driver)?;
    let mut table = Table::new(&["call", "blocks from", "longest", "calls"]);
    let mut blocking = Vec::new();
    for (name, call) in KINDS {
        // Once without anything held: a first call may wait for other things.
        call(&queue)?;
        driver.synchronize()?;
        let (blocks_from, longest) = enqueue(bench, &holder, &queue, call)?;
        blocking.extend(blocks_from.map(|count| format!("{name} from {count} on")));
        let from = blocks_from.map_or("never".to_owned(), |count| count.to_string());
        table.row([name.into(), from, format!("{longest:.1?}"), bench.counts.launches.to_string()]);
    }
    let seen = if blocking.is_empty() {
        format!("no call blocks within {}", bench.counts.launches)
    } else {
        format!("these block: {}", blocking.join("; "))
    };
    Ok(Outcome::new(blocking.is_empty(), seen).with(table))
}

/// Makes a kind of call behind held work, as often as asked for, or until one blocks.
fn enqueue(
    bench: &Bench,
    holder: &Holder<'_>,
    queue: &Queue<'_>,
    call: fn(&Queue<'_>) -> Answer,
) -> Answer<(Option<u64>, Duration)> {
    let hold = holder.close(queue.held)?;
    queue.driver.event_record(queue.waiting, queue.held)?;
    let made = hold.watch(HELD_FOR_ALL, || {
        let mut longest = Duration::ZERO;
        for count in 1..=bench.counts.launches {
            let started = Instant::now();
            call(queue)?;
            let elapsed = started.elapsed();
            longest = longest.max(elapsed);
            if elapsed >= BLOCKED && !hold.is_closed() {
                return Ok((Some(count), longest));
            }
        }
        Ok((None, longest))
    });
    hold.open();
    queue.driver.synchronize()?;
    made.value
}

/// Which calls of another thread return while one is blocked?
pub(super) fn other_threads(bench: &Bench) -> Tried {
    const SETTLED: Duration = Duration::from_millis(50);
    let driver = &bench.driver;
    let holder = Holder::new(driver)?;
    let queue = Queue::new(driver)?;
    for (_, call) in OF_OTHERS {
        call(&queue)?;
    }
    let mut table = Table::new(&["call", "returns", "took"]);
    let mut blocked = Vec::new();
    for (name, call) in OF_OTHERS {
        driver.synchronize()?;
        let hold = holder.close(queue.held)?;
        driver.event_record(queue.waiting, queue.held)?;
        let enqueued = AtomicU64::new(0);
        let (held, is_full) = std::thread::scope(|scope| {
            scope.spawn(|| fill_up(&queue, bench.counts.launches, &enqueued));
            let is_full = waits_at(&enqueued, bench.counts.launches, SETTLED);
            let held = hold.watch(HELD_FOR, || call(&queue));
            hold.open();
            (held, is_full)
        });
        held.value?;
        if !is_full {
            let count = bench.counts.launches;
            return Err(format!("no queue was full: {count} launches were accepted"));
        }
        if !held.returned_before {
            blocked.push(name);
        }
        let answer = if held.returned_before { "yes" } else { "no" };
        table.row([name.into(), answer.into(), format!("{:.1?}", held.elapsed)]);
    }
    let seen = if blocked.is_empty() {
        "all return".to_owned()
    } else {
        format!("these block: {}", blocked.join(", "))
    };
    Ok(Outcome::new(blocked.is_empty(), seen).with(table))
}

/// Launches on the held stream until its work goes on.
fn fill_up(queue: &Queue<'_>, most: u64, enqueued: &AtomicU64) {
    if queue.driver.enter().is_err() {
        return;
    }
    for _ in 0..most {
        if queue.launch().is_err() {
            return;
        }
        enqueued.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns true if the count stops before it reaches `most`.
fn waits_at(count: &AtomicU64, most: u64, settled: Duration) -> bool {
    let (mut last, mut since) = (0, Instant::now());
    while last < most && since.elapsed() < settled {
        std::thread::sleep(Duration::from_millis(1));
        let now = count.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last < most
}

impl<'a> Queue<'a> {
    fn new(driver: &'a Driver) -> Answer<Self> {
        let page = driver.granularity(false)?;
        Ok(Self {
            driver,
            place: driver.reserve(page)?,
            page,
            handle: driver.create(page)?,
            // One for the call in which nothing is held.
            spare_events: Mutex::new(vec![driver.event_create(false)?]),
            held: driver.stream_create()?,
            free: driver.stream_create()?,
            waiting: driver.event_create(false)?,
            other: driver.event_create(false)?,
            held_word: driver.allocate(4096)?,
            free_word: driver.allocate(4096)?,
        })
    }

    fn spare_events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.spare_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self) -> Answer {
        self.driver.fill(self.held_word, 4, 1, self.held)
    }
}
