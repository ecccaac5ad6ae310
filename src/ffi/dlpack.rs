//! Memory as DLPack tensors.
//!
//! A buffer is one block, of a device, of the host or imported, or a part of an arena, a fixed-size pool or a
//! memory manager, with a count of its users: its maker and each tensor made of it. The last user
//! frees it. A tensor ends in its deleter, a function of this library that any thread
//! may call without an interpreter. The destructor of the capsules in which Python passes tensors
//! is one too, because it may run while the interpreter is being destroyed.
//!
//! Tensors are compact and in the order of C, as `DLManagedTensor` or as `DLManagedTensorVersioned`
//! of DLPack 1. Layouts are those of `dlpack.h`. A tensor has no stream: `genesis_stream_wait`
//! makes streams wait for each other, and `genesis_block_record_stream` records on which one a
//! block was used.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::Arc;

use super::objects::object;
use super::sharing::{BlockHandle, Imported, import};
use super::{boundary, genesis_stream, ordinal, pointer, stream_handle, write_required};
use crate::base::lock::{Lock, rank};
use crate::base::{Error, Result, Status, StreamHandle};
use crate::driver::Backend;
use crate::instance::memory::Memory;
use crate::instance::{self, host};
use crate::suballocation::Source;

/// `kDLCPU` and `kDLCUDA`.
const HOST: i32 = 1;
const CUDA: i32 = 2;
/// The version of DLPack whose `DLManagedTensorVersioned` this is.
const VERSION: [u32; 2] = [1, 0];
/// More dimensions than any library knows.
const MOST_DIMENSIONS: usize = 64;

/// Memory that its maker and DLPack tensors share.
#[derive(Debug)]
pub struct DlpackBuffer {
    address: u64,
    bytes: u64,
    device: c_int,
    owner: Owner,
}

/// What the memory is a part of.
#[derive(Debug)]
enum Owner {
    /// A block of the heap.
    Heap,
    /// A block of host memory.
    Host,
    /// A block of another process.
    Imported,
    Part {
        memory: Memory,
        part: Option<Box<dyn Part>>,
        /// The streams that were recorded.
        users: Lock<Vec<StreamHandle>, { rank::LEAF }>,
    },
}

/// Memory of an object, for a buffer, which frees it once, in any thread. Keeps the object.
pub(super) trait Part: std::fmt::Debug + Send + Sync {
    /// Frees the memory at `address`.
    fn free(&self, address: u64) -> Result<()>;
}

impl DlpackBuffer {
    /// A buffer of memory that is a part of something.
    pub(super) fn of_part(
        address: u64,
        bytes: u64,
        memory: Memory,
        part: Box<dyn Part>,
    ) -> *mut Self {
        let device = match memory {
            Memory::Device { device, .. } => device.0 as c_int,
            Memory::Host(_) => 0,
        };
        let (part, users) = (Some(part), Lock::default());
        let owner = Owner::Part { memory, part, users };
        Self { address, bytes, device, owner }.hand_out()
    }

    /// A buffer of a block of host memory.
    pub(super) fn of_host(address: u64, bytes: u64) -> *mut Self {
        Self { address, bytes, device: 0, owner: Owner::Host }.hand_out()
    }

    fn hand_out(self) -> *mut Self {
        Arc::into_raw(Arc::new(self)).cast_mut()
    }

    /// `DLDevice`: type and ordinal. Memory that the host can reach is the host's.
    fn place(&self) -> (i32, i32) {
        let is_hosts =
            matches!(self.owner, Owner::Host | Owner::Part { memory: Memory::Host(_), .. });
        if is_hosts || is_on_host() { (HOST, 0) } else { (CUDA, self.device) }
    }

    fn free(&mut self) -> Result<()> {
        match &mut self.owner {
            _ if self.address == 0 => Ok(()),
            Owner::Imported => instance::sharing::close(self.address),
            Owner::Heap => instance::heap()?.free(self.address),
            Owner::Host => host::of_block(self.address, |heap, address| heap.free(address)),
            Owner::Part { memory, part, users } => {
                let users = std::mem::take(&mut *users.lock());
                let ordered = memory.stream().map_or(Ok(()), |own| {
                    users.iter().try_for_each(|&user| memory.order(own, user))
                });
                match part.take() {
                    Some(part) if ordered.is_ok() => part.free(self.address),
                    // Work may still use it, for all that is known: it is never reused.
                    part => {
                        std::mem::forget(part);
                        ordered
                    }
                }
            }
        }
    }
}

impl Drop for DlpackBuffer {
    fn drop(&mut self) {
        let _ = boundary::call(|| self.free());
    }
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device: i32,
    dimensions: i32,
    element: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Managed),
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Versioned),
    flags: u64,
    tensor: Tensor,
}

/// A tensor and what it points to. The consumer holds the address of `managed`, the first member.
#[repr(C)]
struct Export<M> {
    managed: M,
    _shape: Box<[i64]>,
    _strides: Box<[i64]>,
    _buffer: Arc<DlpackBuffer>,
}

impl<M> Export<M> {
    /// Returns the address of `managed` for a consumer; [`Self::take_back`] ends it.
    fn hand_out(
        buffer: Arc<DlpackBuffer>,
        element: DataType,
        mut shape: Box<[i64]>,
        managed: impl FnOnce(Tensor) -> M,
    ) -> *mut c_void {
        let mut strides = strides_of(&shape);
        let (device_type, device) = buffer.place();
        let tensor = Tensor {
            data: pointer(buffer.address),
            device_type,
            device,
            dimensions: shape.len() as i32,
            element,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        // The slices keep their addresses when their boxes move.
        let managed = managed(tensor);
        let export = Self { managed, _shape: shape, _strides: strides, _buffer: buffer };
        Box::into_raw(Box::new(export)).cast()
    }

    /// Ends a tensor.
    ///
    /// # Safety
    /// `managed` is NULL or came from [`Self::hand_out`] and was not taken back.
    unsafe fn take_back(managed: *mut M) {
        if managed.is_null() {
            return;
        }
        let _ = boundary::call(|| {
            // SAFETY: it is the first member of a boxed `Self` by the caller's contract.
            drop(unsafe { Box::from_raw(managed.cast::<Self>()) });
            Ok(())
        });
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: DLPack's contract: the consumer calls the deleter of a tensor it was given, once.
    unsafe { Export::take_back(managed) }
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as above.
    unsafe { Export::take_back(managed) }
}

fn is_on_host() -> bool {
    instance::heap().is_ok_and(|heap| heap.backend() == Backend::Host)
}

/// Steps between elements, of a compact tensor in the order of C.
fn strides_of(shape: &[i64]) -> Box<[i64]> {
    let mut strides = vec![1i64; shape.len()];
    for index in (1..shape.len()).rev() {
        strides[index - 1] = strides[index].saturating_mul(shape[index].max(1));
    }
    strides.into_boxed_slice()
}

/// The size of a tensor, in bytes; `None` if these are not a type and a shape.
fn bytes_of(element: DataType, shape: &[i64]) -> Option<u64> {
    let element_bits = u64::from(element.bits).checked_mul(u64::from(element.lanes))?;
    if element_bits == 0 {
        return None;
    }
    let dimensions = shape.iter().map(|&extent| u64::try_from(extent).ok());
    let elements = dimensions.collect::<Option<Vec<_>>>()?;
    if elements.contains(&0) {
        return Some(0);
    }
    let bits = elements.into_iter().try_fold(element_bits, u64::checked_mul)?;
    Some(bits.div_ceil(8))
}

/// Allocates `size` bytes on `device` for use on `stream`, and writes a buffer that shares them
/// with DLPack tensors to `buffer`.
///
/// # Safety
/// `buffer` is NULL, which is an error, or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_buffer_create(
    size: usize,
    device: c_int,
    stream: genesis_stream,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        let heap = instance::heap()?;
        let bytes = size as u64;
        let address = match bytes {
            0 => 0,
            _ => heap.allocate(bytes, ordinal(device)?, stream_handle(stream))?,
        };
        Ok(DlpackBuffer { address, bytes, device, owner: Owner::Heap }.hand_out())
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}

/// `genesis_block_import`, as a buffer: its last user closes the block.
///
/// # Safety
/// `handle` is NULL, which is an error, or points to a handle; `buffer` is NULL, which is an error,
/// or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_buffer_import(
    handle: *const BlockHandle,
    device: c_int,
    buffer: *mut *mut DlpackBuffer,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let Imported { address, bytes, device } = unsafe { import(handle, device) }?;
        Ok(DlpackBuffer { address, bytes, device, owner: Owner::Imported }.hand_out())
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(buffer, create) })
}

/// Returns the address of the memory of `buffer`; NULL for NULL and for a buffer of 0 bytes.
///
/// # Safety
/// `buffer` is NULL or a buffer that was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_buffer_data_get(
    buffer: *const DlpackBuffer,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { buffer.as_ref() }.map_or(null_mut(), |buffer| pointer(buffer.address))
}

/// Records that work on `stream` uses the memory of `buffer`, which is then not reused before that
/// work is complete. The stream must exist until the memory is freed. Does nothing for pageable
/// memory, and for a part of host memory.
///
/// # Safety
/// `buffer` is NULL, which is an error, or a buffer that was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_buffer_record_stream(
    buffer: *const DlpackBuffer,
    stream: genesis_stream,
) -> Status {
    let stream = stream_handle(stream);
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let buffer = unsafe { object(buffer) }?;
        match &buffer.owner {
            _ if buffer.address == 0 => Ok(()),
            Owner::Part { memory: Memory::Host(_), .. } => Ok(()),
            Owner::Host => host::record_stream(buffer.address, stream),
            Owner::Part { users, .. } => {
                let mut users = users.lock();
                if !users.contains(&stream) {
                    users.push(stream);
                }
                Ok(())
            }
            Owner::Heap | Owner::Imported => {
                instance::heap()?.record_stream(buffer.address, stream)
            }
        }
    })
}

/// Ends the maker's use of `buffer`, which may be NULL. The memory is freed when all tensors made
/// of it have ended too.
///
/// # Safety
/// `buffer` is NULL or a buffer that was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_buffer_release(buffer: *mut DlpackBuffer) {
    if buffer.is_null() {
        return;
    }
    let _ = boundary::call(|| {
        // SAFETY: it came from `Arc::into_raw`, and ends once, by the caller's contract.
        drop(unsafe { Arc::from_raw(buffer.cast_const()) });
        Ok(())
    });
}

/// Makes a tensor in the memory of `buffer`, compact and in the order of C, with `dimensions`
/// dimensions and elements of the `DLDataType` `code`, `bits`, `lanes`. Writes its address to
/// `tensor`: a `DLManagedTensor`, or a `DLManagedTensorVersioned` if `versioned` is not 0. Its
/// receiver calls its deleter, once.
///
/// # Safety
/// `buffer` is NULL, which is an error, or a buffer that was not released; `shape` points to
/// `dimensions` numbers, and may be NULL for none; `tensor` is NULL, which is an error, or points
/// to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_tensor_create(
    buffer: *mut DlpackBuffer,
    code: u8,
    bits: u8,
    lanes: u16,
    dimensions: c_int,
    shape: *const i64,
    versioned: c_int,
    tensor: *mut *mut c_void,
) -> Status {
    let create = || {
        // SAFETY: the caller's contract.
        let (buffer, shape) = unsafe { (shared(buffer)?, shape_of(shape, dimensions)?) };
        let element = DataType { code, bits, lanes };
        let fits = bytes_of(element, &shape).is_some_and(|bytes| bytes <= buffer.bytes);
        if !fits {
            let bytes = buffer.bytes;
            let line = format!("{shape:?} of {bits} bits × {lanes} is no shape of {bytes} bytes");
            return Err(Error::invalid_argument(line));
        }
        let context = null_mut();
        Ok(if versioned == 0 {
            let deleter = delete;
            let managed = |tensor| Managed { tensor, context, deleter };
            Export::hand_out(buffer, element, shape, managed)
        } else {
            let (version, deleter) = (VERSION, delete_versioned);
            let managed = |tensor| Versioned { version, context, deleter, flags: 0, tensor };
            Export::hand_out(buffer, element, shape, managed)
        })
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(tensor, create) })
}

/// The destructor for a Python capsule with a tensor made here, under DLPack's name for it. It
/// deletes a tensor that no consumer took; a consumer that took it has renamed the capsule.
///
/// # Safety
/// Python calls it with the capsule that is being destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_dlpack_capsule_destroy(capsule: *mut c_void) {
    // SAFETY: the caller's contract; each name stands for its type of tensor.
    unsafe {
        Export::<Managed>::take_back(held(capsule, c"dltensor").cast());
        Export::<Versioned>::take_back(held(capsule, c"dltensor_versioned").cast());
    }
}

/// The pointer in a capsule of this name; NULL if it has another name.
///
/// # Safety
/// `capsule` is a capsule of a Python whose lock the caller holds.
unsafe fn held(capsule: *mut c_void, name: &CStr) -> *mut c_void {
    type IsValid = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;
    type GetPointer = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the names are strings, and Python's functions of these names have these types. The
    // second may be called if the first returns true.
    unsafe {
        let is_valid = libc::dlsym(libc::RTLD_DEFAULT, c"PyCapsule_IsValid".as_ptr());
        let get_pointer = libc::dlsym(libc::RTLD_DEFAULT, c"PyCapsule_GetPointer".as_ptr());
        if is_valid.is_null() || get_pointer.is_null() {
            return null_mut();
        }
        let is_valid = transmute::<*mut c_void, IsValid>(is_valid);
        let get_pointer = transmute::<*mut c_void, GetPointer>(get_pointer);
        if is_valid(capsule, name.as_ptr()) == 0 {
            return null_mut();
        }
        get_pointer(capsule, name.as_ptr())
    }
}

/// Adds a use of a buffer.
///
/// # Safety
/// `buffer` is NULL or a buffer that was not released.
unsafe fn shared(buffer: *mut DlpackBuffer) -> Result<Arc<DlpackBuffer>> {
    if buffer.is_null() {
        return Err(Error::invalid_argument("the buffer is null"));
    }
    // SAFETY: it came from `Arc::into_raw`, and its maker's use has not ended.
    unsafe {
        Arc::increment_strong_count(buffer.cast_const());
        Ok(Arc::from_raw(buffer.cast_const()))
    }
}

/// # Safety
/// `shape` points to `dimensions` numbers, or is NULL.
unsafe fn shape_of(shape: *const i64, dimensions: c_int) -> Result<Box<[i64]>> {
    let count = usize::try_from(dimensions).ok().filter(|&count| count <= MOST_DIMENSIONS);
    match count {
        Some(0) => Ok(Box::default()),
        Some(count) if !shape.is_null() => {
            // SAFETY: not null, and as many numbers by the caller's contract.
            Ok(unsafe { std::slice::from_raw_parts(shape, count) }.into())
        }
        _ => Err(Error::invalid_argument("the shape is null, or has a wrong number of dimensions")),
    }
}

/// Makes work queued on `stream` from now on wait for the work queued on `other` until now; the
/// host does not wait. Both are streams of `device`. Not while `other` is being captured.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_stream_wait(
    device: c_int,
    stream: genesis_stream,
    other: genesis_stream,
) -> Status {
    boundary::status(|| {
        let heap = instance::heap()?;
        heap.make_stream_wait(ordinal(device)?, stream_handle(stream), stream_handle(other))
    })
}
