//! Result codes, with CUDA's numbers.

use std::fmt;

/// A driver's result code. A number and not an enumeration, so that a fault script can return
/// codes that no driver has yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

/// The result of a call of the simulated driver. An error changed nothing.
pub type Result<T> = std::result::Result<T, Code>;

impl Code {
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`: physical memory, address space or pinned host memory.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub const INVALID_DEVICE: Self = Self(101);
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// `CUDA_ERROR_MAP_FAILED`.
    pub const MAP_FAILED: Self = Self(205);
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub const INVALID_HANDLE: Self = Self(400);
    /// `CUDA_ERROR_ILLEGAL_STATE`.
    pub const ILLEGAL_STATE: Self = Self(401);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`: a wait that can never finish, because a stream is held.
    pub const LAUNCH_TIMEOUT: Self = Self(702);
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    /// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    /// `CUDA_ERROR_NOT_PERMITTED`.
    pub const NOT_PERMITTED: Self = Self(800);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
    pub const STREAM_CAPTURE_INVALIDATED: Self = Self(901);
    /// `CUDA_ERROR_STREAM_CAPTURE_MERGE`: two captures would become one.
    pub const STREAM_CAPTURE_MERGE: Self = Self(902);
    /// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`: the capture did not begin in this stream.
    pub const STREAM_CAPTURE_UNMATCHED: Self = Self(903);
    /// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`: a captured stream waits on work outside.
    pub const STREAM_CAPTURE_ISOLATION: Self = Self(905);
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: the legacy stream would wait on a capture.
    pub const STREAM_CAPTURE_IMPLICIT: Self = Self(906);
    /// `CUDA_ERROR_CAPTURED_EVENT`: the event was recorded into a capture.
    pub const CAPTURED_EVENT: Self = Self(907);
    /// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`.
    pub const STREAM_CAPTURE_WRONG_THREAD: Self = Self(908);

    /// The code's name without `CUDA_ERROR_`, or the empty string.
    pub const fn name(self) -> &'static str {
        match self {
            Self::INVALID_VALUE => "INVALID_VALUE",
            Self::OUT_OF_MEMORY => "OUT_OF_MEMORY",
            Self::INVALID_DEVICE => "INVALID_DEVICE",
            Self::INVALID_CONTEXT => "INVALID_CONTEXT",
            Self::MAP_FAILED => "MAP_FAILED",
            Self::PEER_ACCESS_UNSUPPORTED => "PEER_ACCESS_UNSUPPORTED",
            Self::INVALID_HANDLE => "INVALID_HANDLE",
            Self::ILLEGAL_STATE => "ILLEGAL_STATE",
            Self::NOT_READY => "NOT_READY",
            Self::LAUNCH_TIMEOUT => "LAUNCH_TIMEOUT",
            Self::PEER_ACCESS_ALREADY_ENABLED => "PEER_ACCESS_ALREADY_ENABLED",
            Self::CONTEXT_IS_DESTROYED => "CONTEXT_IS_DESTROYED",
            Self::HOST_MEMORY_ALREADY_REGISTERED => "HOST_MEMORY_ALREADY_REGISTERED",
            Self::HOST_MEMORY_NOT_REGISTERED => "HOST_MEMORY_NOT_REGISTERED",
            Self::NOT_PERMITTED => "NOT_PERMITTED",
            Self::NOT_SUPPORTED => "NOT_SUPPORTED",
            Self::STREAM_CAPTURE_UNSUPPORTED => "STREAM_CAPTURE_UNSUPPORTED",
            Self::STREAM_CAPTURE_INVALIDATED => "STREAM_CAPTURE_INVALIDATED",
            Self::STREAM_CAPTURE_MERGE => "STREAM_CAPTURE_MERGE",
            Self::STREAM_CAPTURE_UNMATCHED => "STREAM_CAPTURE_UNMATCHED",
            Self::STREAM_CAPTURE_ISOLATION => "STREAM_CAPTURE_ISOLATION",
            Self::STREAM_CAPTURE_IMPLICIT => "STREAM_CAPTURE_IMPLICIT",
            Self::CAPTURED_EVENT => "CAPTURED_EVENT",
            Self::STREAM_CAPTURE_WRONG_THREAD => "STREAM_CAPTURE_WRONG_THREAD",
            _ => "",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => write!(formatter, "code {}", self.0),
            name => write!(formatter, "code {} ({name})", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Code {}
