//! A stream's handle that is used again, end to end, through Genesis's C interface.
//!
//! Held work on a stream will write A into a block. The block is freed, the stream destroyed, and
//! streams are made until one has the same handle. A block allocated on that stream gets B, and
//! then the held work goes on: B must stay. The limit on memory leaves no room for a second block,
//! so the first one's memory is wanted at once.
//!
//! On simcuda kernels do nothing, and a function of the host would not outlive its stream, so
//! nothing holds the work: it stays pending until something waits for it. Its bytes move at once,
//! so the race detector decides.

use std::ffi::{CStr, c_void};
use std::time::{Duration, Instant};

use genesis::base::Status;
use genesis::ffi::allocation::{genesis_free, genesis_malloc};
use genesis::ffi::genesis_stream;
use genesis::ffi::library::{genesis_last_error_message_get, genesis_option_set};

use super::{Bench, Outcome, Tried};
use crate::driver::{Answer, Driver, Hold, Holder, Stream, Writer};

const BLOCK_BYTES: usize = 64 << 20;
const MEMORY_LIMIT: &CStr = c"96MiB";
/// The part of a block that is written and checked: its beginning.
const WINDOW_BYTES: u64 = 1 << 20;
const OLD: u32 = 0xAAAA_AAAA;
const NEW: u32 = 0xBBBB_BBBB;
/// Rounds in which the handle came again. Streams share the device's channels, so one may run behind
/// another by chance.
const ROUNDS: usize = 4;
/// How often it is tried. The handle comes again within a few streams or not at all, and after many
/// the driver waits until the held work has ended.
const MOST_TRIES: usize = 16;
/// Streams that live at once while the handle is looked for.
const MOST_LIVING: usize = 16;
/// How long an allocation may wait before the held work goes on.
const PATIENCE: Duration = Duration::from_millis(300);

/// What one round saw.
struct Round {
    /// The streams made until the handle came again.
    made: u64,
    same_address: bool,
    /// True if the allocation, or then the new stream's work, waited for the old work.
    allocation_waited: bool,
    work_waited: bool,
    wrong_words: usize,
}

/// Does the new stream's writing stay?
pub(super) fn run(bench: &Bench, strategy: &CStr) -> Tried {
    let driver = &bench.driver;
    set_option(c"GENESIS_POOL_TYPE", strategy)?;
    set_option(c"GENESIS_MEMORY_LIMIT", MEMORY_LIMIT)?;
    let (holder, writer) = (Holder::new(driver)?, Writer::new(driver)?);
    let mut rounds = Vec::new();
    let mut trouble = "there was no time".to_owned();
    for _ in 0..MOST_TRIES {
        if rounds.len() == ROUNDS || bench.is_over() {
            break;
        }
        match round(bench, &holder, &writer) {
            Ok(round) => rounds.push(round),
            Err(reason) => trouble = reason,
        }
    }
    if rounds.is_empty() { Err(trouble) } else { Ok(judge(&rounds, driver.races())) }
}

fn judge(rounds: &[Round], races: u64) -> Outcome {
    let count = |of: fn(&Round) -> bool| rounds.iter().filter(|round| of(round)).count();
    let wrong_words: usize = rounds.iter().map(|round| round.wrong_words).sum();
    let made = rounds.iter().map(|round| round.made).max().unwrap_or(0);
    let mut seen = format!(
        "the handle came again within {made} streams, {} times: {} blocks at the same address, {} \
         allocations waited for the old work, {} times the new work did; {wrong_words} words were \
         not the new stream's",
        rounds.len(),
        count(|round| round.same_address),
        count(|round| round.allocation_waited),
        count(|round| !round.allocation_waited && round.work_waited),
    );
    if races > 0 {
        seen += &format!("; races found by the simulation: {races}");
    }
    Outcome::new(wrong_words == 0 && races == 0, seen)
}

/// One round: work held on a stream, its handle given to another, and both write.
fn round(bench: &Bench, holder: &Holder<'_>, writer: &Writer<'_>) -> Result<Round, String> {
    let driver = &bench.driver;
    let first = driver.stream_create()?;
    let old = allocate(first)?;
    // Everything runs once before anything is held, because loading code may wait.
    writer.fill(old, WINDOW_BYTES, OLD, first)?;
    driver.stream_synchronize(first)?;
    let hold = if holder.has_kernels() { Some(holder.close(first)?) } else { None };
    writer.fill(old, WINDOW_BYTES, OLD, first)?;
    let began = Instant::now();
    genesis_free(old as *mut c_void, BLOCK_BYTES, 0, handle(first));
    let freed = began.elapsed();
    driver.stream_destroy(first)?;
    let destroyed = began.elapsed() - freed;
    let (again, made) = create_until(driver, first, bench.counts.streams)?;
    if hold.as_ref().is_some_and(|hold| !hold.is_closed()) {
        return Err(format!(
            "the work ended before the handle came again: the free took {freed:.1?}, destroying \
             the stream {destroyed:.1?}, and {made} streams {:.1?}",
            began.elapsed() - freed - destroyed
        ));
    }
    let stream = again.ok_or(format!("the handle never came again in {made} streams"))?;
    let (allocated, allocation_held) = watched(hold.as_ref(), || allocate(stream));
    let new = allocated?;
    writer.fill(new, WINDOW_BYTES, NEW, stream)?;
    // Returns at once if the new stream does not wait for the old one's work.
    let (waited, work_held) = watched(hold.as_ref(), || driver.stream_synchronize(stream));
    waited?;
    drop(hold);
    driver.synchronize()?;
    let words = driver.read(new, WINDOW_BYTES as usize / 4)?;
    genesis_free(new as *mut c_void, BLOCK_BYTES, 0, handle(stream));
    Ok(Round {
        made,
        same_address: new == old,
        allocation_waited: !allocation_held,
        work_waited: !work_held,
        wrong_words: words.iter().filter(|word| **word != NEW).count(),
    })
}

/// Runs `work` while the old work is held; also returns true if that was still held afterwards.
fn watched<T>(hold: Option<&Hold>, work: impl FnOnce() -> T) -> (T, bool) {
    let Some(hold) = hold else { return (work(), true) };
    let held = hold.watch(PATIENCE, work);
    (held.value, held.returned_before)
}

/// Makes up to `most` streams until one has `wanted`'s handle, and their number. At most
/// [`MOST_LIVING`] live at once; the oldest is destroyed first.
fn create_until(driver: &Driver, wanted: Stream, most: u64) -> Answer<(Option<Stream>, u64)> {
    let mut living = std::collections::VecDeque::new();
    let mut found = None;
    let mut made = 0;
    while found.is_none() && made < most {
        let stream = driver.stream_create()?;
        made += 1;
        if stream == wanted {
            found = Some(stream);
        } else {
            living.push_back(stream);
        }
        if living.len() > MOST_LIVING
            && let Some(oldest) = living.pop_front()
        {
            driver.stream_destroy(oldest)?;
        }
    }
    living.into_iter().try_for_each(|stream| driver.stream_destroy(stream))?;
    Ok((found, made))
}

fn allocate(stream: Stream) -> Result<u64, String> {
    let block = genesis_malloc(BLOCK_BYTES, 0, handle(stream));
    if block.is_null() {
        // SAFETY: the text is NUL-terminated and good until this thread's next failure.
        let text = unsafe { CStr::from_ptr(genesis_last_error_message_get()) };
        return Err(text.to_string_lossy().into_owned());
    }
    Ok(block as u64)
}

fn handle(stream: Stream) -> genesis_stream {
    stream.0 as genesis_stream
}

pub(super) fn set_option(name: &CStr, value: &CStr) -> Result<(), String> {
    // SAFETY: both are NUL-terminated.
    match unsafe { genesis_option_set(name.as_ptr(), value.as_ptr()) } {
        Status::Success => Ok(()),
        status => Err(format!("{}: {}", name.to_string_lossy(), status.text().to_string_lossy())),
    }
}
