//! Questions about stream capture: which calls it forbids, and which end it.
//!
//! Each call is tried in a capture of its own, because an illegal call invalidates its capture.

use super::{Observation, Observed};
use crate::driver::{Answer, CaptureMode, Driver, Event, Stream};

/// What a call needs, made before the capture begins.
struct Bench<'a> {
    driver: &'a Driver,
    page: u64,
    /// Two pages reserved, the second mapped.
    place: u64,
    handle: u64,
    /// A stream that does not capture, and an event recorded on it.
    other: Stream,
    event: Event,
    allocation: u64,
}

type Try = (&'static str, fn(&Bench<'_>) -> Answer);

/// The calls by which Elastic grows on a miss.
const VIRTUAL_MEMORY: [Try; 5] = [
    ("reserve", |bench| {
        let address = bench.driver.reserve(bench.page)?;
        bench.driver.unreserve(address, bench.page)
    }),
    ("create", |bench| bench.driver.create(bench.page).map(|_| ())),
    ("map", |bench| bench.driver.map(bench.place, bench.page, bench.handle)),
    ("set-access", |bench| bench.driver.set_access(bench.place + bench.page, bench.page)),
    ("memory info", |bench| bench.driver.memory_info().map(|_| ())),
];

/// The calls that give memory back, which Genesis does not make while a stream captures.
const GIVING_BACK: [Try; 3] = [
    ("unmap", |bench| bench.driver.unmap(bench.place + bench.page, bench.page)),
    ("release", |bench| bench.driver.release(bench.handle)),
    ("cuMemFree", |bench| bench.driver.free(bench.allocation)),
];

/// The other calls that Genesis makes in relaxed mode.
const PLAIN: [Try; 4] = [
    ("cuMemAlloc", |bench| bench.driver.allocate(bench.page).map(|_| ())),
    ("cuMemAllocHost", |bench| bench.driver.host_allocate(4096).map(|_| ())),
    ("event create", |bench| bench.driver.event_create(false).map(|_| ())),
    ("event query", |bench| bench.driver.event_query(bench.event).map(|_| ())),
];

/// The calls that Genesis makes in whatever mode the thread has.
const IN_ANY_MODE: [Try; 2] = [
    ("event record", |bench| bench.driver.event_record(bench.event, bench.other)),
    ("is capturing", |bench| bench.driver.is_capturing(bench.other).map(|_| ())),
];

/// Are the virtual memory calls legal while a stream captures in global mode?
pub(super) fn virtual_memory_in_global_capture(driver: &Driver) -> Observed {
    try_all(driver, &VIRTUAL_MEMORY, CaptureMode::Global)
}

/// Is everything Genesis calls legal in a global capture once the thread's mode is relaxed?
pub(super) fn relaxed_calls_in_global_capture(driver: &Driver) -> Observed {
    let calls = [&VIRTUAL_MEMORY[..], &PLAIN].concat();
    try_all(driver, &calls, CaptureMode::Relaxed)
}

/// Is recording an event, and asking if a stream captures, legal in a global capture of another
/// stream?
pub(super) fn records_in_global_capture(driver: &Driver) -> Observed {
    try_all(driver, &IN_ANY_MODE, CaptureMode::Global)
}

/// What of giving memory back is legal in a global capture, by a relaxed thread?
pub(super) fn giving_back_in_global_capture(driver: &Driver) -> Observed {
    let seen = try_all(driver, &GIVING_BACK, CaptureMode::Relaxed)?;
    Ok(Observation { as_expected: true, ..seen })
}

/// Is cuMemAlloc refused in a global capture?
pub(super) fn allocation_in_global_capture(driver: &Driver) -> Observed {
    refused(attempt(driver, CaptureMode::Global, |bench| (PLAIN[0].1)(bench))?)
}

/// Is asking about an event of another stream refused in a global capture?
pub(super) fn event_query_in_global_capture(driver: &Driver) -> Observed {
    refused(attempt(driver, CaptureMode::Global, |bench| (PLAIN[3].1)(bench))?)
}

/// Is cuMemAlloc of another thread refused in a global capture?
pub(super) fn allocation_in_global_capture_of_another_thread(driver: &Driver) -> Observed {
    let on_another_thread = |bench: &Bench<'_>| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                driver.enter()?;
                (PLAIN[0].1)(bench)
            });
            thread.join().unwrap_or(Ok(()))
        })
    };
    refused(attempt(driver, CaptureMode::Global, on_another_thread)?)
}

/// What a call answered in a capture, and what ending the capture answered.
type Outcome = (Answer, Answer);

fn refused((call, end): Outcome) -> Observed {
    const UNSUPPORTED: i32 = 900;
    let as_expected = call.is_err_and(|failure| failure.code == UNSUPPORTED);
    let text = match (call, end) {
        (Ok(()), Ok(())) => "no: it works and the capture goes on".to_owned(),
        (Ok(()), Err(end)) => format!("no: it works, but then {end}"),
        (Err(call), Ok(())) => format!("{call}; the capture goes on"),
        (Err(call), Err(end)) => format!("{call}; then {end}"),
    };
    Ok(Observation::new(as_expected, text))
}

/// Tries each of `calls` in a global capture, with the thread's mode as given.
fn try_all(driver: &Driver, calls: &[Try], thread_mode: CaptureMode) -> Observed {
    let mut wrong = Vec::new();
    for (name, call) in calls {
        match attempt(driver, thread_mode, call)? {
            (Ok(()), Ok(())) => {}
            (Ok(()), Err(end)) => wrong.push(format!("{name} ends the capture ({})", end.code)),
            (Err(failure), _) => wrong.push(format!("{name} is refused ({})", failure.code)),
        }
    }
    let text =
        if wrong.is_empty() { format!("all {} are legal", calls.len()) } else { wrong.join("; ") };
    Ok(Observation::new(wrong.is_empty(), text))
}

/// Makes one call while a stream captures in global mode.
fn attempt(
    driver: &Driver,
    thread_mode: CaptureMode,
    call: impl Fn(&Bench<'_>) -> Answer,
) -> Answer<Outcome> {
    let bench = Bench::new(driver)?;
    let stream = driver.stream_create()?;
    driver.begin_capture(stream, CaptureMode::Global)?;
    driver.set_thread_capture_mode(thread_mode)?;
    let answer = call(&bench);
    driver.set_thread_capture_mode(CaptureMode::Global)?;
    let end = driver.end_capture(stream);
    driver.stream_destroy(stream)?;
    Ok((answer, end))
}

impl<'a> Bench<'a> {
    /// What it has lives until the process ends: a probe tries a few calls.
    fn new(driver: &'a Driver) -> Answer<Self> {
        let page = driver.granularity(false)?;
        let place = driver.reserve(2 * page)?;
        let mapped = driver.create(page)?;
        driver.map(place + page, page, mapped)?;
        let (other, event) = (driver.stream_create()?, driver.event_create(false)?);
        driver.event_record(event, other)?;
        driver.stream_synchronize(other)?;
        let (handle, allocation) = (driver.create(page)?, driver.allocate(page)?);
        Ok(Self { driver, page, place, handle, other, event, allocation })
    }
}
