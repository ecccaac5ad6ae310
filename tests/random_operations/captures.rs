//! A worker's captures: one graph on each device, of one stream, with a private pool.

use std::sync::Arc;

use genesis::base::{Backup, DeviceOrdinal, StreamHandle};
use simgpu::{CaptureMode, Graph};

use super::{COMMON_STREAMS, Place, Worker};
use crate::operation::Mode;

/// The graph of a device, or its capture.
#[derive(Default)]
pub(super) enum Captured {
    #[default]
    Nothing,
    /// The stream, and whether the heap was told of the capture.
    Begun { stream: u64, told: bool },
    Ended {
        stream: u64,
        graph: Graph,
        /// Its memory is away.
        is_paused: bool,
    },
}

impl Captured {
    /// The memory of graphs has gone, or is back.
    pub(super) fn set_paused(&mut self, value: bool) {
        if let Self::Ended { is_paused, .. } = self {
            *is_paused = value;
        }
    }

    pub(super) fn is_begun(&self) -> bool {
        matches!(self, Self::Begun { .. })
    }

    /// Returns true while the stream is captured.
    pub(super) fn is_of(&self, stream: u64) -> bool {
        matches!(self, Self::Begun { stream: captured, .. } if *captured == stream)
    }

    /// Returns true if the stream is captured, or its graph may be launched.
    pub(super) fn is_of_graph(&self, stream: u64) -> bool {
        let is_ended = matches!(self, Self::Ended { stream: of, .. } if *of == stream);
        is_ended || self.is_of(stream)
    }
}

impl Worker {
    pub(super) fn is_captured(&self, (device, stream): Place) -> bool {
        self.captured[device as usize].is_of(stream)
    }

    /// The legacy stream cannot be captured, and streams that others use are not.
    pub(super) fn begin_capture(&mut self, place: Place, told: bool, mode: Mode) {
        let (device, stream) = place;
        let least = if self.conduct.is_alone { 1 } else { COMMON_STREAMS.len() as u64 };
        if stream < least || self.captured[device as usize].is_begun() {
            return;
        }
        self.drop_graph(device);
        let (heap, ordinal) = (&self.rig.heap, DeviceOrdinal(device));
        let handle = self.handle(place);
        let own = std::thread::current().id();
        let filter =
            move |asked: StreamHandle| asked == handle && std::thread::current().id() == own;
        heap.begin_pool(ordinal, self.capture_pool, Arc::new(filter)).unwrap();
        heap.set_pool_tag(ordinal, self.capture_pool, &self.tag, Backup::Pageable).unwrap();
        if told {
            heap.begin_capture(ordinal).unwrap();
        }
        let mode = match mode {
            Mode::Global => CaptureMode::Global,
            Mode::ThreadLocal => CaptureMode::ThreadLocal,
            Mode::Relaxed => CaptureMode::Relaxed,
        };
        self.rig.machine.begin_capture(device, handle.0, mode).unwrap();
        self.captured[device as usize] = Captured::Begun { stream, told };
    }

    /// Ends a capture, which must be valid.
    pub(super) fn end_capture(&mut self, device: u32) {
        let Captured::Begun { stream, told } = self.captured[device as usize] else { return };
        let ordinal = DeviceOrdinal(device);
        let graph = self.rig.machine.end_capture(device, self.handle((device, stream)).0);
        let graph = graph.expect("a capture that nothing disturbed");
        if told {
            self.rig.heap.end_capture(ordinal).unwrap();
        }
        self.rig.heap.end_pool(ordinal, self.capture_pool).unwrap();
        self.captured[device as usize] = Captured::Ended { stream, graph, is_paused: false };
    }

    pub(super) fn launch(&self, device: u32) {
        let captured = &self.captured[device as usize];
        let Captured::Ended { stream, graph, is_paused: false } = captured else { return };
        let stream = self.handle((device, *stream)).0;
        self.rig.machine.graph_launch(device, stream, graph).unwrap();
    }

    /// Ends the capture, if one is begun, and lets the graph's memory go.
    pub(super) fn drop_graph(&mut self, device: u32) {
        self.end_capture(device);
        if let Captured::Ended { .. } = std::mem::take(&mut self.captured[device as usize]) {
            let released = self.rig.heap.release_pool(DeviceOrdinal(device), self.capture_pool);
            released.unwrap_or_else(|error| assert!(self.excuses(error.status), "{error}"));
            // What is live of it stays, and is no graph's.
            for live in self.live.iter_mut().filter(|live| live.device == device) {
                live.is_captured = false;
            }
        }
    }
}
