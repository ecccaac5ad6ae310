//! Captures under way, and the graphs they end as.

use crate::touch::{Access, Rights, Work};

/// Which threads a capture forbids unsafe calls; CUDA's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// All threads.
    #[default]
    Global = 0,
    /// The capturing thread.
    ThreadLocal = 1,
    /// None.
    Relaxed = 2,
}

/// What is known of the capture that a stream takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureInfo {
    /// The capture's number, never reused and never 0.
    pub id: u64,
    /// False once something has invalidated it.
    pub is_valid: bool,
}

/// What a capture recorded: touches, which [`crate::Machine::graph_launch`] enqueues.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) touches: Vec<CapturedTouch>,
}

impl Graph {
    /// How many touches it holds, including those of no bytes.
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
    pub(crate) fn work(&self) -> Work<'_> {
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
    /// The slot of the stream in which it began.
    pub(crate) origin: u32,
    pub(crate) mode: CaptureMode,
    /// The thread that began it.
    pub(crate) thread: u64,
    pub(crate) is_valid: bool,
    pub(crate) graph: Graph,
}
