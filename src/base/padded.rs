//! Values on cache lines of their own.

use std::ops::Deref;

/// A `T` that shares no cache line with its neighbours, so writes to one do not slow down reads of
/// another. The alignment is two lines of 64 bytes because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
