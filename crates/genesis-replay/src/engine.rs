//! The measured loop, and passes of it.
//!
//! A pass makes every call of a [`Program`] once on each thread; blocks that it leaves live
//! are freed, unmeasured, before the next. The loop allocates nothing and looks nothing up: it has
//! one table of pointers, indexed by slot. Its own cost is measured by the same code with
//! functions that do nothing ([`loop_ns_per_call`]).
//!
//! The first pass of a single thread is *sampled*: it is cut into equal pieces, with one more cut
//! at the live peak. Only the pieces are timed; between them the peaks since the last cut are read.
//! So the course has the true peaks, and hardly disturbs the time.
//!
//! A request that fails leaves an empty slot; frees and records of it are skipped, as a
//! framework would skip them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::crew::{Crew, Meeting};
use crate::error::Result;
use crate::library::{Functions, Library, Stats, Status, Stream};
use crate::program::{Call, Kind, Program};
use crate::report::{Pass, Sample};
use crate::streams::{self, Streams};

/// How many times the loop's own cost is measured; the least counts.
const LOOP_MEASUREMENTS: usize = 3;

/// The driver's calls in which the host waits for work. `cuMemFree` waits although it has another
/// purpose.
const WAITING_CALLS: [&CStr; 4] =
    [c"cuEventSynchronize", c"cuStreamSynchronize", c"cuCtxSynchronize", c"cuMemFree"];
/// The driver's calls that only concern events.
const EVENT_CALLS: [&CStr; 5] =
    [c"cuEventCreate", c"cuEventDestroy", c"cuEventRecord", c"cuEventQuery", c"cuStreamWaitEvent"];

/// A program being replayed by one or more threads.
#[derive(Debug)]
pub struct Replay<'a> {
    library: &'a Library,
    program: &'a Program,
    threads: Vec<Thread>,
}

/// The course of a sampled pass.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// The library's fragmentation ratio at the live peak.
    pub fragmentation_ratio: f64,
}

/// What one thread replays with.
#[derive(Debug)]
struct Thread {
    streams: Streams,
    blocks: Blocks,
}

/// The pointers of a thread's live blocks, by slot.
#[derive(Debug)]
struct Blocks(Vec<*mut c_void>);

// SAFETY: the pointers are opaque, and the library takes them from any thread.
unsafe impl Send for Blocks {}

impl<'a> Replay<'a> {
    /// Prepares `threads` threads, each with streams and slots of its own. What is replayed without
    /// [`Self::passes`] is replayed by the calling thread.
    pub fn new(library: &'a Library, program: &'a Program, threads: usize) -> Result<Self> {
        let backend = library.backend()?;
        let streams = streams::make(&backend, threads, program.device_count, program.stream_count)?;
        streams.iter().take(1).try_for_each(Streams::enter)?;
        let threads = streams
            .into_iter()
            .map(|streams| Thread { streams, blocks: Blocks::new(program) })
            .collect();
        Ok(Self { library, program, threads })
    }

    /// `count` passes, each on every thread at once; calls `done` after each.
    pub fn passes(&mut self, count: usize, mut done: impl FnMut()) -> Result<Vec<Pass>> {
        let Self { library, program, threads } = self;
        let (library, program) = (*library, *program);
        let meeting = Meeting::new(threads.len());
        std::thread::scope(|scope| {
            let work = threads.iter_mut().map(|thread| {
                |calls: &[Call]| {
                    thread.streams.enter()?;
                    let started = Instant::now();
                    let failures = thread.run(program, calls, &library.functions);
                    Ok((started.elapsed(), failures))
                }
            });
            let crew = Crew::new(scope, &meeting, work);
            let turn = |calls| -> Result<Vec<_>> { crew.turn(calls)?.into_iter().collect() };
            let pass = |_| {
                let pass = measure(library, program, || {
                    let outcomes: Vec<(Duration, u64)> = turn(&program.calls)?;
                    let elapsed: Duration = outcomes.iter().map(|outcome| outcome.0).sum();
                    let failures = outcomes.iter().map(|outcome| outcome.1).sum();
                    Ok((elapsed / outcomes.len() as u32, failures))
                })?;
                turn(&program.leftovers)?;
                done();
                Ok(pass)
            };
            (0..count).map(pass).collect()
        })
    }

    /// One pass of the first thread alone, with about `sample_count` samples.
    pub fn sampled_pass(&mut self, sample_count: usize) -> Result<(Pass, Course)> {
        let (program, library) = (self.program, self.library);
        let thread = &mut self.threads[0];
        let mut course = Course::default();
        let mut pass = measure(library, program, || {
            let mut elapsed = Duration::ZERO;
            let mut failures = 0;
            course = sample(library, program, sample_count, |calls| {
                let started = Instant::now();
                failures += thread.run(program, calls, &library.functions);
                elapsed += started.elapsed();
            })?;
            Ok((elapsed, failures))
        })?;
        thread.run(program, &program.leftovers, &library.functions);
        // Each sample reset the peaks.
        let peaks = course.samples.iter().map(|sample| sample.reserved_bytes);
        pass.reserved_peak_bytes = peaks.max().unwrap_or(0);
        Ok((pass, course))
    }

    /// One pass of the first thread alone, which calls `end` with the number of each iteration that
    /// has ended; returns how many requests failed. Nothing is measured, and blocks that the
    /// program leaves live stay live.
    pub fn told_pass(&mut self, mut end: impl FnMut(u32) -> Result<()>) -> Result<u64> {
        let (program, functions) = (self.program, &self.library.functions);
        let (mut done, mut failures) = (0, 0);
        for iteration in &program.iteration_ends {
            let calls = &program.calls[done..iteration.calls];
            failures += self.threads[0].run(program, calls, functions);
            done = iteration.calls;
            end(iteration.number)?;
        }
        Ok(failures + self.threads[0].run(program, &program.calls[done..], functions))
    }

    /// One pass of the first thread alone, up to the first request that fails; returns the index of
    /// its call. Nothing is measured. After a whole pass, blocks that it leaves live are freed.
    pub fn pass_to_failure(&mut self) -> Option<usize> {
        let (program, functions) = (self.program, &self.library.functions);
        let thread = &mut self.threads[0];
        let mut fails = |call| thread.run(program, std::slice::from_ref(call), functions) > 0;
        let failed = program.calls.iter().position(&mut fails);
        if failed.is_none() {
            thread.run(program, &program.leftovers, functions);
        }
        failed
    }
}

/// Runs `pass`, which returns the time of a thread and the failures.
fn measure(
    library: &Library,
    program: &Program,
    pass: impl FnOnce() -> Result<(Duration, u64)>,
) -> Result<Pass> {
    let before = Totals::read(library, program.device_count)?;
    let (elapsed, failures) = pass()?;
    let after = Totals::read(library, program.device_count)?;
    Ok(Pass {
        ns_per_call: ns_per_call(elapsed, program),
        reserved_peak_bytes: after.reserved_peak_bytes,
        driver_calls: after.driver_calls - before.driver_calls,
        driver_memory_calls: after.driver_memory_calls - before.driver_memory_calls,
        driver_event_calls: difference(after.driver_event_calls, before.driver_event_calls),
        host_waits: difference(after.host_waits, before.host_waits),
        driver_ns: after.driver_ns - before.driver_ns,
        failures,
    })
}

fn difference(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after? - before?)
}

/// The time of the replay's own loop for a call of `program`, in nanoseconds.
pub fn loop_ns_per_call(program: &Program) -> Result<f64> {
    let streams = streams::make("sim", 1, program.device_count, program.stream_count)?;
    let mut thread = Thread { streams: streams[0].clone(), blocks: Blocks::new(program) };
    let mut least = Duration::MAX;
    for _ in 0..LOOP_MEASUREMENTS {
        let started = Instant::now();
        thread.run(program, &program.calls, &IDLE);
        least = least.min(started.elapsed());
        thread.run(program, &program.leftovers, &IDLE);
    }
    Ok(ns_per_call(least, program))
}

fn ns_per_call(elapsed: Duration, program: &Program) -> f64 {
    elapsed.as_nanos() as f64 / program.calls.len().max(1) as f64
}

/// Calls `run` with the calls of `program` in pieces, and reads the peaks of each piece.
fn sample(
    library: &Library,
    program: &Program,
    sample_count: usize,
    mut run: impl FnMut(&[Call]),
) -> Result<Course> {
    let piece_calls = program.calls.len().div_ceil(sample_count.max(1)).max(1);
    let mut course = Course::default();
    let (mut done, mut live_bytes) = (0, 0);
    while done < program.calls.len() {
        let mut end = program.calls.len().min(done + piece_calls);
        if done < program.calls_to_live_peak {
            end = end.min(program.calls_to_live_peak);
        }
        let piece = &program.calls[done..end];
        run(piece);
        done = end;
        let mut piece_live_bytes = live_bytes;
        for call in piece {
            match call.kind {
                Kind::Allocate => live_bytes += call.requested_bytes,
                Kind::Free => live_bytes -= call.requested_bytes,
                Kind::RecordStream | Kind::EmptyCache => {}
            }
            piece_live_bytes = piece_live_bytes.max(live_bytes);
        }
        let totals = Totals::read(library, program.device_count)?;
        for device in 0..program.device_count {
            library.reset_peaks(device)?;
        }
        if done == program.calls_to_live_peak {
            course.fragmentation_ratio = totals.fragmentation_ratio;
        }
        course.samples.push(Sample {
            calls: done as u64,
            live_bytes: piece_live_bytes,
            reserved_bytes: totals.reserved_peak_bytes,
        });
    }
    Ok(course)
}

impl Blocks {
    fn new(program: &Program) -> Self {
        Self(vec![null_mut(); program.slot_count])
    }
}

impl Thread {
    fn run(&mut self, program: &Program, calls: &[Call], functions: &Functions) -> u64 {
        replay(calls, functions, program.stream_count, &self.streams.handles, &mut self.blocks.0)
    }
}

/// Makes `calls` in order; returns how many requests failed. This is what is measured.
#[inline(never)]
fn replay(
    calls: &[Call],
    functions: &Functions,
    streams_per_device: usize,
    streams: &[Stream],
    blocks: &mut [*mut c_void],
) -> u64 {
    let mut failures = 0;
    for call in calls {
        let requested_bytes = call.requested_bytes as usize;
        let device = c_int::from(call.device);
        let stream =
            streams[usize::from(call.device) * streams_per_device + usize::from(call.stream)];
        // SAFETY: pointers are the library's live blocks, or null, which is skipped; sizes, devices
        // and streams are plain values to it.
        unsafe {
            let Some(block) = blocks.get_mut(call.slot as usize) else {
                make_rare(call.kind, functions, (null_mut(), device, stream));
                continue;
            };
            // A jump by a table of kinds would be predicted worse.
            if call.kind == Kind::Allocate {
                *block = (functions.malloc)(requested_bytes, device, stream);
                failures += u64::from(block.is_null() && requested_bytes > 0);
            } else if call.kind != Kind::Free {
                make_rare(call.kind, functions, (*block, device, stream));
            } else if !block.is_null() {
                (functions.free)(*block, requested_bytes, device, stream);
                *block = null_mut();
            }
        }
    }
    failures
}

/// Makes a call that is neither an allocation nor a free.
///
/// # Safety
/// The block is null, which is skipped, or the library's.
#[inline(never)]
unsafe fn make_rare(
    kind: Kind,
    functions: &Functions,
    (block, device, stream): (*mut c_void, c_int, Stream),
) {
    // SAFETY: the caller's contract.
    unsafe {
        if kind == Kind::EmptyCache {
            (functions.cache_empty)(device);
        } else if kind == Kind::RecordStream && !block.is_null() {
            (functions.record_stream)(block, stream);
        }
    }
}

/// The library's counters, added up over the devices.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    reserved_peak_bytes: u64,
    driver_calls: u64,
    driver_memory_calls: u64,
    driver_event_calls: Option<u64>,
    host_waits: Option<u64>,
    driver_ns: u64,
    /// The highest of any device.
    fragmentation_ratio: f64,
}

impl Totals {
    fn read(library: &Library, device_count: usize) -> Result<Self> {
        let counted = Self {
            driver_event_calls: library.stand_in_calls(&EVENT_CALLS),
            host_waits: library.stand_in_calls(&WAITING_CALLS),
            ..Self::default()
        };
        (0..device_count)
            .try_fold(counted, |totals, device| Ok(totals.with(&library.stats(device)?)))
    }

    fn with(self, stats: &Stats) -> Self {
        Self {
            reserved_peak_bytes: self.reserved_peak_bytes + stats.reserved_bytes.peak,
            driver_calls: self.driver_calls + stats.driver_calls,
            driver_memory_calls: self.driver_memory_calls + stats.driver_memory_calls,
            driver_ns: self.driver_ns + stats.driver_nanoseconds,
            fragmentation_ratio: self.fragmentation_ratio.max(stats.fragmentation_ratio),
            ..self
        }
    }
}

/// Functions that do nothing: their price is that of a call.
const IDLE: Functions = Functions {
    malloc: idle_malloc,
    free: idle_free,
    record_stream: idle_record_stream,
    cache_empty: idle_cache_empty,
};

extern "C" fn idle_malloc(requested_bytes: usize, _: c_int, _: Stream) -> *mut c_void {
    // Never dereferenced; null for size 0 only, as the library's.
    std::ptr::without_provenance_mut(requested_bytes)
}

extern "C" fn idle_free(_: *mut c_void, _: usize, _: c_int, _: Stream) {}

extern "C" fn idle_record_stream(_: *mut c_void, _: Stream) -> Status {
    0
}

extern "C" fn idle_cache_empty(_: c_int) -> Status {
    0
}
