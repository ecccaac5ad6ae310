//! Which queue a stream handle means.
use crate::base::{StreamHandle, thread};

/// A queue of one device: what lanes are kept by.
///
/// Two handles that name the same queue have the same key; the per-thread default stream,
/// one handle for many queues, has a key for each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(pub u64);

/// Device and host addresses have fewer bits, so no handle has this one.
const PER_THREAD_BIT: u64 = 1 << 63;

impl StreamKey {
    /// The queue that `handle` means in the calling thread.
    #[inline]
    pub fn of(handle: StreamHandle) -> Self {
        match handle {
            StreamHandle::LEGACY | StreamHandle::LEGACY_ALIAS => Self(0),
            StreamHandle::PER_THREAD => Self(PER_THREAD_BIT | thread::number()),
            StreamHandle(handle) => Self(handle as u64),
        }
    }
}

impl StreamKey {
    /// A handle of the queue, to show to people: never to be given to a driver.
    pub fn handle(self) -> StreamHandle {
        match self.0 & PER_THREAD_BIT {
            0 => StreamHandle(self.0 as usize),
            _ => StreamHandle::PER_THREAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_exactly_where_queues_are() {
        assert_eq!(StreamKey::of(StreamHandle(0)), StreamKey::of(StreamHandle(1)));
        assert_ne!(StreamKey::of(StreamHandle(0)), StreamKey::of(StreamHandle(2)));
        assert_eq!(StreamKey::of(StreamHandle(0x5000)), StreamKey(0x5000));
        let mine = StreamKey::of(StreamHandle::PER_THREAD);
        assert_eq!(mine, StreamKey::of(StreamHandle::PER_THREAD));
        let other = std::thread::spawn(|| StreamKey::of(StreamHandle::PER_THREAD)).join().unwrap();
        assert_ne!(mine, other);
    }
}
