//! Identifiers that callers and drivers hand to the library.

use std::fmt;

/// A device as CUDA counts them: 0 is the first device visible to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceOrdinal(pub u32);

impl DeviceOrdinal {
    /// The ordinal as an index into a table of devices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DeviceOrdinal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A `cudaStream_t` as the caller passed it: opaque, comparable, never dereferenced.
///
/// The handle may only be passed to the driver inside the call that passed it in: the caller may
/// destroy the stream the moment that call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamHandle(pub usize);

impl StreamHandle {
    /// The legacy default stream: what a null handle means to plain driver symbols.
    pub const LEGACY: Self = Self(0);
    /// `CU_STREAM_LEGACY`: another name for [`Self::LEGACY`].
    pub const LEGACY_ALIAS: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`: a different queue in each thread.
    pub const PER_THREAD: Self = Self(2);

    /// Returns true if it names a default stream; no created stream has such a handle.
    pub const fn is_default(self) -> bool {
        self.0 <= Self::PER_THREAD.0
    }
}
