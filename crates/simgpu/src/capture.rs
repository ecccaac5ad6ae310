//! Stream capture: what is forbidden during it, and what comes out.
//!
//! Work enqueued on a capturing stream does not run; what it would touch goes into the capture,
//! which ends as a [`Graph`]. A stream joins a capture by waiting on an event recorded in it.
//! Calls that wait for a capturing stream or its device are refused with 900, and so are the
//! *unsafe* calls (plain allocation and freeing, pinned memory, asking about and waiting for
//! events), depending on the mode of the capture and that of the calling thread, as
//! `cuThreadExchangeStreamCaptureMode` describes it. A refused call invalidates the capture.
//!
//! Simplified: a graph keeps its touches in the order in which they were captured, as if its
//! branches were one; and a branch need not be joined to the origin before the capture ends.

use std::cell::Cell;

use crate::machine::{Machine, State};
use crate::stream_table::thread_token;
use crate::touch::{Access, Rights, Work};
use crate::{Call, Code, Result};

/// How far a capture keeps unsafe calls away; CUDA's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// From all threads.
    #[default]
    Global = 0,
    /// From the capturing thread.
    ThreadLocal = 1,
    /// From nobody.
    Relaxed = 2,
}

/// What is known of the capture that a stream takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureInfo {
    /// The capture's number, never used again and never 0.
    pub id: u64,
    /// Whether nothing has invalidated it yet.
    pub is_valid: bool,
}

/// What a capture recorded: touches, to be enqueued by [`Machine::graph_launch`].
#[derive(Clone, Debug, Default)]
pub struct Graph {
    touches: Vec<CapturedTouch>,
}

impl Graph {
    /// How many touches it holds, those of no bytes included.
    pub fn touch_count(&self) -> usize {
        self.touches.len()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CapturedTouch {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
    pub(crate) label: String,
}

impl CapturedTouch {
    fn work(&self) -> Work<'_> {
        let Self { address, bytes, access, rights, ref label } = *self;
        Work { address, bytes, access, rights, label }
    }
}

impl From<Work<'_>> for CapturedTouch {
    fn from(work: Work<'_>) -> Self {
        let Work { address, bytes, access, rights, label } = work;
        Self { address, bytes, access, rights, label: label.to_owned() }
    }
}

#[derive(Debug)]
pub(crate) struct Capture {
    origin: u32,
    device: u32,
    mode: CaptureMode,
    thread: u64,
    is_valid: bool,
    graph: Graph,
}

thread_local! {
    static THREAD_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// Sets the calling thread's capture mode, for all machines, and returns the one before.
pub fn exchange_thread_capture_mode(mode: CaptureMode) -> CaptureMode {
    THREAD_MODE.with(|current| current.replace(mode))
}

impl Machine {
    /// Starts to capture `stream`; the legacy stream cannot be captured.
    pub fn begin_capture(&self, device: u32, stream: usize, mode: CaptureMode) -> Result<()> {
        let mut state = self.enter(device, Call::BeginCapture)?;
        let slot = state.stream(device, stream, Call::BeginCapture)?;
        let entry = &state.streams.slots[slot as usize];
        let device = entry.device;
        if slot == device {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if entry.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let (thread, graph) = (thread_token(), Graph::default());
        let capture = Capture { origin: slot, device, mode, thread, is_valid: true, graph };
        let capture = state.captures.insert(capture);
        state.streams.slots[slot as usize].capture = Some(capture);
        Ok(())
    }

    /// Ends the capture that began in `stream`. One that was invalidated ends as well, with
    /// `STREAM_CAPTURE_INVALIDATED`.
    pub fn end_capture(&self, device: u32, stream: usize) -> Result<Graph> {
        let mut state = self.enter(device, Call::EndCapture)?;
        let slot = state.stream(device, stream, Call::EndCapture)?;
        let key = state.streams.slots[slot as usize].capture.ok_or(Code::ILLEGAL_STATE)?;
        let capture = state.captures.get(key).ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        if capture.origin != slot {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread_token() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        for stream in &mut state.streams.slots {
            stream.capture = stream.capture.filter(|&joined| joined != key);
        }
        match state.captures.remove(key) {
            Some(capture) if capture.is_valid => Ok(capture.graph),
            _ => Err(Code::STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Whether `stream` is being captured. Legal at any time.
    pub fn is_capturing(&self, device: u32, stream: usize) -> Result<bool> {
        Ok(self.capture_info(device, stream)?.is_some())
    }

    /// [`Self::is_capturing`] as part of another call: not a call of its own.
    pub fn is_capturing_within_call(&self, device: u32, stream: usize) -> Result<bool> {
        let mut state = self.lock();
        state.device(device)?;
        let slot = state.stream(device, stream, None)?;
        Ok(state.streams.slots[slot as usize].capture.is_some())
    }

    /// The capture that `stream` takes part in, if any. Legal at any time; counts as asking
    /// whether it captures.
    pub fn capture_info(&self, device: u32, stream: usize) -> Result<Option<CaptureInfo>> {
        let call = Call::StreamIsCapturing;
        if self.quietly(device, call, |quiet| quiet.stream_device(device, stream).is_some()) {
            return Ok(None);
        }
        let mut state = self.enter(device, call)?;
        let slot = state.stream(device, stream, call)?;
        let Some(id) = state.streams.slots[slot as usize].capture else { return Ok(None) };
        let is_valid = state.captures.get(id).is_some_and(|capture| capture.is_valid);
        Ok(Some(CaptureInfo { id, is_valid }))
    }

    /// Enqueues what `graph` recorded on `stream`.
    pub fn graph_launch(&self, device: u32, stream: usize, graph: &Graph) -> Result<()> {
        for touch in &graph.touches {
            self.lock().enqueue_touch(device, stream, touch.work())?;
        }
        Ok(())
    }
}

impl State {
    /// Refuses an unsafe call where a capture and the calling thread's mode forbid it.
    pub(crate) fn forbid_in_capture(&mut self) -> Result<()> {
        let mode = THREAD_MODE.with(Cell::get);
        if self.captures.len() == 0 || mode == CaptureMode::Relaxed {
            return Ok(());
        }
        let thread = thread_token();
        let offended = |capture: &Capture| {
            let is_everywhere = capture.mode == CaptureMode::Global && mode == CaptureMode::Global;
            is_everywhere || (capture.mode != CaptureMode::Relaxed && capture.thread == thread)
        };
        self.refuse(offended)
    }

    /// Refuses a call that would wait for all of `device` while a stream of it is captured.
    pub(crate) fn forbid_while_device_captures(&mut self, device: u32) -> Result<()> {
        self.refuse(|capture| capture.device == device)
    }

    /// Refuses a call that asks about or waits for a captured stream.
    pub(crate) fn forbid_on_capturing(&mut self, slot: u32) -> Result<()> {
        let Some(capture) = self.streams.slots[slot as usize].capture else { return Ok(()) };
        self.invalidate_capture(capture);
        Err(Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    pub(crate) fn invalidate_capture(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(capture) {
            capture.is_valid = false;
        }
    }

    /// A stream waited on an event recorded in a capture: it becomes part of it.
    pub(crate) fn join_capture(&mut self, slot: u32, captured: u64) -> Result<()> {
        if self.captures.get(captured).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        match &mut self.streams.slots[slot as usize].capture {
            Some(joined) if *joined != captured => Err(Code::STREAM_CAPTURE_MERGE),
            joined => {
                *joined = Some(captured);
                Ok(())
            }
        }
    }

    pub(crate) fn capture_touch(&mut self, capture: u64, touch: CapturedTouch) {
        if let Some(capture) = self.captures.get_mut(capture) {
            capture.graph.touches.push(touch);
        }
    }

    fn refuse(&mut self, offended: impl Fn(&Capture) -> bool) -> Result<()> {
        let keys: Vec<u64> = self
            .captures
            .iter()
            .filter(|(_, capture)| offended(capture))
            .map(|(key, _)| key)
            .collect();
        for &key in &keys {
            self.invalidate_capture(key);
        }
        if keys.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNSUPPORTED) }
    }
}
