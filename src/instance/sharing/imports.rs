//! The importing side: blocks of other processes that are mapped here.
//!
//! A block is mapped once, however often it is imported, and a segment is opened once, however many
//! blocks of it are. A block that is closed while a stream is captured cannot be unmapped: it is
//! *late*, and is unmapped at the next import or close.
//!
//! **Invariants**: a mapped block has holds > 0 and is in `addresses`; a segment's users are the
//! mapped and late blocks in it. **Locks**: one, held while the other process answers, so imports
//! and closes of a process go one after the other.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::handle::{BlockHandle, ServiceId};
use super::wire::{Request, receive_answer};
use crate::base::size::LARGEST_REQUEST_BYTES;
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::driver::SegmentHandle;
use crate::heap::{Heap, Imported, Incoming, ShareId};
use crate::instance;
use crate::process::{Line, keep_library_loaded};

/// How long an exporting process may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

static IMPORTS: Mutex<Option<Imports>> = Mutex::new(None);

/// What names a block in all processes.
type Key = (ServiceId, ShareId);

#[derive(Debug, Default)]
struct Imports {
    lines: HashMap<ServiceId, Arc<Line>>,
    mapped: HashMap<Key, Mapped>,
    addresses: HashMap<u64, Key>,
    segments: HashMap<(DeviceOrdinal, SegmentHandle), Segment>,
    late: Vec<(Key, Mapped)>,
    /// Lines on which no answer came in time, or none that is one. The exporter counts by lines what
    /// this process holds, so they stay open for as long as it lives; their blocks are released at the
    /// end of this process.
    retired: Vec<Arc<Line>>,
    /// Blocks of this process that it imported itself: their shares, once for each import.
    own: HashMap<u64, Vec<ShareId>>,
}

/// A block of another process.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    address: u64,
    device: DeviceOrdinal,
    memory: Memory,
    holds: u64,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    /// A part of a segment that is in `segments`.
    Segment(SegmentHandle),
    /// Extents of its own.
    Own(Imported),
}

/// A segment of another process.
#[derive(Clone, Copy, Debug)]
struct Segment {
    memory: Imported,
    users: u64,
}

fn imports() -> MutexGuard<'static, Option<Imports>> {
    IMPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a block of another process is mapped at `address`.
pub(super) fn is_imported(address: u64) -> bool {
    imports().as_ref().is_some_and(|imports| imports.addresses.contains_key(&address))
}

/// Records that the process imported a block of its own.
pub(super) fn add_own(address: u64, share: ShareId) {
    imports().get_or_insert_default().own.entry(address).or_default().push(share);
}

/// Undoes one [`add_own`].
pub(super) fn take_own(address: u64) -> Option<ShareId> {
    let mut imports = imports();
    let own = &mut imports.as_mut()?.own;
    let shares = own.get_mut(&address)?;
    let share = shares.pop();
    if shares.is_empty() {
        own.remove(&address);
    }
    share
}

/// Imports a block of another process.
pub(super) fn import(handle: &BlockHandle, device: Option<DeviceOrdinal>) -> Result<u64> {
    let heap = instance::heap()?;
    let device = device.unwrap_or(DeviceOrdinal(handle.device));
    // A deleter of the library may run as long as the block is mapped.
    keep_library_loaded();
    let mut guard = imports();
    let imports = guard.get_or_insert_default();
    imports.unmap_late(heap);
    let key = (handle.service, handle.share);
    if let Some(mapped) = imports.mapped.get_mut(&key) {
        if mapped.device != device {
            let message = format!("the block is imported for device {} already", mapped.device);
            return Err(Error::new(Status::NotSupported, message));
        }
        mapped.holds += 1;
        let address = mapped.address;
        // One hold of the exporter's is enough. If that fails it is one too many, until this
        // process ends.
        let _ = imports.ask(handle, Request::Discard(handle.share, handle.token));
        return Ok(address);
    }
    let answer = imports.ask(handle, Request::Import(handle.share, handle.token, handle.bytes))?;
    let mapped = match answer {
        Some(incoming) => imports.map(heap, device, &incoming, handle.bytes),
        None => Err(handle.gone()),
    };
    if mapped.is_err() {
        imports.tell_released(key);
    }
    let mapped = mapped?;
    imports.mapped.insert(key, mapped);
    imports.addresses.insert(mapped.address, key);
    Ok(mapped.address)
}

/// Closes a block once.
pub(super) fn close(address: u64) -> Result<()> {
    let heap = instance::heap()?;
    let mut guard = imports();
    let unknown = || {
        let message = format!("{address:#x} is no block that this process has imported");
        Error::new(Status::ForeignPointer, message)
    };
    let imports = guard.as_mut().ok_or_else(unknown)?;
    imports.unmap_late(heap);
    let key = *imports.addresses.get(&address).ok_or_else(unknown)?;
    let mapped = imports.mapped.get_mut(&key).ok_or_else(unknown)?;
    mapped.holds -= 1;
    if mapped.holds > 0 {
        return Ok(());
    }
    let mapped = *mapped;
    imports.mapped.remove(&key);
    imports.addresses.remove(&address);
    if imports.unmap(heap, &mapped).is_ok() {
        imports.tell_released(key);
    } else {
        imports.late.push((key, mapped));
    }
    Ok(())
}

/// Discards a handle of another process.
pub(super) fn discard(handle: &BlockHandle) -> Result<()> {
    instance::heap()?;
    let mut imports = imports();
    let request = Request::Discard(handle.share, handle.token);
    imports.get_or_insert_default().ask(handle, request).map(|_| ())
}

impl Imports {
    /// Sends a request that has an answer to the process of `handle`.
    fn ask(&mut self, handle: &BlockHandle, request: Request) -> Result<Option<Incoming>> {
        let answer = self.line(handle).and_then(|line| {
            request.send(&line)?;
            receive_answer(&line)
        });
        match answer {
            Ok(Err(error)) if error.status == Status::DoubleFree => Err(handle.gone()),
            Ok(Err(error)) => {
                let message = format!("process {}: {error}", handle.process);
                Err(Error::new(error.status, message))
            }
            Ok(Ok(answer)) => Ok(answer),
            Err(error) => {
                let line = self.lines.remove(&handle.service);
                if !has_ended(&error) {
                    self.retire(line);
                }
                Err(not_reached(handle, &error))
            }
        }
    }

    /// Keeps `line` for the exporter's sake, and lets those go whose exporters have ended.
    fn retire(&mut self, line: Option<Arc<Line>>) {
        self.retired.retain(|line| !line.has_ended());
        self.retired.extend(line);
    }

    fn line(&mut self, handle: &BlockHandle) -> io::Result<Arc<Line>> {
        if let Some(line) = self.lines.get(&handle.service) {
            return Ok(Arc::clone(line));
        }
        let mut line = Line::connect(&handle.door())?;
        line.limit(PATIENCE, true);
        let line = Arc::new(line);
        self.lines.insert(handle.service, Arc::clone(&line));
        Ok(line)
    }

    /// Tells the exporter that a use of its block has ended; it may have ended itself.
    fn tell_released(&mut self, key: Key) {
        if let Some(line) = self.lines.get(&key.0)
            && Request::Release(key.1).send(line).is_err()
        {
            self.lines.remove(&key.0);
        }
    }

    fn map(
        &mut self,
        heap: &Heap,
        device: DeviceOrdinal,
        incoming: &Incoming,
        bytes: u64,
    ) -> Result<Mapped> {
        check(incoming, bytes)?;
        let (memory, base, offset_bytes) = match incoming {
            Incoming::Segment { handle, offset_bytes } => {
                let base = self.open_segment(heap, device, incoming, handle)?;
                (Memory::Segment(*handle), base, *offset_bytes)
            }
            Incoming::Extents { offset_bytes, .. } => {
                let imported = heap.receive(device, incoming)?;
                (Memory::Own(imported), imported.address(), *offset_bytes)
            }
        };
        Ok(Mapped { address: base + offset_bytes, device, memory, holds: 1 })
    }

    fn open_segment(
        &mut self,
        heap: &Heap,
        device: DeviceOrdinal,
        incoming: &Incoming,
        handle: &SegmentHandle,
    ) -> Result<u64> {
        if let Some(segment) = self.segments.get_mut(&(device, *handle)) {
            segment.users += 1;
            return Ok(segment.memory.address());
        }
        let memory = heap.receive(device, incoming)?;
        self.segments.insert((device, *handle), Segment { memory, users: 1 });
        Ok(memory.address())
    }

    /// Ends the mapping of a block, after a wait for the work that may use it.
    fn unmap(&mut self, heap: &Heap, mapped: &Mapped) -> Result<()> {
        let Memory::Segment(handle) = mapped.memory else {
            let Memory::Own(memory) = mapped.memory else { return Ok(()) };
            return heap.dismiss(mapped.device, memory);
        };
        let place = (mapped.device, handle);
        match self.segments.get_mut(&place) {
            Some(segment) if segment.users > 1 => {
                heap.wait_for_users(mapped.device)?;
                segment.users -= 1;
            }
            Some(segment) => {
                heap.dismiss(mapped.device, segment.memory)?;
                self.segments.remove(&place);
            }
            None => {}
        }
        Ok(())
    }

    fn unmap_late(&mut self, heap: &Heap) {
        for (key, mapped) in std::mem::take(&mut self.late) {
            if self.unmap(heap, &mapped).is_ok() {
                self.tell_released(key);
            } else {
                self.late.push((key, mapped));
            }
        }
    }
}

/// Checks that a block of so many bytes can lie where the other process says. The size of a segment
/// is not told; so it is only checked that no address overflows.
fn check(incoming: &Incoming, bytes: u64) -> Result<()> {
    let (offset_bytes, all_bytes) = match incoming {
        Incoming::Segment { offset_bytes, .. } => (*offset_bytes, LARGEST_REQUEST_BYTES),
        Incoming::Extents { files, offset_bytes } => {
            let sizes = files.iter().map(|(_, bytes)| *bytes);
            (*offset_bytes, sizes.fold(0, u64::saturating_add))
        }
    };
    if offset_bytes.checked_add(bytes).is_none_or(|end| end > all_bytes) {
        return Err(Error::invalid_argument("the block does not lie in its memory"));
    }
    Ok(())
}

/// Returns true if the other process has ended, or was never there.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
    )
}

fn not_reached(handle: &BlockHandle, error: &io::Error) -> Error {
    if has_ended(error) {
        return handle.gone();
    }
    let message = format!("process {} cannot be asked for its block: {error}", handle.process);
    Error::new(Status::NotSupported, message)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::process::Door;

    #[test]
    fn lines_that_were_given_up_end_with_their_exporters() {
        let name = format!("genesis-test-retired-{}", std::process::id());
        let door = Door::open(&name).unwrap();
        let mut imports = Imports::default();
        let mut exporters = Vec::new();
        for _ in 0..3 {
            let line = Arc::new(Line::connect(&name).unwrap());
            exporters.push(door.accept().unwrap());
            imports.retire(Some(line));
        }
        assert_eq!(imports.retired.len(), 3, "they live");
        // What was said and not read does not keep a line.
        exporters[0].send(b"nonsense", &[]).unwrap();
        exporters.truncate(1);
        drop(exporters.pop());
        let line = Arc::new(Line::connect(&name).unwrap());
        imports.retire(Some(line));
        assert_eq!(imports.retired.len(), 1);
    }

    #[test]
    fn no_size_or_offset_of_another_process_overflows() {
        let extents = |sizes: &[u64], offset_bytes| {
            let file = || File::open("/dev/null").unwrap().into();
            Incoming::Extents {
                files: sizes.iter().map(|bytes| (file(), *bytes)).collect(),
                offset_bytes,
            }
        };
        let segment = |offset_bytes| Incoming::Segment { handle: [0; 64], offset_bytes };
        for (incoming, bytes) in [
            (extents(&[4096, 4096], 4096), 4096),
            (segment(1 << 40), 4096),
            (segment(0), LARGEST_REQUEST_BYTES),
        ] {
            assert_eq!(check(&incoming, bytes), Ok(()), "{incoming:?}");
        }
        for (incoming, bytes) in [
            (extents(&[4096, 4096], 4097), 4096),
            (extents(&[], 0), 1),
            (extents(&[4096], u64::MAX), 4096),
            (segment(u64::MAX), 4096),
            (segment(LARGEST_REQUEST_BYTES), 1),
        ] {
            let refused = check(&incoming, bytes).unwrap_err();
            assert_eq!(refused.status, Status::InvalidArgument, "{incoming:?}");
        }
        // Sizes whose sum has no number are refused where they are mapped.
        assert_eq!(check(&extents(&[u64::MAX, u64::MAX], 0), 4096), Ok(()));
    }
}
