//! PyTorch's hooks: the functions of a pluggable allocator besides malloc and free.
//!
//! `torch.cuda.memory.CUDAPluggableAllocator` takes eight more functions, each optional and each of
//! a C++ type. They are exported here with those types as C sees them, so that PyTorch can take
//! their addresses. No C++ is compiled in, and nothing of PyTorch is linked.
//!
//! | file | what it does |
//! |---|---|
//! | `hooks` | initialisation, cache, limits, the base of an allocation, other streams |
//! | `history` | the history that `torch.cuda.memory._snapshot` shows |
//! | `pools` | private pools: begin, end, release |
//! | `pool_functions` | functions that allocate from one private pool each |
//! | `pinned` | PyTorch's pinned memory |
//! | `adoption` | live blocks that PyTorch did not ask for |
//! | `streams` | which streams are PyTorch's own |
//! | `report` | what PyTorch's profilers, trace callbacks and observers want to know |
//! | `std_function` | `std::function` as libstdc++ lays it out |
//! | `catching` | calls of C++ code that may throw |
//! | `failure` | how a failed request ends for its caller |
//! | `exception` | PyTorch's own exceptions, made and thrown |
//!
//! A hook that returns nothing reports a failure as the thread's last error and to the log. If
//! PyTorch would otherwise use memory that it did not get, it gets an exception.

pub mod adoption;
#[cfg(std_function_known)]
mod catching;
mod exception;
mod failure;
pub mod history;
pub mod hooks;
#[cfg(std_function_known)]
pub mod pinned;
pub mod pool_functions;
#[cfg(std_function_known)]
pub mod pools;
pub mod report;
#[cfg(std_function_known)]
mod std_function;
#[cfg(std_function_known)]
mod streams;

pub(super) use failure::{fail, fail_allocation};

use super::boundary;
use crate::base::{DeviceOrdinal, Result, Status, StreamHandle};
use crate::config::LogLevel;
use crate::heap::{Heap, Stream};
use crate::instance;

/// The stream that `handle` means in a request of PyTorch's, whose own streams last as long as the process.
#[inline]
fn identify(heap: &Heap, device: DeviceOrdinal, handle: StreamHandle) -> Result<Stream> {
    #[cfg(std_function_known)]
    if !handle.is_default() {
        streams::tell(heap);
    }
    heap.identify_lasting(device, handle)
}

/// Runs the body of the hook `name`, which has no way to return an error.
fn hook(name: &str, body: impl FnOnce() -> Result<()>) {
    let Err(error) = boundary::call(body) else {
        return;
    };
    // In a forked child the log's lock may be held for ever.
    if error.status != Status::ForkedChild {
        let _ = boundary::call(|| {
            instance::log().write(LogLevel::Error, &format_args!("{name}: {error}"));
            Ok(())
        });
    }
}
