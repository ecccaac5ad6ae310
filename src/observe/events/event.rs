//! An event: one thing that happened in a thread.
//!
//! Events name blocks by address and streams by key, which a thread has at hand; consumers look up
//! the rest. An event is packed into six words, so that with its stamp it takes one cache line of
//! the ring:
//!
//! | word | bits | |
//! |---|---|---|
//! | 0 | 64 | time, in ticks of the stream's clock |
//! | 1 | 64 | address |
//! | 2 | 64 | stream |
//! | 3 | 48 | amount: bytes requested, or the iteration's number |
//! | 3 | 8 | device |
//! | 3 | 8 | action |
//! | 4 | 63 | bytes of the block |
//! | 4 | 1 | 1 if the request was a miss |
//! | 5 | 32 | call site |
//! | 5 | 32 | name |

use crate::base::DeviceOrdinal;
use crate::base::size::LARGEST_REQUEST_BYTES;

/// What happened. Fields that an action does not use are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// A request was served: address (0 for a request of 0 bytes), stream, amount, bytes, site.
    Allocate = 1,
    /// A block is about to be freed: its address, which may not be a block's.
    Free = 2,
    /// The block at the address is used on another stream.
    RecordStream = 3,
    /// The cache of a device is about to be emptied on request.
    EmptyCache = 4,
    /// Iteration `amount` of the program ended.
    EndIteration = 5,
    /// The block just freed may still be used by other streams: address, stream, bytes.
    Pending = 6,
    /// A pending block is free: the same.
    Ready = 7,
    /// Physical memory came from the driver: bytes, and its address if it has one.
    Reserve = 8,
    /// Physical memory was returned to the driver: the same.
    Release = 9,
    /// Memory was mapped: address, stream, bytes.
    Map = 10,
    /// Memory was unmapped: the same.
    Unmap = 11,
    /// Cached memory was released for a limit, for its age or for another request: bytes.
    Trim = 12,
    /// A request of `amount` bytes failed because memory is short: stream, site.
    OutOfMemory = 13,
    /// The memory of a tag was returned to the driver: bytes, name.
    Pause = 14,
    /// The memory of a tag was restored: bytes, name.
    Resume = 15,
    /// A range of the program begins: name; the thread's number as the stream.
    RangePush = 16,
    /// The thread's innermost range ends; the thread's number as the stream.
    RangePop = 17,
    /// The program marks a moment: name.
    Mark = 18,
}

impl Action {
    const ALL: [Self; 18] = [
        Self::Allocate,
        Self::Free,
        Self::RecordStream,
        Self::EmptyCache,
        Self::EndIteration,
        Self::Pending,
        Self::Ready,
        Self::Reserve,
        Self::Release,
        Self::Map,
        Self::Unmap,
        Self::Trim,
        Self::OutOfMemory,
        Self::Pause,
        Self::Resume,
        Self::RangePush,
        Self::RangePop,
        Self::Mark,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// On which device.
    pub device: DeviceOrdinal,
    /// When: in the ring, ticks of the stream's clock; for consumers, nanoseconds since a fixed
    /// moment, which never decrease.
    pub time: u64,
    /// The key of the stream, the same for all handles of it.
    pub stream: u64,
    /// The address of the block or memory.
    pub address: u64,
    /// Bytes requested, or the number of an iteration; below 2^48.
    pub amount: u64,
    /// Bytes of the block or memory; below 2^63.
    pub bytes: u64,
    /// Whether an allocation found no free block on its own stream.
    pub is_miss: bool,
    /// The number of the call site.
    pub site: u32,
    /// The number of the name.
    pub name: u32,
}

const AMOUNT_BITS: u32 = 48;
const DEVICE_SHIFT: u32 = AMOUNT_BITS;
const ACTION_SHIFT: u32 = AMOUNT_BITS + 8;
const AMOUNT_MASK: u64 = (1 << AMOUNT_BITS) - 1;
const MISS: u64 = 1 << 63;
const _: () = assert!(LARGEST_REQUEST_BYTES <= AMOUNT_MASK && u32::MAX as u64 <= AMOUNT_MASK);

/// The words of an event.
pub(super) const WORDS: usize = 6;
/// An event in the ring.
pub(super) type Words = [u64; WORDS];

impl Event {
    /// An event on `device` with all other fields 0.
    pub(crate) const fn new(action: Action, device: DeviceOrdinal) -> Self {
        Self {
            action,
            device,
            time: 0,
            stream: 0,
            address: 0,
            amount: 0,
            bytes: 0,
            is_miss: false,
            site: 0,
            name: 0,
        }
    }

    #[inline]
    pub(super) fn pack(&self) -> Words {
        let device = u64::from(self.device.0 as u8) << DEVICE_SHIFT;
        let action = u64::from(self.action as u8) << ACTION_SHIFT;
        let miss = if self.is_miss { MISS } else { 0 };
        [
            self.time,
            self.address,
            self.stream,
            self.amount & AMOUNT_MASK | device | action,
            self.bytes & !MISS | miss,
            u64::from(self.site) | u64::from(self.name) << 32,
        ]
    }

    /// `None` for words that are not an event's.
    pub(super) fn unpack([time, address, stream, what, bytes, numbers]: Words) -> Option<Self> {
        Some(Self {
            action: Action::of((what >> ACTION_SHIFT) as u8)?,
            device: DeviceOrdinal(u32::from((what >> DEVICE_SHIFT) as u8)),
            time,
            stream,
            address,
            amount: what & AMOUNT_MASK,
            bytes: bytes & !MISS,
            is_miss: bytes & MISS != 0,
            site: numbers as u32,
            name: (numbers >> 32) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for (number, action) in (1..).zip(Action::ALL) {
            assert_eq!(action as u8, number);
            let event = Event {
                action,
                device: DeviceOrdinal(255),
                time: u64::MAX,
                stream: u64::MAX,
                address: u64::MAX - 511,
                amount: LARGEST_REQUEST_BYTES,
                bytes: MISS - 1,
                is_miss: true,
                site: u32::MAX,
                name: u32::MAX - 1,
            };
            assert_eq!(Event::unpack(event.pack()), Some(event));
        }
        assert_eq!(Event::unpack([0; WORDS]), None);
        assert_eq!(Event::unpack([u64::MAX; WORDS]), None);
    }
}
