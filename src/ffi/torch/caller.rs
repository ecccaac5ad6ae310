//! Who called the function that is about to fail.
//!
//! The stack is walked from here up to the first frame outside of this library. A frame belongs
//! to PyTorch when it is in one of the libraries that PyTorch calls a pluggable allocator from:
//!
//! ```text
//! genesis_malloc ← [std::function, libtorch_python] ← CUDAPluggableAllocator, libtorch_cuda
//!                  ← … an operator …                      a tensor wants memory: throw
//!                  ← CUDACachingAllocator, libc10_cuda    a segment for a MemPool: NULL
//! ```
//!
//! PyTorch's own caching allocator, which asks for segments when Genesis is behind a
//! `torch.cuda.MemPool`, takes NULL as a shortage, gives back what the pool has cached and asks
//! again; an exception would take that chance away. Anybody else who calls the same symbol, be
//! it from deep within an operator of PyTorch, is a C caller.
//!
//! This takes microseconds and the loader's lock: for failing paths only.

use std::ffi::{c_int, c_void};

use super::object::Object;

/// Libraries of PyTorch that a pluggable allocator is called from. The older ones had
/// `libtorch_cuda` in two parts.
const CALLING: [&[u8]; 4] =
    [b"libtorch_cuda.so", b"libtorch_python.so", b"libtorch_cuda_cu.so", b"libtorch_cuda_cpp.so"];
/// The library of PyTorch's caching allocator.
const CACHING: &[u8] = b"libc10_cuda.so";
/// More frames of PyTorch than this are an operator.
const MOST_FRAMES: usize = 64;

/// Who called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// PyTorch, for a tensor or a workspace: code of it is in this object.
    Torch(Object),
    /// PyTorch's caching allocator, for a segment, through code in this object.
    TorchCache(Object),
    /// Anybody else.
    Other,
}

/// What the walk has seen so far.
struct Walk {
    own: Object,
    first: Option<Object>,
    is_cache: bool,
    frames: usize,
}

impl Caller {
    /// Who called into this library.
    pub(super) fn find() -> Self {
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

/// Whether PyTorch's caching allocator has called, which holds a lock of its own then.
pub(in crate::ffi) fn is_called_by_its_cache() -> bool {
    matches!(Caller::find(), Caller::TorchCache(_))
}

impl Walk {
    /// Takes in the frame with the code at `address`; says whether to go on.
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
    // SAFETY: the pointer that `find` passed, to a value that nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the context of this frame, as the unwinder passed it.
    let return_address = unsafe { _Unwind_GetIP(context) };
    // The call stands before the address it returns to, which may be another function's.
    if walk.step(return_address.wrapping_sub(1)) { GO_ON } else { STOP }
}

unsafe extern "C" {
    /// Calls the function for each frame, from the innermost, until it returns other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    /// The address that the frame's next instruction is at.
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}
