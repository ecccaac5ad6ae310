//! Stream capture: what is forbidden during it, and what comes out.
//!
//! Work enqueued on a capturing stream does not run. What it would touch goes into the capture,
//! which ends as a [`Graph`]. A stream joins a capture by waiting on an event recorded in it.
//! A call that is refused invalidates the captures it conflicts with; an invalidated capture
//! takes nothing more (901) until it is ended. Three kinds of call are refused:
//!
//! - **Waits, in any mode, from any thread**, because they conflict with capture itself:
//!
//!   | call | code |
//!   |---|---|
//!   | waiting for a context of a device with a capturing stream | 900 |
//!   | querying or waiting for a capturing stream | 900 |
//!   | waiting for another stream of the device | 906 |
//!   | querying or waiting for an event recorded in a capture | 907 |
//!
//!   That the device decides, and neither thread nor mode, was measured on NVIDIA's driver
//!   (comment in ROCm/rocm-systems#4508: 900 for `cudaDeviceSynchronize`, 906 for a stream's,
//!   nothing for another GPU's). Others say that in thread-local mode other threads may wait
//!   (ROCm/rocm-systems#11698), but not for which streams. The stricter holds here, but for one case:
//!   in relaxed mode, a thread that captures may wait for another stream. PyTorch 2.12 and 2.13 do so
//!   in each capture, and driver 580 allows it (below).
//!   `cuMemFree` waits for its context inside, so it is refused like `cuCtxSynchronize`, even
//!   from a thread in relaxed mode.
//! - **Use of the legacy stream** while a blocking stream of its context captures (906; CUDA's
//!   programming guide, "prohibited and unhandled operations").
//! - **Unsafe calls** (900): plain allocation and freeing, pinned memory, querying streams, querying
//!   and waiting for events. `cuThreadExchangeStreamCaptureMode` describes when, by the calling
//!   thread's mode:
//!
//!   | mode | unsafe calls are allowed |
//!   |---|---|
//!   | relaxed | always |
//!   | thread-local | unless the thread itself captures in another mode than relaxed |
//!   | global | as above, and unless any thread captures in global mode |
//!
//!   Unmapping and releasing count as unsafe: the manual names no call of virtual memory
//!   management, but these two may wait, as `cuMemFree` does. Creating, mapping and setting access
//!   do not count: PyTorch's expandable segments grow by them while they capture.
//!
//! Driver 580 (docs/benchmarks) is less strict with three: unmapping and releasing are legal
//! in any mode; `cuMemFree`, and waiting for another stream, in relaxed and thread-local mode.
//!
//! Simplified: a graph keeps its touches in the order in which they were captured, as if its
//! branches were one; and a branch need not be joined to the origin before the capture ends.

use std::cell::Cell;

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Capture, CaptureInfo, CaptureMode, CapturedTouch, Graph, thread_token};

thread_local! {
    static THREAD_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// Sets the calling thread's capture mode, for all machines, and returns the previous one.
#[inline]
pub fn exchange_thread_capture_mode(mode: CaptureMode) -> CaptureMode {
    THREAD_MODE.with(|current| current.replace(mode))
}

impl Machine {
    /// Starts to capture `stream`; the legacy stream cannot be captured.
    pub fn begin_capture(&self, context: u32, stream: usize, mode: CaptureMode) -> Result<()> {
        let mut state = self.enter(context, Call::BeginCapture)?;
        let slot = state.stream(context, stream, Call::BeginCapture)?;
        if state.is_legacy(slot) {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let entry = &state.streams.slots[slot as usize];
        if entry.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let (thread, graph) = (thread_token(), Graph::default());
        let capture = Capture { origin: slot, mode, thread, is_valid: true, graph };
        let capture = state.captures.insert(capture);
        state.streams.slots[slot as usize].capture = Some(capture);
        Ok(())
    }

    /// Ends the capture that began in `stream`. An invalidated one also ends, with
    /// `STREAM_CAPTURE_INVALIDATED`.
    pub fn end_capture(&self, context: u32, stream: usize) -> Result<Graph> {
        let mut state = self.enter(context, Call::EndCapture)?;
        let slot = state.stream(context, stream, Call::EndCapture)?;
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

    /// Returns true if `stream` is being captured. Legal at any time.
    pub fn is_capturing(&self, context: u32, stream: usize) -> Result<bool> {
        Ok(self.capture_info(context, stream)?.is_some())
    }

    /// Returns true if any stream of `device` is being captured. Not a call of its own.
    pub fn has_captures(&self, device: u32) -> bool {
        let state = self.lock();
        state.captures.len() > 0 && !state.captures_of_device(device).is_empty()
    }

    /// [`Self::is_capturing`] as part of another call. Not a call of its own.
    pub fn is_capturing_within_call(&self, context: u32, stream: usize) -> Result<bool> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        Ok(state.streams.slots[slot as usize].capture.is_some())
    }

    /// The capture that `stream` takes part in, if any. Legal at any time; counted as
    /// `cuStreamIsCapturing`.
    #[inline]
    pub fn capture_info(&self, context: u32, stream: usize) -> Result<Option<CaptureInfo>> {
        let call = Call::StreamIsCapturing;
        if self.quietly(context, call, |quiet| quiet.stream_context(context, stream).is_some()) {
            return Ok(None);
        }
        self.capture_info_with_lock(context, stream, call)
    }

    fn capture_info_with_lock(
        &self,
        context: u32,
        stream: usize,
        call: Call,
    ) -> Result<Option<CaptureInfo>> {
        let mut state = self.enter(context, call)?;
        let slot = state.stream(context, stream, call)?;
        let Some(id) = state.streams.slots[slot as usize].capture else { return Ok(None) };
        let is_valid = state.captures.get(id).is_some_and(|capture| capture.is_valid);
        Ok(Some(CaptureInfo { id, is_valid }))
    }

    /// Enqueues what `graph` recorded on `stream`.
    pub fn graph_launch(&self, context: u32, stream: usize, graph: &Graph) -> Result<()> {
        for touch in &graph.touches {
            let (mut state, slot) = self.enter_work(context, stream, None)?;
            state.enqueue_touch(slot, stream, touch.work())?;
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
        let in_conflict = |capture: &Capture| {
            let is_everywhere = capture.mode == CaptureMode::Global && mode == CaptureMode::Global;
            is_everywhere || (capture.mode != CaptureMode::Relaxed && capture.thread == thread)
        };
        let captures = self.captures.iter().filter(|(_, capture)| in_conflict(capture));
        let captures = captures.map(|(key, _)| key).collect();
        self.refuse(captures, Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a call that would wait for a context of `device` while a stream of it is captured.
    pub(crate) fn forbid_while_device_captures(&mut self, device: u32) -> Result<()> {
        let captures = self.captures_of_device(device);
        self.refuse(captures, Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses a wait for a stream that is captured, or while another one of its device is, but by the
    /// thread that began this capture, in relaxed mode.
    pub(crate) fn forbid_stream_wait(&mut self, slot: u32) -> Result<()> {
        self.forbid_on_capturing(slot)?;
        if self.is_legacy(slot) {
            self.forbid_legacy_in_capture(slot)?;
        }
        let is_relaxed = THREAD_MODE.get() == CaptureMode::Relaxed;
        let thread = thread_token();
        let mut captures = self.captures_of_device(self.streams.slots[slot as usize].device);
        captures.retain(|&key| {
            let is_its = |capture: &Capture| capture.thread == thread;
            !(is_relaxed && self.captures.get(key).is_some_and(is_its))
        });
        self.refuse(captures, Code::STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses any use of a legacy stream while a stream that is ordered with it is captured.
    pub(crate) fn forbid_legacy_in_capture(&mut self, legacy: u32) -> Result<()> {
        if self.captures.len() == 0 {
            return Ok(());
        }
        let slots = self.blocking_streams(legacy).into_iter();
        let captures = slots.filter_map(|slot| self.streams.slots[slot as usize].capture).collect();
        self.refuse(captures, Code::STREAM_CAPTURE_IMPLICIT)
    }

    /// The code for querying an event recorded in a capture, which invalidates the capture.
    pub(crate) fn refuse_captured(&mut self, capture: u64) -> Code {
        self.invalidate_capture(capture);
        Code::CAPTURED_EVENT
    }

    /// Fails if a capture was invalidated.
    pub(crate) fn check_capture(&self, capture: u64) -> Result<()> {
        let is_valid = self.captures.get(capture).is_some_and(|capture| capture.is_valid);
        if is_valid { Ok(()) } else { Err(Code::STREAM_CAPTURE_INVALIDATED) }
    }

    /// Refuses a call that queries or waits for a captured stream.
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
        self.check_capture(captured)?;
        if self.is_legacy(slot) {
            return self.refuse(vec![captured], Code::STREAM_CAPTURE_IMPLICIT);
        }
        match self.streams.slots[slot as usize].capture {
            Some(joined) if joined != captured => {
                self.refuse(vec![joined, captured], Code::STREAM_CAPTURE_MERGE)
            }
            _ => {
                self.streams.slots[slot as usize].capture = Some(captured);
                Ok(())
            }
        }
    }

    pub(crate) fn capture_touch(&mut self, capture: u64, touch: CapturedTouch) -> Result<()> {
        self.check_capture(capture)?;
        if let Some(capture) = self.captures.get_mut(capture) {
            capture.graph.touches.push(touch);
        }
        Ok(())
    }

    /// Ends the captures that began in streams that are going away, and invalidates those the
    /// streams joined.
    pub(crate) fn forget_captures(&mut self, slots: &[u32]) {
        for &slot in slots {
            let Some(key) = self.streams.slots[slot as usize].capture.take() else { continue };
            self.invalidate_capture(key);
            if self.captures.get(key).is_some_and(|capture| capture.origin == slot) {
                self.captures.remove(key);
                for stream in &mut self.streams.slots {
                    stream.capture = stream.capture.filter(|&joined| joined != key);
                }
            }
        }
    }

    /// The captures that a stream of `device` takes part in.
    fn captures_of_device(&self, device: u32) -> Vec<u64> {
        if self.captures.len() == 0 {
            return Vec::new();
        }
        let slots = self.streams.of_device(device);
        slots.filter_map(|slot| self.streams.slots[slot as usize].capture).collect()
    }

    /// Fails with `code` and invalidates the captures that a call conflicts with, if any.
    fn refuse(&mut self, captures: Vec<u64>, code: Code) -> Result<()> {
        for &capture in &captures {
            self.invalidate_capture(capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(code) }
    }
}
