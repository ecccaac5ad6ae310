//! Calls of one thread while another captures: which are refused, and which break the capture.
//!
//! A stream captures in global mode on this thread. Another thread, in each of the three modes,
//! makes one call; then the capture is ended. Each call has a capture of its own.

use super::{Bench, Outcome, Table, Tried};
use crate::driver::{Answer, CaptureMode, Driver, Event, Stream};

/// What a call needs, made before the capture begins.
struct Ready<'a> {
    driver: &'a Driver,
    page: u64,
    /// Two pages reserved, the second mapped.
    place: u64,
    handle: u64,
    allocation: u64,
    /// A stream that does not capture, and an event recorded on it.
    stream: Stream,
    event: Event,
}

/// A call; true if Genesis makes it, in relaxed mode, while captures may be under way.
type Call = (&'static str, bool, fn(&Ready<'_>) -> Answer);

const CALLS: [Call; 23] = [
    ("cuMemAddressReserve", true, |ready| ready.driver.reserve(ready.page).map(|_| ())),
    ("cuMemCreate", true, |ready| ready.driver.create(ready.page).map(|_| ())),
    ("cuMemMap", true, |ready| ready.driver.map(ready.place, ready.page, ready.handle)),
    ("cuMemSetAccess", true, |ready| ready.driver.set_access(ready.second(), ready.page)),
    ("cuMemUnmap", false, |ready| ready.driver.unmap(ready.second(), ready.page)),
    ("cuMemRelease", false, |ready| ready.driver.release(ready.handle)),
    ("cuMemAlloc", true, |ready| ready.driver.allocate(ready.page).map(|_| ())),
    ("cuMemFree", false, |ready| ready.driver.free(ready.allocation)),
    ("cuMemAllocHost", true, |ready| ready.driver.host_allocate(4096).map(|_| ())),
    ("cuMemGetInfo", true, |ready| ready.driver.memory_info().map(|_| ())),
    ("cuEventCreate", true, |ready| ready.driver.event_create(false).map(|_| ())),
    ("cuEventRecord", true, |ready| ready.driver.event_record(ready.event, ready.stream)),
    ("cuEventQuery", true, |ready| ready.driver.event_query(ready.event).map(|_| ())),
    ("cuEventSynchronize", false, |ready| ready.driver.event_synchronize(ready.event)),
    ("cuStreamWaitEvent", true, |ready| ready.driver.stream_wait(ready.stream, ready.event)),
    ("cuStreamCreate", false, |ready| ready.driver.stream_create().map(|_| ())),
    ("cuStreamQuery", false, |ready| ready.driver.stream_query(ready.stream).map(|_| ())),
    ("cuStreamSynchronize", false, |ready| ready.driver.stream_synchronize(ready.stream)),
    ("cuStreamGetId", true, |ready| ready.driver.stream_id(ready.stream).map(|_| ())),
    ("cuStreamGetCtx", true, |ready| ready.driver.stream_context(ready.stream).map(|_| ())),
    ("cuStreamIsCapturing", true, |ready| ready.driver.is_capturing(ready.stream).map(|_| ())),
    ("cuCtxSynchronize", false, |ready| ready.driver.synchronize()),
    ("cuMemcpyDtoH", false, |ready| ready.driver.read(ready.allocation, 1).map(|_| ())),
];

const MODES: [CaptureMode; 3] =
    [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global];

/// The results of a call and of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ending {
    call: Answer,
    capture: Answer,
}

impl Ending {
    fn is_well(self) -> bool {
        self.call.is_ok() && self.capture.is_ok()
    }

    fn text(self) -> String {
        let code = |answer: Answer| answer.err().map_or(0, |failure| failure.code);
        match (self.call.is_ok(), self.capture.is_ok()) {
            (true, true) => "fine".to_owned(),
            (false, true) => format!("refused ({})", code(self.call)),
            (true, false) => format!("**breaks it** ({})", code(self.capture)),
            (false, false) => {
                format!("refused ({}), **breaks it** ({})", code(self.call), code(self.capture))
            }
        }
    }
}

pub(super) fn from_another_thread(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let mut table = Table::new(&["call", "relaxed", "thread-local", "global", "Genesis's"]);
    let mut harmful = Vec::new();
    for (name, is_ours, call) in CALLS {
        let endings = MODES.map(|mode| attempt(driver, mode, call));
        let [relaxed, thread_local, global] = endings;
        let (relaxed, thread_local, global) = (relaxed?, thread_local?, global?);
        if is_ours && !relaxed.is_well() {
            harmful.push(format!("{name}: {}", relaxed.text()));
        }
        let ours = if is_ours { "yes" } else { "no" };
        table.row([
            name.to_owned(),
            relaxed.text(),
            thread_local.text(),
            global.text(),
            ours.to_owned(),
        ]);
    }
    let seen = if harmful.is_empty() {
        "from a relaxed thread all that Genesis calls are fine".to_owned()
    } else {
        format!("from a relaxed thread, {}", harmful.join("; "))
    };
    Ok(Outcome::new(harmful.is_empty(), seen).with(table))
}

/// Makes one call on another thread, in `mode`, while this one captures.
fn attempt(driver: &Driver, mode: CaptureMode, call: fn(&Ready<'_>) -> Answer) -> Answer<Ending> {
    let ready = Ready::new(driver)?;
    let stream = driver.stream_create()?;
    driver.begin_capture(stream, CaptureMode::Global)?;
    // The capture holds something, as a program's does.
    let captured = driver.fill(ready.allocation, 4096, 1, stream);
    let called = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            driver.enter()?;
            driver.set_thread_capture_mode(mode)?;
            call(&ready)
        });
        thread.join().unwrap_or(Ok(()))
    });
    let capture = driver.end_capture(stream);
    captured?;
    driver.stream_destroy(stream)?;
    Ok(Ending { call: called, capture })
}

impl<'a> Ready<'a> {
    /// Everything in it lives until the process ends.
    fn new(driver: &'a Driver) -> Answer<Self> {
        let page = driver.granularity(false)?;
        let place = driver.reserve(2 * page)?;
        let mapped = driver.create(page)?;
        driver.map(place + page, page, mapped)?;
        driver.release(mapped)?;
        let (stream, event) = (driver.stream_create()?, driver.event_create(false)?);
        driver.event_record(event, stream)?;
        driver.stream_synchronize(stream)?;
        let (handle, allocation) = (driver.create(page)?, driver.allocate(page)?);
        Ok(Self { driver, page, place, handle, allocation, stream, event })
    }

    fn second(&self) -> u64 {
        self.place + self.page
    }
}
