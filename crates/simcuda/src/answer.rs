//! What a call returns, and how it stores its outputs.

use simgpu::Code;

/// The result of a call.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// Stores an output of a call. A null pointer is an invalid value.
///
/// # Safety
/// `pointer` is null or what the caller of CUDA's function passed for an output of type `T`.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Answer {
    if pointer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a place for a `T`; it need not be aligned or initialised.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// [`put`] for an optional output.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: as in `put`.
        unsafe { pointer.write_unaligned(value) };
    }
}
