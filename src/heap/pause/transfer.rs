//! Copies the live bytes of extents to where they are kept, and back.
//!
//! The bytes of all extents of a device that are kept alike lie one after the other, in the order
//! of their addresses, so a block's bytes are contiguous. They go in *chunks*; while one is copied,
//! another thread prepares the next:
//!
//! | kept | pausing | resuming |
//! |---|---|---|
//! | pinned | pages touched and locked ‖ copied | copied |
//! | pageable | the same, and unlocked | locked ‖ copied, and unlocked |
//! | on disk | copied into a locked buffer ‖ written | read into a locked buffer ‖ copied |
//!
//! Chunks are copied one after the other: a device has one copy engine for each direction of the bus,
//! so that copies on several streams would not be faster (NVIDIA's developer forum, topic 365145).
//! Locking many pages takes longer than copying them. A backup whose pages are locked already,
//! because it was kept at the last resume, is only copied.
//!
//! Files are opened for direct I/O where the file system has it, so that the system's page cache
//! does not hold the bytes a second time.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::paused_extent::PausedExtent;
use super::super::saved_bytes::{HostBytes, Place, Saved, SavedBytes};
use super::super::state::DeviceHeap;
use super::progress::Meter;
use super::stages::in_two_stages;
use crate::base::lock::assert_none_held;
use crate::base::{Backup, Error, Result, Status};
use crate::driver::{Code, DriverError, Node, Pages};

/// Bytes that are locked and copied at once. Large ones cost few calls; small ones let the copies
/// begin early.
const CHUNK_BYTES: u64 = 256 << 20;
/// The same for files, of which `BUFFERS` are on the way at a time.
const FILE_CHUNK_BYTES: u64 = 64 << 20;
const BUFFERS: u64 = 3;
/// Sizes and places in a file opened for direct I/O are multiples of this.
const DIRECT_BYTES: u64 = 4096;

/// A contiguous part of a device's memory, and where its bytes are kept.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    Back,
}

/// The runs of an extent whose bytes are kept from `offset` on.
pub(super) fn runs_of(record: &PausedExtent, offset: u64) -> impl Iterator<Item = Run> {
    record.live.iter().scan(offset, |offset, range| {
        let run = Run { address: range.start, offset: *offset, bytes: range.end - range.start };
        *offset += run.bytes;
        Some(run)
    })
}

/// Saves the bytes of the runs, which are in order and without a gap from 0 on.
pub(super) fn save(
    device: DeviceHeap<'_>,
    runs: &[Run],
    (backup, folder): (Backup, &Path),
    meter: &Meter,
) -> Result<SavedBytes> {
    let bytes = end_of(runs);
    if backup == Backup::Disk {
        let file = new_file(folder).map_err(|error| failed("written", &error))?;
        through_buffers(device, runs, (&file, Way::Out), meter)?;
        return Ok(SavedBytes::new(Place::File(file), &device.waste));
    }
    let saved = new_memory(device, bytes)?;
    let memory = saved.memory().ok_or_else(gone)?;
    through_locked_chunks(device, runs, memory, (Way::Out, backup), meter)?;
    Ok(saved)
}

/// Where the last of the runs, which are in order, ends.
fn end_of(runs: &[Run]) -> u64 {
    runs.last().map_or(0, |run| run.offset + run.bytes)
}

/// Host memory that is not locked yet. Once it is dropped, it is the device's to unlock and free.
fn new_memory(device: DeviceHeap<'_>, bytes: u64) -> Result<SavedBytes> {
    let node = Node::of(&*device.driver);
    let pages = Pages::map(bytes, node).map_err(|error| no_memory(bytes, &error))?;
    Ok(SavedBytes::new(Place::Memory(HostBytes::new(pages)), &device.waste))
}

/// Returns true if bytes can be copied to where `saved` is without more: its memory is locked.
pub(super) fn can_save_again(saved: &Saved) -> bool {
    saved.bytes.memory().is_some_and(is_locked)
}

/// Copies the bytes of the runs to where `saved` is.
pub(super) fn save_again(
    device: DeviceHeap<'_>,
    runs: &[Run],
    saved: &Saved,
    meter: &Meter,
) -> Result<()> {
    let memory = saved.bytes.memory().ok_or_else(gone)?;
    copy_all(device, runs, memory, Way::Out, meter)
}

fn is_locked(memory: &HostBytes) -> bool {
    memory.locked_parts() == memory.pages.bytes().div_ceil(CHUNK_BYTES)
}

/// Copies to or from memory that is locked.
fn copy_all(
    device: DeviceHeap<'_>,
    runs: &[Run],
    memory: &HostBytes,
    way: Way,
    meter: &Meter,
) -> Result<()> {
    let mut parts = runs.iter().flat_map(|run| parts_of(run, CHUNK_BYTES));
    parts.try_for_each(|part| {
        copy(device, &part, memory.pages.address(), way)?;
        meter.advance(part.bytes);
        Ok(())
    })
}

/// Copies the bytes of the runs back, all of which `saved` has.
pub(super) fn restore(
    device: DeviceHeap<'_>,
    runs: &[Run],
    saved: &Saved,
    meter: &Meter,
) -> Result<()> {
    if let Some(file) = saved.bytes.file() {
        return through_buffers(device, runs, (file, Way::Back), meter);
    }
    let memory = saved.bytes.memory().ok_or_else(gone)?;
    if is_locked(memory) {
        return copy_all(device, runs, memory, Way::Back, meter);
    }
    through_locked_chunks(device, runs, memory, (Way::Back, Backup::Pageable), meter)
}

/// Copies chunk after chunk, while another thread locks the next.
fn through_locked_chunks(
    device: DeviceHeap<'_>,
    runs: &[Run],
    memory: &HostBytes,
    (way, backup): (Way, Backup),
    meter: &Meter,
) -> Result<()> {
    let total_bytes = memory.pages.bytes();
    let chunks = total_bytes.div_ceil(CHUNK_BYTES);
    let range = |chunk: u64| chunk * CHUNK_BYTES..((chunk + 1) * CHUNK_BYTES).min(total_bytes);
    assert_none_held();
    let copied = in_two_stages(
        (chunks, chunks),
        |chunk| lock(device, memory, &range(chunk)),
        |chunk| {
            let parts = parts_within(runs, &range(chunk));
            parts.iter().try_for_each(|part| {
                copy(device, part, memory.pages.address(), way)?;
                meter.advance(part.bytes);
                Ok(())
            })
        },
    );
    if backup == Backup::Pageable {
        let unlocked = device.outside_captures(|| memory.unlock(&*device.driver));
        return copied.and(unlocked.map_err(refused));
    }
    copied
}

/// Copies by way of a few locked buffers, while another thread writes or reads.
fn through_buffers(
    device: DeviceHeap<'_>,
    runs: &[Run],
    (file, way): (&File, Way),
    meter: &Meter,
) -> Result<()> {
    let bytes = end_of(runs);
    let chunk_bytes = FILE_CHUNK_BYTES.min(bytes.next_multiple_of(DIRECT_BYTES));
    let chunks = bytes.div_ceil(chunk_bytes.max(1));
    let count = BUFFERS.min(chunks);
    let buffers = new_memory(device, chunk_bytes * count)?;
    let memory = buffers.memory().ok_or_else(gone)?;
    assert_none_held();
    lock(device, memory, &(0..memory.pages.bytes()))?;
    let start = |chunk: u64| chunk % count * chunk_bytes;
    let length = |chunk: u64| chunk_bytes.min(bytes - chunk * chunk_bytes);
    let part =
        |chunk: u64| start(chunk)..start(chunk) + length(chunk).next_multiple_of(DIRECT_BYTES);
    let copy_chunk = |chunk: u64| {
        let begin = chunk * chunk_bytes;
        let parts = parts_within(runs, &(begin..begin + chunk_bytes));
        let base = (memory.pages.address() + start(chunk)).wrapping_sub(begin);
        parts.iter().try_for_each(|part| copy(device, part, base, way))
    };
    let (pages, pace) = (&memory.pages, (chunks, count));
    match way {
        Way::Out => in_two_stages(pace, copy_chunk, |chunk| {
            let written = pages.write_to(part(chunk), file, chunk * chunk_bytes);
            written.map_err(|error| failed("written", &error))?;
            meter.advance(length(chunk));
            Ok(())
        }),
        Way::Back => in_two_stages(
            pace,
            |chunk| {
                let read = pages.read_from(part(chunk), file, chunk * chunk_bytes);
                read.map_err(|error| failed("read", &error))
            },
            |chunk| {
                copy_chunk(chunk)?;
                meter.advance(length(chunk));
                Ok(())
            },
        ),
    }
}

/// Page-locks a part of host memory.
fn lock(device: DeviceHeap<'_>, memory: &HostBytes, part: &Range<u64>) -> Result<()> {
    device.outside_captures(|| memory.lock(&*device.driver, part)).map_err(refused)
}

/// Copies a run whose bytes are kept at its offset from `base`. A copy waits for the device.
fn copy(device: DeviceHeap<'_>, run: &Run, base: u64, way: Way) -> Result<()> {
    let Run { address, offset, bytes } = *run;
    let (driver, host_address) = (&device.driver, base.wrapping_add(offset));
    let copied = device.outside_captures(|| match way {
        Way::Out => driver.copy_to_host(host_address, address, bytes),
        Way::Back => driver.copy_to_device(address, host_address, bytes),
    });
    copied.map_err(refused)
}

/// A run in parts none of which crosses a multiple of `chunk_bytes`.
fn parts_of(run: &Run, chunk_bytes: u64) -> Vec<Run> {
    let end = run.offset + run.bytes;
    let chunks = run.offset / chunk_bytes..end.div_ceil(chunk_bytes);
    let part = |chunk: u64| part_within(run, &(chunk * chunk_bytes..(chunk + 1) * chunk_bytes));
    chunks.filter_map(part).collect()
}

/// What of the runs is kept within `range`.
fn parts_within(runs: &[Run], range: &Range<u64>) -> Vec<Run> {
    let first = runs.partition_point(|run| run.offset + run.bytes <= range.start);
    let of_range = runs[first..].iter().take_while(|run| run.offset < range.end);
    of_range.filter_map(|run| part_within(run, range)).collect()
}

fn part_within(run: &Run, range: &Range<u64>) -> Option<Run> {
    let offset = run.offset.max(range.start);
    let end = (run.offset + run.bytes).min(range.end);
    let address = run.address + (offset - run.offset);
    (offset < end).then(|| Run { address, offset, bytes: end - offset })
}

/// A file that is gone once it is closed. Where the file system has no files without a name, as
/// overlays before Linux 6.1 and NFS, it has one for a moment.
fn new_file(folder: &Path) -> std::io::Result<File> {
    let options = |flags: i32| {
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(flags);
        options
    };
    let nameless = |flags| options(libc::O_TMPFILE | flags).open(folder);
    let named = |flags| {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Relaxed);
        let path = folder.join(format!("genesis-backup-{}-{number}", std::process::id()));
        let file = options(flags).create_new(true).open(&path)?;
        std::fs::remove_file(&path).map(|()| file)
    };
    let opened = nameless(libc::O_DIRECT).or_else(|_| nameless(0));
    opened.or_else(|_| named(libc::O_DIRECT)).or_else(|_| named(0))
}

/// The error returned for a driver's error: `Busy` if a stream is captured.
pub(super) fn refused(error: DriverError) -> Error {
    match error.code {
        Code::STREAM_CAPTURE_UNSUPPORTED => Error::new(Status::Busy, error.to_string()),
        _ => error.into(),
    }
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    let message = format!("a backup of paused memory cannot be {what}: {error}");
    Error::new(Status::FileFailed, message)
}

fn no_memory(bytes: u64, error: &std::io::Error) -> Error {
    Error::new(
        Status::OutOfMemory,
        format!("no {bytes} bytes of host memory for a backup: {error}"),
    )
}

fn gone() -> Error {
    Error::new(Status::Internal, "a backup of paused memory is gone")
}
