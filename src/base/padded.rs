//! Values on cache lines of their own.

use std::ops::Deref;

/// A `T` that shares no cache line with its neighbours, so that whoever writes the one does not
/// slow down who reads the other. Processors fetch two lines of 64 bytes together.
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
