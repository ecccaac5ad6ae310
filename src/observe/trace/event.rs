//! An event: one call of the library, as the thread that made it saw it.
//!
//! Events name blocks by address and streams by key, because that is what a thread has at hand;
//! [`numbering`](super::numbering) makes of them what a trace says. An event is packed into
//! three words, so that with its stamp it takes half a cache line of the ring:
//!
//! | word | bits | |
//! |---|---|---|
//! | 0 | 64 | address |
//! | 1 | 64 | stream |
//! | 2 | 48 | amount: bytes requested, or the iteration's number |
//! | 2 | 8 | device |
//! | 2 | 8 | action |

use crate::base::size::LARGEST_REQUEST_BYTES;

/// What happened; the numbers are those of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Action {
    /// A request was served.
    Allocate = 1,
    /// A block is about to be freed.
    Free = 2,
    /// A block is used on another stream.
    RecordStream = 3,
    /// Cached memory is given back.
    EmptyCache = 4,
    /// An iteration of the program ended.
    EndIteration = 5,
}

impl Action {
    const ALL: [Self; 5] =
        [Self::Allocate, Self::Free, Self::RecordStream, Self::EmptyCache, Self::EndIteration];
}

/// One event. What an action has no use for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) action: Action,
    pub(super) device: u8,
    /// The key of the queue, which is the same for all handles of it.
    pub(super) stream: u64,
    pub(super) address: u64,
    /// Bytes requested, or the number of an iteration; below 2^48.
    pub(super) amount: u64,
}

const AMOUNT_BITS: u32 = 48;
const DEVICE_SHIFT: u32 = AMOUNT_BITS;
const ACTION_SHIFT: u32 = AMOUNT_BITS + 8;
const AMOUNT_MASK: u64 = (1 << AMOUNT_BITS) - 1;
const _: () = assert!(LARGEST_REQUEST_BYTES <= AMOUNT_MASK && u32::MAX as u64 <= AMOUNT_MASK);

/// An event in the ring.
pub(super) type Words = [u64; 3];

impl Event {
    #[inline]
    pub(super) fn pack(self) -> Words {
        let device = u64::from(self.device) << DEVICE_SHIFT;
        let action = u64::from(self.action as u8) << ACTION_SHIFT;
        [self.address, self.stream, self.amount & AMOUNT_MASK | device | action]
    }

    /// `None` for words that no event packs into.
    pub(super) fn unpack([address, stream, rest]: Words) -> Option<Self> {
        let number = (rest >> ACTION_SHIFT) as u8;
        let action = Action::ALL.into_iter().find(|action| *action as u8 == number)?;
        let device = (rest >> DEVICE_SHIFT) as u8;
        Some(Self { action, device, stream, address, amount: rest & AMOUNT_MASK })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for action in Action::ALL {
            let event = Event {
                action,
                device: 255,
                stream: u64::MAX,
                address: u64::MAX - 511,
                amount: LARGEST_REQUEST_BYTES,
            };
            assert_eq!(Event::unpack(event.pack()), Some(event));
        }
        assert_eq!(Event::unpack([0; 3]), None);
    }
}
