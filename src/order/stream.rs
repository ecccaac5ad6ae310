//! Which queue a call means.
//!
//! The handle alone does not tell: the driver reuses the handle of a destroyed stream for the next
//! one, at once, even while the old one's work is outstanding. So lanes, pending blocks and
//! recorded streams are kept by a [`StreamKey`], which is never reused for another queue:
//!
//! | the stream | its key |
//! |---|---|
//! | any | the driver's number for it (`cuStreamGetId`), which is never reused |
//! | lasts, as PyTorch's do, or its end will be announced | the handle |
//! | a default stream | its context, and the thread for the one of each thread |
//!
//! A stream may be known by its number and by its handle when several kinds of callers name it.
//! Two keys for one queue are safe; only less is reused.
//!
//! People are shown a [`StreamName`]: the handle as it was passed.

use crate::base::{StreamHandle, thread};

/// A queue: what lanes are kept by. The key of a default stream contains its context, unless that
/// is the own context of the lane's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(pub u64);

/// A queue as people know it. Two handles of one queue have one name. The handle of each thread's
/// default stream means many queues, and each has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamName(pub u64);

/// A stream as a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// May be passed to the driver, in this call only.
    pub handle: StreamHandle,
    /// Which queue it is.
    pub key: StreamKey,
}

// The kinds of keys. Handles are addresses, which have fewer bits.
const PER_THREAD_BIT: u64 = 1 << 63;
const NUMBER_BIT: u64 = 1 << 62;
const ENDED_BIT: u64 = 1 << 61;
const COMING_BIT: u64 = 1 << 60;
/// Where the key of a default stream holds the number of its context.
const CONTEXT_SHIFT: u32 = 48;

impl StreamKey {
    /// The host itself, in whose order host memory is used. No handle names it.
    pub const HOST: Self = Self(ENDED_BIT | COMING_BIT);

    /// The key of a stream that lasts, or whose end will be announced.
    #[inline]
    pub fn of_lasting(handle: StreamHandle) -> Self {
        Self(StreamName::of(handle).0)
    }

    /// The key of the stream with the driver's `number`.
    #[inline]
    pub fn of_number(number: u64) -> Self {
        Self(NUMBER_BIT | number)
    }

    /// The key of the default stream `handle` in the context of that number; 0: the own one.
    pub fn of_default(handle: StreamHandle, context: u16) -> Self {
        Self(StreamName::of(handle).0 | u64::from(context) << CONTEXT_SHIFT)
    }

    /// The key of a stream that has ended, the one after `number` others.
    pub fn of_ended(number: u64) -> Self {
        Self(ENDED_BIT | number)
    }

    /// The key of a stream that has not come yet, the one after `number` others.
    pub fn of_coming(number: u64) -> Self {
        Self(COMING_BIT | number)
    }

    /// Returns true if the stream has not come yet: nothing was ever queued on it.
    pub fn is_coming(self) -> bool {
        self.0 & (PER_THREAD_BIT | NUMBER_BIT | ENDED_BIT | COMING_BIT) == COMING_BIT
    }

    /// The handle of a stream that its caller takes to last, or whose end will be announced. `None` for
    /// all other keys. PyTorch takes all of its streams to last, also those that others made and destroy.
    pub fn lasting_handle(self) -> Option<StreamHandle> {
        (self.0 >> CONTEXT_SHIFT == 0).then_some(StreamHandle(self.0 as usize))
    }

    /// Returns true if the calling thread can name the queue by `handle`. It cannot name the
    /// default stream of another thread, nor a stream that has ended or has not come.
    pub fn is_nameable(self, handle: StreamHandle) -> bool {
        match handle {
            StreamHandle::PER_THREAD => {
                self.0 & !(0x7FFF << CONTEXT_SHIFT) == StreamName::of(handle).0
            }
            _ => self.0 & ENDED_BIT == 0 && !self.is_coming(),
        }
    }
}

impl StreamName {
    /// The name of the queue that `handle` means in the calling thread.
    #[inline]
    pub fn of(handle: StreamHandle) -> Self {
        match handle {
            StreamHandle::LEGACY | StreamHandle::LEGACY_ALIAS => Self(0),
            StreamHandle::PER_THREAD => Self::of_thread(),
            StreamHandle(handle) => Self(handle as u64),
        }
    }

    /// The name of the calling thread's default stream.
    #[cold]
    #[inline(never)]
    fn of_thread() -> Self {
        Self(PER_THREAD_BIT | thread::number())
    }

    /// A handle of the queue to show to people; never to be passed to a driver.
    pub fn handle(self) -> StreamHandle {
        match self.0 & PER_THREAD_BIT {
            0 => StreamHandle(self.0 as usize),
            _ => StreamHandle::PER_THREAD,
        }
    }
}

impl Stream {
    /// A stream that lasts as long as the process, or whose end will be announced.
    #[inline]
    pub fn lasting(handle: StreamHandle) -> Self {
        Self { handle, key: StreamKey::of_lasting(handle) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_exactly_where_queues_are() {
        let lasting = |handle| StreamKey::of_lasting(StreamHandle(handle));
        assert_eq!(lasting(0), lasting(1));
        assert_ne!(lasting(0), lasting(2));
        assert_eq!(lasting(0x5000), StreamKey(0x5000));
        assert_ne!(lasting(0x5000), StreamKey::of_number(0x5000));
        assert_eq!(lasting(0x5000).lasting_handle(), Some(StreamHandle(0x5000)));
        assert_eq!(StreamKey::of_number(0x5000).lasting_handle(), None);
        assert_eq!(StreamKey::of_ended(0x5000).lasting_handle(), None);
        let coming = StreamKey::of_coming(0);
        assert!(coming.is_coming() && coming.lasting_handle().is_none());
        assert!(!coming.is_nameable(StreamHandle::LEGACY));
        assert!(![lasting(0), StreamKey::of_number(COMING_BIT)].iter().any(|key| key.is_coming()));
        assert_ne!(StreamKey::of_ended(0), StreamKey::of_number(0));
        let host = StreamKey::HOST;
        assert!(!host.is_coming() && host.lasting_handle().is_none());
        assert!(!host.is_nameable(StreamHandle::LEGACY));
        assert!(!host.is_nameable(StreamHandle::PER_THREAD));
        let mine = StreamKey::of_lasting(StreamHandle::PER_THREAD);
        assert_eq!(mine, StreamKey::of_lasting(StreamHandle::PER_THREAD));
        let other = std::thread::spawn(|| StreamKey::of_lasting(StreamHandle::PER_THREAD));
        let other = other.join().unwrap();
        assert_ne!(mine, other);
        assert!(mine.is_nameable(StreamHandle::PER_THREAD));
        assert!(!other.is_nameable(StreamHandle::PER_THREAD));
        assert_eq!(mine.lasting_handle(), None);
    }

    #[test]
    fn default_streams_of_two_contexts_are_two() {
        for handle in [StreamHandle::LEGACY, StreamHandle::PER_THREAD] {
            let own = StreamKey::of_default(handle, 0);
            assert_eq!(own, StreamKey::of_lasting(handle));
            assert_ne!(own, StreamKey::of_default(handle, 1));
            assert!(StreamKey::of_default(handle, 1).is_nameable(handle));
        }
    }
}
