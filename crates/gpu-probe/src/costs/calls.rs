//! The calls that are measured, and at which sizes.

use std::sync::Barrier;
use std::time::Instant;

use genesis::driver::Pages;

use super::samples::{Bench, kind};
use super::virtual_memory::{self, HANDLE_SIZES};
use crate::driver::{Answer, CaptureMode, Driver, Failure, Gate, Stream};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Sizes at which others have published figures for plain memory.
const PLAIN_SIZES: [u64; 6] = [4 * KIB, 2 * MIB, 16 * MIB, 128 * MIB, GIB, 4 * GIB];
const RESERVED_SIZES: [u64; 5] = [2 * MIB, 128 * MIB, 2 * GIB, 16 * GIB, 128 * GIB];
const HOST_SIZES: [u64; 4] = [2 * MIB, 32 * MIB, 256 * MIB, GIB];
/// How many mappings of a page one call covers.
const MAPPING_COUNTS: [u64; 4] = [1, 16, 64, 1024];
/// Threads that make events at the same time, and how the page says it.
const THREADS: [(usize, &str); 2] = [(2, "from 2 threads at once"), (8, "from 8 threads at once")];

type Group = fn(&mut Bench<'_>) -> Answer;

/// Names and measurements; each stands on its own.
pub(super) const GROUPS: [(&str, Group); 15] = [
    ("memory info", memory_info),
    ("streams and contexts by handle", handles),
    ("plain memory", plain_memory),
    ("managed memory", managed_memory),
    ("address space", address_space),
    ("virtual memory", virtual_memory::in_a_row),
    ("many mappings", many_mappings),
    ("many handles in a row", virtual_memory::many_in_a_row),
    ("virtual memory after a rest", virtual_memory::after_a_rest),
    ("virtual memory between launches", virtual_memory::between_launches),
    ("events", events),
    ("events of many threads", events_of_many_threads),
    ("streams and captures", streams),
    ("host memory", host_memory),
    ("copies", copies),
];

fn memory_info(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    bench.one(kind("MemoryInfo", "cuMemGetInfo"), || driver.memory_info().map(|_| ()))
}

/// The questions that tell a stream from another of the same handle.
fn handles(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let stream = driver.stream_create()?;
    let subjects = [
        kind("StreamGetId", "cuStreamGetId"),
        kind("StreamGetContext", "cuStreamGetCtx"),
        kind("CurrentContext", "cuCtxGetCurrent").remark("free in the simulation"),
    ];
    bench.several(subjects, |timer| {
        timer.time(0, || driver.stream_id(stream))?;
        timer.time(1, || driver.stream_context(stream))?;
        timer.time(2, || driver.current_context()).map(|_| ())
    })?;
    driver.stream_destroy(stream)
}

fn plain_memory(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let address = driver.allocate(MIB)?;
    let range = kind("AddressRange", "cuMemGetAddressRange");
    bench.one(range, || driver.address_range(address + 4096).map(|_| ()))?;
    driver.free(address)?;
    for bytes in PLAIN_SIZES {
        let allocate = kind("Allocate", "cuMemAlloc").bytes(bytes);
        let free = kind("Free", "cuMemFree").bytes(bytes);
        bench.several([allocate, free], |timer| {
            let address = timer.time(0, || driver.allocate(bytes))?;
            timer.time(1, || driver.free(address))
        })?;
    }
    Ok(())
}

/// What brings it to the device is the stream's work, which is not measured.
fn managed_memory(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let stream = driver.stream_create()?;
    for bytes in HANDLE_SIZES {
        let subjects = [
            kind("AllocateManaged", "cuMemAllocManaged").bytes(bytes),
            kind("Advise", "cuMemAdvise").bytes(bytes),
            kind("Prefetch", "cuMemPrefetchAsync").bytes(bytes),
        ];
        bench.several(subjects, |timer| {
            let address = timer.time(0, || driver.managed_allocate(bytes))?;
            timer.time(1, || driver.managed_prefer(address, bytes, 0))?;
            timer.time(2, || driver.managed_prefetch(address, bytes, 0, stream))?;
            driver.free(address)
        })?;
    }
    driver.stream_destroy(stream)
}

fn address_space(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    for bytes in RESERVED_SIZES {
        let reserve = kind("Reserve", "cuMemAddressReserve").bytes(bytes);
        let unreserve = kind("Unreserve", "cuMemAddressFree").bytes(bytes);
        bench.several([reserve, unreserve], |timer| {
            let address = timer.time(0, || driver.reserve(bytes))?;
            timer.time(1, || driver.unreserve(address, bytes))
        })?;
    }
    Ok(())
}

/// Calls that cover many mappings of one page each.
fn many_mappings(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let page = driver.granularity(false)?;
    for count in MAPPING_COUNTS {
        let bytes = count * page;
        let of = |name, driver_name| kind(name, driver_name).bytes(bytes).mappings(count);
        let address = driver.reserve(bytes)?;
        let handles = (0..count).map(|_| driver.create(page)).collect::<Answer<Vec<u64>>>()?;
        let subjects = [of("SetAccess", "cuMemSetAccess"), of("Unmap", "cuMemUnmap")];
        bench.several(subjects, |timer| {
            for (index, handle) in (0..).zip(&handles) {
                driver.map(address + index * page, page, *handle)?;
            }
            timer.time(0, || driver.set_access(address, bytes))?;
            timer.time(1, || driver.unmap(address, bytes))
        })?;
        handles.iter().try_for_each(|handle| driver.release(*handle))?;
        driver.unreserve(address, bytes)?;
    }
    Ok(())
}

fn events(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let (stream, other) = (driver.stream_create()?, driver.stream_create()?);
    let subjects = [
        kind("EventCreate", "cuEventCreate"),
        kind("EventRecord", "cuEventRecord"),
        kind("StreamWait", "cuStreamWaitEvent"),
        kind("EventSynchronize", "cuEventSynchronize"),
        kind("EventQuery", "cuEventQuery"),
        kind("EventDestroy", "cuEventDestroy"),
    ];
    bench.several(subjects, |timer| {
        let event = timer.time(0, || driver.event_create(false))?;
        timer.time(1, || driver.event_record(event, stream))?;
        timer.time(2, || driver.stream_wait(other, event))?;
        driver.stream_synchronize(stream)?;
        timer.time(3, || driver.event_synchronize(event))?;
        timer.time(4, || driver.event_query(event))?;
        timer.time(5, || driver.event_destroy(event))
    })?;
    timed_events(bench, stream)?;
    pending_events(bench, stream)
}

fn timed_events(bench: &mut Bench<'_>, stream: Stream) -> Answer {
    let driver = bench.driver;
    let event = driver.event_create(true)?;
    let subjects = [
        kind("EventRecord", "cuEventRecord").remark("with timing"),
        kind("EventQuery", "cuEventQuery").remark("with timing"),
    ];
    bench.several(subjects, |timer| {
        timer.time(0, || driver.event_record(event, stream))?;
        driver.stream_synchronize(stream)?;
        timer.time(1, || driver.event_query(event)).map(|_| ())
    })?;
    driver.event_destroy(event)
}

/// Events behind work that has not finished. The gate opens by itself after half a second, so
/// there are as many samples as fit.
fn pending_events(bench: &mut Bench<'_>, stream: Stream) -> Answer {
    const COUNT: usize = 500;
    let driver = bench.driver;
    if driver.is_simulated() {
        return Ok(());
    }
    let event = driver.event_create(false)?;
    let gate = Gate::close(driver, stream)?;
    let (mut records, mut queries) = (Vec::new(), Vec::new());
    for _ in 0..COUNT {
        let started_ns = driver.now_ns();
        driver.event_record(event, stream)?;
        let recorded_ns = driver.now_ns();
        let is_complete = driver.event_query(event)?;
        let queried_ns = driver.now_ns();
        if is_complete || !gate.is_closed() {
            break;
        }
        records.push(recorded_ns - started_ns);
        queries.push(queried_ns - recorded_ns);
    }
    gate.open();
    driver.stream_synchronize(stream)?;
    bench.add(kind("EventRecord", "cuEventRecord").remark("work pending"), records);
    bench.add(kind("EventQuery", "cuEventQuery").remark("work pending"), queries);
    driver.event_destroy(event)
}

/// What the calls of a free on another stream cost while other threads make the same ones, each on
/// a stream of its own: the driver has locks of its own.
fn events_of_many_threads(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    if driver.is_simulated() {
        return Ok(()); // each thread has virtual time of its own
    }
    for (threads, remark) in THREADS {
        let start = Barrier::new(threads);
        let samples = std::thread::scope(|scope| {
            let work = || events_beside_others(driver, &start);
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(NO_SAMPLES)));
            joined.collect::<Answer<Vec<OfEachCall>>>()
        })?;
        for (index, subject) in [
            kind("EventCreate", "cuEventCreate"),
            kind("StreamIsCapturing", "cuStreamIsCapturing"),
            kind("EventRecord", "cuEventRecord"),
            kind("EventQuery", "cuEventQuery"),
            kind("EventDestroy", "cuEventDestroy"),
        ]
        .into_iter()
        .enumerate()
        {
            let all = samples.iter().flat_map(|calls| calls[index].iter().copied()).collect();
            bench.add(subject.remark(remark), all);
        }
    }
    Ok(())
}

/// Times in nanoseconds, of each of five calls.
type OfEachCall = [Vec<u64>; 5];
const NO_SAMPLES: OfEachCall = [const { Vec::new() }; 5];

/// Makes the calls again and again, from when all threads are there.
fn events_beside_others(driver: &Driver, start: &Barrier) -> Answer<OfEachCall> {
    const COUNT: usize = 2000;
    let entered = driver.enter().and_then(|()| driver.stream_create());
    // Who fails here must not keep the others waiting.
    start.wait();
    let stream = entered?;
    let mut samples = NO_SAMPLES;
    for _ in 0..COUNT {
        let mut last = Instant::now();
        let mut lap = |call: usize| {
            samples[call].push(last.elapsed().as_nanos() as u64);
            last = Instant::now();
        };
        let event = driver.event_create(false)?;
        lap(0);
        driver.is_capturing(stream)?;
        lap(1);
        driver.event_record(event, stream)?;
        lap(2);
        driver.event_query(event)?;
        lap(3);
        driver.event_destroy(event)?;
        lap(4);
    }
    driver.stream_destroy(stream)?;
    Ok(samples)
}

fn streams(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let subjects = [
        kind("StreamCreate", "cuStreamCreate"),
        kind("StreamQuery", "cuStreamQuery"),
        kind("StreamSynchronize", "cuStreamSynchronize"),
        kind("StreamIsCapturing", "cuStreamIsCapturing"),
        kind("BeginCapture", "cuStreamBeginCapture"),
        kind("EndCapture", "cuStreamEndCapture"),
        kind("StreamDestroy", "cuStreamDestroy"),
    ];
    bench.several(subjects, |timer| {
        let stream = timer.time(0, || driver.stream_create())?;
        timer.time(1, || driver.stream_query(stream))?;
        timer.time(2, || driver.stream_synchronize(stream))?;
        timer.time(3, || driver.is_capturing(stream))?;
        timer.time(4, || driver.begin_capture(stream, CaptureMode::Relaxed))?;
        timer.time(5, || driver.end_capture(stream))?;
        timer.time(6, || driver.stream_destroy(stream))
    })?;
    bench.one(kind("Synchronize", "cuCtxSynchronize"), || driver.synchronize())
}

fn host_memory(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    for bytes in HOST_SIZES {
        let allocate = kind("HostAllocate", "cuMemAllocHost").bytes(bytes);
        let free = kind("HostFree", "cuMemFreeHost").bytes(bytes);
        bench.several([allocate, free], |timer| {
            let address = timer.time(0, || driver.host_allocate(bytes))?;
            timer.time(1, || driver.host_free(address))
        })?;
    }
    registrations(bench)
}

/// Locking pages that are there: the first sample, which brings them, is only one of many.
fn registrations(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    for bytes in HOST_SIZES {
        let code = |error: std::io::Error| error.raw_os_error().unwrap_or(-1);
        let pages =
            Pages::map(bytes, None).map_err(|error| Failure { call: "mmap", code: code(error) })?;
        let register = kind("HostRegister", "cuMemHostRegister").bytes(bytes);
        let unregister = kind("HostUnregister", "cuMemHostUnregister").bytes(bytes);
        bench.several([register, unregister], |timer| {
            timer.time(0, || driver.host_register(pages.address(), bytes))?;
            timer.time(1, || driver.host_unregister(pages.address()))
        })?;
    }
    Ok(())
}

/// Copies between the device and page-locked memory that the host waits for.
fn copies(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    for bytes in [2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB] {
        let (host, address) = (driver.host_allocate(bytes)?, driver.allocate(bytes)?);
        let out = kind("CopyToHost", "cuMemcpyDtoH").bytes(bytes);
        let back = kind("CopyToDevice", "cuMemcpyHtoD").bytes(bytes);
        bench.several([out, back], |timer| {
            timer.time(0, || driver.copy_to_host(host, address, bytes))?;
            timer.time(1, || driver.copy_to_device(address, host, bytes))
        })?;
        driver.free(address)?;
        driver.host_free(host)?;
    }
    Ok(())
}
