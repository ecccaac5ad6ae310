//! Poison: patterns in memory that nobody has written to, and in memory that nobody may use.
//!
//! **Fresh memory** is filled on the stream that the allocation names, so whatever is queued there
//! from now on finds the pattern or overwrites it. A program that uses the block on another
//! stream without ordering it after the first finds the pattern in the place of its data.
//!
//! **Freed memory** cannot be filled on its stream: a free names no stream that can be trusted,
//! and the block's own may have been destroyed since its last call. So the device is waited
//! for, which comes after all work that was queued on the block's stream and on those recorded
//! for it; then it is filled on the legacy stream, and that is waited for, so that whichever
//! stream uses the block next comes after. Meanwhile the block is pending.
//!
//! With the wait comes a look at the bytes between what was asked for and the end of the block:
//! they must be as they were filled.
//!
//! What the driver refuses is left out: debugging fails nobody's call.

use std::time::Duration;

use super::super::state::DeviceHeap;
use super::kept::Held;
use crate::base::StreamHandle;
use crate::base::lock::assert_none_held;
use crate::config::LogLevel;

/// Memory that was handed out and not written to.
const FRESH: u8 = 0xCD;
/// Memory that was freed.
const FREED: u8 = 0xDD;
/// So much behind what was asked for is looked at, in bytes.
const MOST_SLACK_BYTES: u64 = 64 << 10;

/// Fills the block at `address`, just handed out for use on `stream`; says whether it did: not
/// while a stream may be capturing.
pub(super) fn fill_fresh(
    device: DeviceHeap<'_>,
    stream: StreamHandle,
    address: u64,
    bytes: u64,
) -> bool {
    assert_none_held();
    let driver = &device.driver;
    !device.pools.is_routing()
        && driver.stream_is_capturing(stream) == Ok(false)
        && driver.fill(address, bytes, FRESH, stream).is_ok()
}

/// What came of filling a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// It is filled.
    Yes,
    /// It will be at some time: the driver took the fill, and would not wait for it.
    Later,
    /// It is as it was.
    No,
}

impl DeviceHeap<'_> {
    /// Fills a block that was freed, that nobody gets meanwhile and that nothing uses any more.
    /// Waits.
    pub(super) fn fill_freed(self, held: &Held) -> Filled {
        assert_none_held();
        let Ok(_wait) = self.begin_wait() else { return Filled::No };
        let driver = &self.driver;
        if driver.fill(held.address, held.bytes, FREED, StreamHandle::LEGACY).is_err() {
            return Filled::No;
        }
        match driver.synchronize() {
            Ok(()) => Filled::Yes,
            Err(_) => Filled::Later,
        }
    }

    /// Waits until nothing uses what was freed before; says whether it came to that.
    pub(super) fn wait_for_user(self) -> bool {
        assert_none_held();
        // Work on the legacy stream would spoil a capture that it synchronises with.
        self.driver.stream_is_capturing(StreamHandle::LEGACY) == Ok(false) && self.wait_for_device()
    }

    /// Looks whether something was written behind what was asked for. The device is idle.
    pub(super) fn check_slack(self, held: &Held) {
        let Some(birth) = held.death.birth.filter(|birth| birth.is_filled) else { return };
        let slack_bytes = (birth.bytes - birth.requested_bytes).min(MOST_SLACK_BYTES);
        let end = held.address + birth.requested_bytes;
        if slack_bytes > 0
            && let Ok(Some(offset)) = self.driver.find_other(end, slack_bytes, FRESH)
        {
            let what = format!("was written past its end: byte {}", birth.requested_bytes + offset);
            self.report(held, &what);
        }
    }

    /// Looks whether something was written to a block since it was filled. The device is idle.
    pub(super) fn check_freed(self, held: &Held) {
        if let Ok(Some(offset)) = self.driver.find_other(held.address, held.bytes, FREED) {
            let what = format!("was written to after it was freed: byte {offset}");
            self.report(held, &what);
        }
    }

    fn report(self, held: &Held, what: &str) {
        let now: Duration = (self.heap.clock)();
        let Held { address, bytes, .. } = *held;
        let requested = held.death.birth.map_or(bytes, |birth| birth.requested_bytes);
        let ordinal = self.ordinal;
        let history = self.heap.history(&held.death, now);
        let message = format_args!(
            "device {ordinal}: the block of {requested} bytes at {address:#x} {what}; {history}"
        );
        self.heap.log.write(LogLevel::Error, &message);
    }
}
