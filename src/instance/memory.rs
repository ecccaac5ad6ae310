//! The process's memory as sources of arenas, fixed-size pools and tiers.

use super::host;
use crate::base::{DeviceOrdinal, Result, StreamHandle};
use crate::config::HostKind;
use crate::suballocation::Source;

/// Memory of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// Of a device, for use on one stream.
    Device {
        /// The device.
        device: DeviceOrdinal,
        /// The stream.
        stream: StreamHandle,
    },
    /// Of the host.
    Host(HostKind),
}

impl Source for Memory {
    fn acquire(&self, bytes: u64) -> Result<u64> {
        match *self {
            Self::Device { device, stream } => super::heap()?.allocate(bytes, device, stream),
            Self::Host(kind) => host::allocate(bytes, kind),
        }
    }

    fn give_back(&self, address: u64) {
        // A heap keeps what the driver does not take back, and offers it again.
        let _ = match self {
            Self::Device { .. } => super::heap().and_then(|heap| heap.free(address)),
            Self::Host(_) => host::of_block(address, |heap, address| heap.free(address)),
        };
    }

    fn stream(&self) -> Option<StreamHandle> {
        match *self {
            Self::Device { stream, .. } => Some(stream),
            Self::Host(_) => None,
        }
    }

    fn order(&self, stream: StreamHandle, other: StreamHandle) -> Result<()> {
        match *self {
            Self::Device { device, .. } => super::heap()?.make_stream_wait(device, stream, other),
            Self::Host(_) => Ok(()),
        }
    }

    fn record(&self, address: u64, stream: StreamHandle) -> Result<()> {
        match self {
            Self::Device { .. } => super::heap()?.record_stream(address, stream),
            Self::Host(_) => host::record_stream(address, stream),
        }
    }

    fn is_debugging(&self) -> bool {
        let heap = match *self {
            Self::Device { .. } => super::heap(),
            Self::Host(kind) => host::heap(kind),
        };
        heap.is_ok_and(|heap| heap.is_debugging())
    }
}
