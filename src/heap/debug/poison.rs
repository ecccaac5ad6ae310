//! Poison: patterns in memory that is not yet written to, and in memory that is freed.
//!
//! **Fresh memory** is filled on the stream that the allocation names, so all work queued there
//! from now on finds the pattern or overwrites it. A program that uses the block on another
//! stream without ordering it after the first finds the pattern in place of its data.
//!
//! **Freed memory** cannot be filled on its stream: the stream that a free names cannot be
//! trusted, and the block's own may have been destroyed since its last call. So a free waits for
//! the device, and with it for all work on the block's stream and on those recorded for it. Then
//! it fills the block on the legacy stream and waits for that, so that the next use of the block
//! on any stream comes after. Meanwhile the block is pending.
//!
//! After the first wait the bytes between the requested size and the end of the block are
//! checked: they must still hold the fresh pattern.
//!
//! A step that the driver refuses is skipped: debugging never makes a call fail.

use std::time::Duration;

use super::super::kept::Held;
use super::super::state::DeviceHeap;
use crate::base::StreamHandle;
use crate::base::lock::assert_none_held;
use crate::config::LogLevel;

/// The pattern for memory that was handed out and not written to.
const FRESH: u8 = 0xCD;
/// The pattern for memory that was freed.
const FREED: u8 = 0xDD;
/// At most this much behind the requested size is checked, in bytes.
const MOST_SLACK_BYTES: u64 = 64 << 10;

/// Fills the block at `address`, just handed out for use on `stream`; returns true if it did. Does
/// nothing while a stream may be capturing.
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

/// The result of filling a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// It is filled.
    Yes,
    /// It will be filled later: the driver took the fill, but refused to wait for it.
    Later,
    /// It is unchanged.
    No,
}

impl DeviceHeap<'_> {
    /// Fills a freed block that is pending and that no work uses any more. Waits.
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

    /// Waits until no work uses memory freed before; returns true if the wait succeeded.
    pub(super) fn wait_for_user(self) -> bool {
        assert_none_held();
        // Work on the legacy stream would spoil a capture that it synchronises with.
        self.driver.stream_is_capturing(StreamHandle::LEGACY) == Ok(false) && self.wait_for_device()
    }

    /// Reports a write past the requested size of a block. The device is idle.
    pub(super) fn check_slack(self, held: &Held) {
        let Some(birth) = held.death.birth.filter(|birth| birth.is_filled) else { return };
        let slack_bytes = (birth.bytes - birth.requested_bytes).min(MOST_SLACK_BYTES);
        let end = held.address + birth.requested_bytes;
        if slack_bytes > 0
            && let Some(offset) = self.find_other(end, slack_bytes, FRESH)
        {
            let what = format!("was written past its end: byte {}", birth.requested_bytes + offset);
            self.report(held, &what);
        }
    }

    /// Reports a write to a freed block since it was filled. The device is idle.
    pub(super) fn check_freed(self, held: &Held) {
        if let Some(offset) = self.find_other(held.address, held.bytes, FREED) {
            let what = format!("was written to after it was freed: byte {offset}");
            self.report(held, &what);
        }
    }

    /// The offset of the first of `bytes` from `address` on that is not `value`. To read is to wait,
    /// so nothing is found while a stream may be captured.
    fn find_other(self, address: u64, bytes: u64, value: u8) -> Option<u64> {
        let _wait = self.begin_wait().ok()?;
        self.driver.find_other(address, bytes, value).ok()?
    }

    fn report(self, held: &Held, what: &str) {
        let now: Duration = (self.heap.clock)();
        let Held { address, bytes, .. } = *held;
        let requested = held.death.birth.map_or(bytes, |birth| birth.requested_bytes);
        let ordinal = self.ordinal;
        let history = self.heap.history(&held.death, now);
        self.heap.log.write(
            LogLevel::Error,
            &format_args!(
                "device {ordinal}: the block of {requested} bytes at {address:#x} {what}; {history}"
            ),
        );
    }
}
