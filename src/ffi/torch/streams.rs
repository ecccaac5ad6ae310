//! Which streams are PyTorch's own: it takes them from a pool and never destroys them. Streams that others
//! made, and gave to PyTorch (`torch.cuda.ExternalStream`, `c10::cuda::getStreamFromExternal`), end.
//!
//! A hook gets the handle of the calling thread's current stream. PyTorch's number for that stream tells
//! the two apart: for a stream of others it is the handle itself, for one of its own it is not. PyTorch's
//! functions are found by name. Where one is missing, all streams count as those of others.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::{NonNull, from_ref};

use once_cell::sync::OnceCell;

use super::catching;
use super::report::C10Device;
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::callsite::Caller;
use crate::heap::Heap;
use crate::process::Scope;

/// `c10::cuda::CUDAStream`, which is returned in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct CudaStream {
    device: C10Device,
    /// PyTorch's number of the stream.
    number: i64,
}

/// `c10::cuda::getCurrentCUDAStream` of a device, for the calling thread.
type Current = unsafe extern "C-unwind" fn(i8) -> CudaStream;
/// `c10::cuda::CUDAStream::stream`, the handle.
type Handle = unsafe extern "C-unwind" fn(*const CudaStream) -> *mut c_void;

/// PyTorch's functions for streams.
struct Functions {
    current: Current,
    handle: Handle,
}

static FUNCTIONS: OnceCell<Functions> = OnceCell::new();

impl Functions {
    /// Looks for them again at each new stream until PyTorch itself makes the call: the first may come
    /// through other code, as vLLM's does.
    fn get() -> Option<&'static Self> {
        let find = || match Caller::find() {
            Caller::Torch(object) | Caller::TorchCache(object) => {
                Self::find(&object.scope()).ok_or(())
            }
            Caller::Other => Err(()),
        };
        FUNCTIONS.get_or_try_init(find).ok()
    }

    fn find(scope: &Scope) -> Option<Self> {
        // SAFETY: the mangled names contain the types of the arguments; those of the results have not
        // changed since PyTorch 1.0.
        unsafe {
            Some(Self {
                current: transmute::<NonNull<c_void>, Current>(
                    scope.find(c"_ZN3c104cuda20getCurrentCUDAStreamEa")?,
                ),
                handle: transmute::<NonNull<c_void>, Handle>(
                    scope.find(c"_ZNK3c104cuda10CUDAStream6streamEv")?,
                ),
            })
        }
    }
}

/// Has `heap` ask which streams are PyTorch's own.
#[inline]
pub(super) fn tell(heap: &Heap) {
    heap.ask_which_last(is_own);
}

/// Returns true if `stream` is the calling thread's current one on `device`, and PyTorch's own.
fn is_own(device: DeviceOrdinal, stream: StreamHandle) -> bool {
    let Some(functions) = Functions::get() else { return false };
    let (thrower, handle) = (functions.current as usize, stream.0 as *const c_void);
    let functions = from_ref(functions).cast_mut().cast();
    // SAFETY: the arguments are what the function takes.
    let is_own =
        unsafe { catching::call_around(thrower, is_own_by, functions, handle, device.index()) };
    is_own == Ok(true)
}

/// [`is_own`] by [`Functions`]; what they throw passes through.
unsafe extern "C-unwind" fn is_own_by(
    functions: *mut c_void,
    handle: *const c_void,
    device: usize,
) -> bool {
    let Ok(device) = i8::try_from(device) else { return false };
    // SAFETY: the caller passes functions that were found, and what they take are a number and a stream.
    unsafe {
        let functions = functions.cast_const().cast::<Functions>();
        let stream = ((*functions).current)(device);
        let current = ((*functions).handle)(&raw const stream);
        current.cast_const() == handle && stream.number as usize != handle as usize
    }
}
