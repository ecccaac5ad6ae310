//! Sharing with other processes: memory by handles of 64 bytes, memory by file descriptors, events.
//!
//! Each process has a machine of its own. Machines share bytes (their files) and *notes*: counters
//! that tell another process whether an allocation still exists and how far an event has come.
//! A process is found by its number, so both must be in one PID namespace and of one user.
//!
//! The rules are CUDA's; its driver API manual has them where no other source is named:
//! - `cuIpcGetMemHandle` is for allocations of `cuMemAlloc`; memory of `cuMemCreate` has none (the
//!   programming guide, "virtual memory management": legacy handles are not supported for it);
//! - a handle of 64 bytes is not opened by the process that made it, but refused with
//!   `INVALID_CONTEXT` (NVIDIA's forum, topic 52453, and PyTorch's note on CUDA IPC);
//! - opening one a second time in a context returns the same address and counts; it is unmapped
//!   at the last close; `cuMemFree` of it is an error;
//! - freeing an allocation that is open elsewhere is undefined: here it is a violation;
//! - `cuMemExportToShareableHandle` needs the handle type in `requestedHandleTypes` at creation;
//! - a descriptor keeps the memory alive, also after its maker's end; it may be imported in the
//!   process that made it, and each import is a handle to be released;
//! - an event for other processes is made with `CU_EVENT_INTERPROCESS` and without timing.
//!
//! Stricter than the manual: only the first byte of an allocation has a handle; an imported handle
//! is not exported again; an event is recorded by its own process alone.
//!
//! With `Config::common`, all processes have one capacity: a piece with a descriptor counts once,
//! until the last process that has it lets go; an allocation counts for its maker. Not modelled:
//! races between processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::store::{Cell, Extent, FILE_BYTES, Label, Notes, Piece, Table, open_of_process};
use crate::tables::{Event, Mapping, Memory, Origin, Recorded, Sharing, Until};
use crate::violation::Violation;

/// A handle of 64 bytes, as `cuIpcGetMemHandle` and `cuIpcGetEventHandle` make them.
pub type IpcHandle = [u8; 64];

/// The first word of a handle.
const MEMORY: u64 = u64::from_le_bytes(*b"simgpu:m");
const EVENT: u64 = u64::from_le_bytes(*b"simgpu:e");
/// How long the host waits for work of another process: longer, and it is a hang of the test.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a handle says.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    kind: u64,
    nonce: u64,
    process: u32,
    table: i32,
    cell: u32,
    device: u32,
    number: u64,
    /// The file of the allocation's bytes; −1: there are none.
    file: i32,
    /// Where the allocation starts in what is mapped for it, in pages of 512 bytes.
    start: u32,
    offset_bytes: u64,
    /// The allocation, in bytes; what is mapped is whole granules.
    bytes: u64,
}

impl Words {
    fn encode(self) -> IpcHandle {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            self.kind,
            self.nonce,
            pair(self.process, self.table as u32),
            pair(self.cell, self.device),
            self.number,
            pair(self.file as u32, self.start),
            self.offset_bytes,
            self.bytes,
        ];
        let mut handle = [0; 64];
        for (place, word) in handle.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        handle
    }

    fn decode(handle: &IpcHandle, kind: u64) -> Result<Self> {
        let word = |index: usize| {
            let bytes = handle[index * 8..][..8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        let (low, high) = (|index| word(index) as u32, |index| (word(index) >> 32) as u32);
        if word(0) != kind {
            return Err(Code::INVALID_HANDLE);
        }
        Ok(Self {
            kind,
            nonce: word(1),
            process: low(2),
            table: high(2) as i32,
            cell: low(3),
            device: high(3),
            number: word(4),
            file: low(5) as i32,
            start: high(5),
            offset_bytes: word(6),
            bytes: word(7),
        })
    }

    /// The note that the handle names, in the process that made it. `MAP_FAILED`: that process, or
    /// what it shared, is gone.
    fn open_note(&self) -> Result<Cell> {
        if self.process == std::process::id() {
            return Err(Code::INVALID_CONTEXT);
        }
        let table = Table::open(self.process, self.table, self.nonce).ok_or(Code::MAP_FAILED)?;
        Cell::open(Arc::new(table), self.cell, self.number).ok_or(Code::MAP_FAILED)
    }
}

impl Machine {
    /// `cuIpcGetMemHandle`: a handle by which another process can open the allocation at
    /// `address`.
    pub fn ipc_get_memory(&self, context: u32, address: u64) -> Result<IpcHandle> {
        let mut guard = self.enter(context, Call::IpcGetMemory)?;
        let state = &mut *guard;
        let mapping = state.space.get(address).ok_or(Code::INVALID_VALUE)?;
        let (key, bytes) = (mapping.memory, mapping.bytes);
        let (start, extent) = match mapping.origin {
            Origin::LargeAllocation { .. } => {
                (address, state.physical.get(key).and_then(|memory| memory.extent))
            }
            Origin::SmallAllocation => {
                let device = state.physical.get(key).map_or(0, |memory| memory.device);
                let pages = &state.device(device)?.small.pages;
                let page = pages.range(..=address).next_back();
                page.map_or((address, None), |(&page, &extent)| (page, Some(extent)))
            }
            Origin::Managed { .. } | Origin::Opened { .. } | Origin::Handle => {
                return Err(Code::INVALID_VALUE);
            }
        };
        let extent = extent.ok_or(Code::INVALID_VALUE)?;
        let note = state.note_of(key)?;
        let words = Words {
            kind: MEMORY,
            device: extent.device,
            file: state.store.descriptor_of(extent).unwrap_or(-1),
            start: ((address - start) / 512) as u32,
            offset_bytes: extent.offset_bytes,
            bytes,
            ..state.words(&note)?
        };
        Ok(words.encode())
    }

    /// `cuIpcOpenMemHandle`: the address at which an allocation of another process now lies here.
    /// `MAP_FAILED` if it, or its process, is gone.
    pub fn ipc_open_memory(&self, context: u32, handle: &IpcHandle) -> Result<u64> {
        let mut guard = self.enter(context, Call::IpcOpenMemory)?;
        let state = &mut *guard;
        state.forbid_in_capture()?;
        if let Some(&address) = state.opened.get(&(context, *handle)) {
            let memory = state.space.get(address).map(|mapping| mapping.memory);
            let memory = memory.and_then(|key| state.physical.get_mut(key));
            if let Some(Memory { sharing: Sharing::Imported { opened, .. }, .. }) = memory {
                *opened += 1;
            }
            return Ok(address);
        }
        let words = Words::decode(handle, MEMORY)?;
        let note = words.open_note()?;
        note.hold_open()?;
        let address = state.open_memory(context, &words, note)?;
        state.opened.insert((context, *handle), address);
        Ok(address)
    }

    /// `cuIpcCloseMemHandle`: undoes one [`Self::ipc_open_memory`]. Waits for the context's work
    /// before it unmaps, as `cuMemFree` does.
    pub fn ipc_close_memory(&self, context: u32, address: u64) -> Result<()> {
        let mut guard = self.enter(context, Call::IpcCloseMemory)?;
        let state = &mut *guard;
        state.forbid_in_capture()?;
        let mapping = state.space.get(address).ok_or(Code::INVALID_VALUE)?;
        let (key, origin) = (mapping.memory, mapping.origin);
        let Origin::Opened { range_start, range_bytes } = origin else {
            return Err(Code::INVALID_VALUE);
        };
        if let Some(Memory { sharing: Sharing::Imported { opened, .. }, .. }) =
            state.physical.get_mut(key)
            && *opened > 1
        {
            *opened -= 1;
            return Ok(());
        }
        let device = state.context_device(context)?;
        state.forbid_while_device_captures(device)?;
        state.wait_for_context(context, true)?;
        state.store.unmap(range_start, range_bytes)?;
        state.space.give(range_start, range_bytes);
        let mapping = state.space.remove(address).ok_or(Code::INVALID_VALUE)?;
        state.check_untouched(address, &mapping);
        state.opened.retain(|_, &mut other| other != address);
        state.drop_mapping(key);
        Ok(())
    }

    /// `cuMemExportToShareableHandle`: a descriptor by which another process can have the memory.
    pub fn export_handle(&self, context: u32, handle: u64) -> Result<OwnedFd> {
        let state = self.enter(context, Call::ExportHandle)?;
        let memory = state.held_memory(handle)?;
        match (&memory.sharing, memory.extent) {
            (Sharing::Exportable, Some(extent)) => state.store.export(extent, memory.piece),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// `cuMemImportFromShareableHandle`: the memory behind a descriptor of
    /// [`Self::export_handle`], as a handle. The descriptor may be closed afterwards.
    pub fn import_handle(&self, context: u32, descriptor: &OwnedFd) -> Result<u64> {
        let mut guard = self.enter(context, Call::ImportHandle)?;
        let state = &mut *guard;
        let label = Label::read(descriptor).ok_or(Code::INVALID_VALUE)?;
        let Label { device, bytes, has_bytes, piece } = label;
        let granule = state.granule(device)?;
        if has_bytes != state.store.has_bytes() || bytes == 0 || !bytes.is_multiple_of(granule) {
            return Err(Code::INVALID_VALUE);
        }
        let file = descriptor.try_clone().map_err(|_| Code::OUT_OF_MEMORY)?;
        let piece = state.hold_piece(piece, device, bytes)?;
        let extent = state.store.import(device, bytes, file);
        let extent = Some(extent.inspect_err(|_| state.uncount(device, 0, piece))?);
        let sharing = Sharing::Imported { _note: None, opened: 1 };
        let (context, mappings, released) = (None, 0, false);
        let memory = Memory { device, context, bytes, extent, mappings, released, piece, sharing };
        Ok(state.physical.insert(memory))
    }

    /// How many bytes [`Self::import_handle`] has imported that are still held.
    pub fn imported_bytes(&self) -> u64 {
        let state = self.lock();
        let is_imported = |memory: &&Memory| matches!(memory.sharing, Sharing::Imported { .. });
        state.physical.iter().map(|(_, memory)| memory).filter(is_imported).map(|m| m.bytes).sum()
    }

    /// A new event that other processes can open.
    pub fn event_create_shared(&self, context: u32) -> Result<u64> {
        let mut state = self.enter(context, Call::EventCreate)?;
        let note = Some(state.notes()?.add()?);
        let (timing, recorded) = (false, Recorded::Never);
        let event = state.events.insert(Event { context, timing, recorded, note });
        state.noted_events.push(event);
        Ok(event)
    }

    /// `cuIpcGetEventHandle`.
    pub fn ipc_get_event(&self, context: u32, event: u64) -> Result<IpcHandle> {
        let mut guard = self.enter(context, Call::IpcGetEvent)?;
        let entry = guard.event(event)?;
        let is_own = !matches!(entry.recorded, Recorded::Elsewhere);
        let note = entry.note.clone().filter(|_| is_own).ok_or(Code::INVALID_HANDLE)?;
        Ok(Words { kind: EVENT, ..guard.words(&note)? }.encode())
    }

    /// `cuIpcOpenEventHandle`: an event of this process that stands for another's.
    pub fn ipc_open_event(&self, context: u32, handle: &IpcHandle) -> Result<u64> {
        let mut state = self.enter(context, Call::IpcOpenEvent)?;
        let note = Some(Words::decode(handle, EVENT)?.open_note()?);
        let (timing, recorded) = (false, Recorded::Elsewhere);
        Ok(state.events.insert(Event { context, timing, recorded, note }))
    }
}

impl State {
    /// Holds what another machine set apart, if it is one of the same file.
    fn hold_piece(
        &mut self,
        piece: Option<Piece>,
        device: u32,
        bytes: u64,
    ) -> Result<Option<Piece>> {
        match (&mut self.common, piece) {
            (Some(common), Some(piece)) => common.hold(piece, device, bytes),
            _ => Ok(None),
        }
    }

    fn notes(&mut self) -> Result<&mut Notes> {
        if self.notes.is_none() {
            self.notes = Some(Notes::new()?);
        }
        self.notes.as_mut().ok_or(Code::OUT_OF_MEMORY)
    }

    /// The parts of a handle that name a note of this process.
    fn words(&mut self, note: &Cell) -> Result<Words> {
        let (table, nonce) = self.notes()?.place();
        let (cell, number) = note.place();
        let process = std::process::id();
        Ok(Words { nonce, process, table, cell, number, ..Words::default() })
    }

    /// The note of an allocation, made if there is none.
    fn note_of(&mut self, key: u64) -> Result<Cell> {
        if let Some(Memory { sharing: Sharing::Noted(note), .. }) = self.physical.get(key) {
            return Ok(note.clone());
        }
        let note = self.notes()?.add()?;
        let memory = self.physical.get_mut(key).ok_or(Code::INVALID_VALUE)?;
        memory.sharing = Sharing::Noted(note.clone());
        Ok(note)
    }

    /// An allocation is freed: its note goes, and it should be open nowhere.
    pub(crate) fn forget_note(&mut self, address: u64, key: u64) {
        let Some(memory) = self.physical.get_mut(key) else { return };
        if !matches!(memory.sharing, Sharing::Noted(_)) {
            return;
        }
        let Sharing::Noted(note) = std::mem::take(&mut memory.sharing) else { return };
        let is_open = note.is_open_elsewhere();
        if let Some(notes) = &mut self.notes {
            notes.remove(&note);
        }
        if is_open {
            self.report(Violation::FreedWhileOpen { address });
        }
    }

    /// Maps an allocation of another process.
    fn open_memory(&mut self, context: u32, words: &Words, note: Cell) -> Result<u64> {
        let device = words.device;
        let granule = self.device(device)?.config.granularity_bytes;
        let start_bytes = u64::from(words.start) * 512;
        let end = start_bytes.checked_add(words.bytes).filter(|_| words.bytes > 0);
        let range_bytes = end.and_then(|end| end.checked_next_multiple_of(granule));
        let range_bytes = range_bytes.ok_or(Code::INVALID_HANDLE)?;
        let file_end = words.offset_bytes.checked_add(range_bytes);
        let is_within = file_end.is_some_and(|end| end <= FILE_BYTES);
        if !is_within || !words.offset_bytes.is_multiple_of(granule) {
            return Err(Code::INVALID_HANDLE);
        }
        let file = match words.file {
            -1 => None,
            file => Some(open_of_process(words.process, file, FILE_BYTES).ok_or(Code::MAP_FAILED)?),
        };
        let extent =
            Extent { device, file: device, offset_bytes: words.offset_bytes, bytes: range_bytes };
        let extent = self.store.import_part(extent, file)?;
        let placed = self.space.take(range_bytes, granule).and_then(|start| {
            let mapped = self.store.map(start, extent, true);
            mapped.inspect_err(|_| self.space.give(start, range_bytes)).map(|()| start)
        });
        let range_start = placed.inspect_err(|_| self.store.destroy(extent))?;
        let memory = self.physical.insert(Memory {
            device,
            context: Some(context),
            bytes: range_bytes,
            extent: Some(extent),
            mappings: 1,
            released: true,
            piece: None,
            sharing: Sharing::Imported { _note: Some(note), opened: 1 },
        });
        let address = range_start + start_bytes;
        let origin = Origin::Opened { range_start, range_bytes };
        let (bytes, access, touched) = (words.bytes, 1 << device, Vec::new());
        self.space.insert(address, Mapping { bytes, memory, access, origin, touched });
        Ok(address)
    }

    /// `INVALID_HANDLE` for an event of another process.
    pub(crate) fn forbid_elsewhere(&self, event: u64) -> Result<()> {
        match self.event(event)?.recorded {
            Recorded::Elsewhere => Err(Code::INVALID_HANDLE),
            _ => Ok(()),
        }
    }

    /// Ends an event and its note.
    pub(crate) fn end_event(&mut self, key: u64) -> Result<()> {
        let event = self.events.remove(key).ok_or(Code::INVALID_HANDLE)?;
        if let (Some(note), false) = (&event.note, matches!(event.recorded, Recorded::Elsewhere)) {
            self.noted_events.retain(|&other| other != key);
            if let Some(notes) = &mut self.notes {
                notes.remove(note);
            }
        }
        Ok(())
    }

    /// Tells other processes that `event` was recorded, if they may know it.
    pub(crate) fn note_record(&mut self, event: u64) {
        if let Some(note) = self.events.get(event).and_then(|event| event.note.as_ref()) {
            note.first().fetch_add(1, Ordering::AcqRel);
            self.note_completion(event);
        }
    }

    /// Tells other processes how far this one's events have come.
    pub(crate) fn note_completions(&mut self) {
        self.noted_events.iter().for_each(|&event| self.note_completion(event));
    }

    fn note_completion(&self, event: u64) {
        let Some(Event { recorded, note: Some(note), .. }) = self.events.get(event) else { return };
        if let Recorded::At { slot, sequence, .. } = recorded
            && self.is_done(*slot, *sequence)
        {
            note.second().store(note.first().load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// What another process's event stands for now.
    fn until(&self, event: u64) -> Result<Option<Until>> {
        Ok(self.event(event)?.note.as_ref().map(Until::now))
    }

    /// Returns true if the work is complete that another process's event stands for.
    pub(crate) fn is_over_elsewhere(&self, event: u64) -> bool {
        self.until(event).is_ok_and(|until| until.is_none_or(|until| until.is_over()))
    }

    /// Waits for another process's event.
    pub(crate) fn synchronize_elsewhere(&self, event: u64) -> Result<()> {
        match self.until(event)? {
            Some(until) => wait(|| until.is_over()),
            None => Ok(()),
        }
    }

    /// Work enqueued on `slot` from now on comes after another process's event.
    pub(crate) fn wait_for_elsewhere(&mut self, slot: u32, event: u64) -> Result<()> {
        if let Some(capture) = self.streams.slots[slot as usize].capture {
            self.invalidate_capture(capture);
            return Err(Code::STREAM_CAPTURE_ISOLATION);
        }
        let until = self.until(event)?.filter(|until| !until.is_over());
        self.enqueue_until(slot, Vec::new(), until, 0).map(|_| ())
    }

    /// Waits until the first operation of a stream need no longer wait for another process.
    pub(crate) fn wait_elsewhere(&self, slot: u32) -> Result<()> {
        let front = self.streams.slots[slot as usize].queue.front();
        match front.and_then(|operation| operation.until.as_ref()) {
            Some(until) => wait(|| until.is_over()),
            None => Ok(()),
        }
    }
}

/// Waits for something that another process does. `LAUNCH_TIMEOUT` if it does not.
fn wait(is_over: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_over() {
        if start.elapsed() > PATIENCE {
            return Err(Code::LAUNCH_TIMEOUT);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}
