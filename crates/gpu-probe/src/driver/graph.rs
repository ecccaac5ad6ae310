//! Graphs made by captures, and launched.

use std::ffi::c_uint;

use super::{Answer, CaptureMode, Driver, Stream, call};

/// A graph that can be launched; never destroyed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graph(usize);

impl Driver {
    /// The graph of what `work` enqueues on `stream`.
    pub(crate) fn record_graph(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Answer,
    ) -> Answer<Graph> {
        let (mut graph, mut executable) = (0, 0);
        let mode = CaptureMode::Relaxed as c_uint;
        call!(self, cuStreamBeginCapture_v2(stream.0, mode))?;
        let worked = work();
        call!(self, cuStreamEndCapture(stream.0, &mut graph))?;
        worked?;
        call!(self, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
        call!(self, cuGraphDestroy(graph))?;
        Ok(Graph(executable))
    }

    pub(crate) fn launch_graph(&self, graph: Graph, stream: Stream) -> Answer {
        call!(self, cuGraphLaunch(graph.0, stream.0))
    }
}
