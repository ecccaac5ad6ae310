//! Streams, events and captures.

use std::ffi::c_uint;

use super::{Answer, Driver, NOT_READY, call};

/// A stream's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(pub(crate) usize);

impl Stream {
    /// The legacy default stream.
    pub(crate) const LEGACY: Self = Self(0);
}

/// An event's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(usize);

/// Which calls are forbidden during captures; CUDA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureMode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl Driver {
    /// A stream that does not order itself with the legacy stream.
    pub(crate) fn stream_create(&self) -> Answer<Stream> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = 0;
        call!(self, cuStreamCreate(&mut stream, NON_BLOCKING))?;
        Ok(Stream(stream))
    }

    pub(crate) fn stream_destroy(&self, stream: Stream) -> Answer {
        call!(self, cuStreamDestroy_v2(stream.0))
    }

    /// Returns true if all its work is done.
    pub(crate) fn stream_query(&self, stream: Stream) -> Answer<bool> {
        is_ready(call!(self, cuStreamQuery(stream.0)))
    }

    pub(crate) fn stream_synchronize(&self, stream: Stream) -> Answer {
        call!(self, cuStreamSynchronize(stream.0))
    }

    pub(crate) fn stream_wait(&self, stream: Stream, event: Event) -> Answer {
        call!(self, cuStreamWaitEvent(stream.0, event.0, 0))
    }

    /// The number of a stream in its process, never used again.
    pub(crate) fn stream_id(&self, stream: Stream) -> Answer<u64> {
        let mut id = 0;
        call!(self, cuStreamGetId(stream.0, &mut id))?;
        Ok(id)
    }

    pub(crate) fn is_capturing(&self, stream: Stream) -> Answer<bool> {
        let mut status = 0;
        call!(self, cuStreamIsCapturing(stream.0, &mut status))?;
        Ok(status != 0)
    }

    /// An event; without timing it is cheaper.
    pub(crate) fn event_create(&self, timing: bool) -> Answer<Event> {
        const DISABLE_TIMING: c_uint = 2;
        let mut event = 0;
        call!(self, cuEventCreate(&mut event, if timing { 0 } else { DISABLE_TIMING }))?;
        Ok(Event(event))
    }

    pub(crate) fn event_destroy(&self, event: Event) -> Answer {
        call!(self, cuEventDestroy_v2(event.0))
    }

    pub(crate) fn event_record(&self, event: Event, stream: Stream) -> Answer {
        call!(self, cuEventRecord(event.0, stream.0))
    }

    pub(crate) fn event_query(&self, event: Event) -> Answer<bool> {
        is_ready(call!(self, cuEventQuery(event.0)))
    }

    pub(crate) fn event_synchronize(&self, event: Event) -> Answer {
        call!(self, cuEventSynchronize(event.0))
    }

    pub(crate) fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> Answer {
        call!(self, cuStreamBeginCapture_v2(stream.0, mode as c_uint))
    }

    /// Ends a capture and throws its graph away; an error if it was invalidated.
    pub(crate) fn end_capture(&self, stream: Stream) -> Answer {
        let mut graph = 0;
        call!(self, cuStreamEndCapture(stream.0, &mut graph))?;
        if graph == 0 { Ok(()) } else { call!(self, cuGraphDestroy(graph)) }
    }

    /// Sets the calling thread's capture mode.
    pub(crate) fn set_thread_capture_mode(&self, mode: CaptureMode) -> Answer {
        let mut mode = mode as c_uint;
        call!(self, cuThreadExchangeStreamCaptureMode(&mut mode))
    }
}

fn is_ready(answer: Answer) -> Answer<bool> {
    match answer {
        Err(failure) if failure.code == NOT_READY => Ok(false),
        answer => answer.map(|()| true),
    }
}
