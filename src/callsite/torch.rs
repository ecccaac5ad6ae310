//! Whether PyTorch made the current call.
//!
//! The stack is walked from here to the first frame outside of this library. A frame is PyTorch's
//! if it is in one of the libraries from which PyTorch calls a pluggable allocator:
//!
//! ```text
//! genesis_malloc ← [std::function, libtorch_python] ← CUDAPluggableAllocator, libtorch_cuda
//!                  ← … an operator …                      a tensor wants memory: throw
//!                  ← CUDACachingAllocator, libc10_cuda    a segment for a MemPool: NULL
//! ```
//!
//! PyTorch's own caching allocator requests segments if Genesis is behind a `torch.cuda.MemPool`.
//! It takes NULL for a shortage, frees what its pool has cached and tries again; an exception would
//! prevent that. Every other caller of the same symbol is a C caller, also one deep within an
//! operator of PyTorch.
//!
//! This takes microseconds and the loader's lock, so it is for failing requests and new stacks.

use std::ffi::{c_int, c_void};

use crate::process::Object;

/// PyTorch's libraries that call a pluggable allocator. Older versions have `libtorch_cuda` in two
/// parts.
const CALLING: [&[u8]; 4] =
    [b"libtorch_cuda.so", b"libtorch_python.so", b"libtorch_cuda_cu.so", b"libtorch_cuda_cpp.so"];
/// The library of PyTorch's caching allocator.
const CACHING: &[u8] = b"libc10_cuda.so";
/// A walk through this many frames of PyTorch is in an operator.
const MOST_FRAMES: usize = 64;

/// Who made the current call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// PyTorch, for a tensor or a workspace, with code in this object.
    Torch(Object),
    /// PyTorch's caching allocator, for a segment, through code in this object.
    TorchCache(Object),
    /// Any other program.
    Other,
}

/// The walk so far.
struct Walk {
    own: Object,
    first: Option<Object>,
    is_cache: bool,
    frames: usize,
}

impl Caller {
    /// Finds who called into this library.
    pub(crate) fn find() -> Self {
        let Some(own) = Object::containing(Self::find as fn() -> Self as usize) else {
            return Self::Other;
        };
        let mut walk = Walk { own, first: None, is_cache: false, frames: 0 };
        // SAFETY: `visit` gets back the pointer it expects, during this call only.
        unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
        match walk.first {
            Some(object) if walk.is_cache => Self::TorchCache(object),
            Some(object) => Self::Torch(object),
            None => Self::Other,
        }
    }
}

/// Returns true if PyTorch's caching allocator made the call, holding a lock of its own.
pub(super) fn is_called_by_its_cache() -> bool {
    matches!(Caller::find(), Caller::TorchCache(_))
}

impl Walk {
    /// Visits the frame with the code at `address`; returns true to continue.
    fn step(&mut self, address: usize) -> bool {
        let Some(object) = Object::containing(address) else {
            return false;
        };
        if self.first.is_none() && object.is(self.own) {
            return true;
        }
        self.is_cache = self.first.is_some() && object.file_name() == CACHING;
        if !CALLING.contains(&object.file_name()) {
            return false;
        }
        self.first.get_or_insert(object);
        self.frames += 1;
        self.frames < MOST_FRAMES
    }
}

const GO_ON: c_int = 0;
/// Any other number ends the walk.
const STOP: c_int = 5;

extern "C" fn visit(context: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `find` passed, to a value that it does not use meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the context of this frame, as the unwinder passed it.
    let return_address = unsafe { _Unwind_GetIP(context) };
    // The call is before its return address, which may belong to another function.
    if walk.step(return_address.wrapping_sub(1)) { GO_ON } else { STOP }
}

unsafe extern "C" {
    /// Calls `visit` for each frame, innermost first, until it returns a value other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    /// The address of the frame's next instruction.
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}
