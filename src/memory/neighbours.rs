//! What a ledger needs to know of the other processes that share its device.

use std::fmt::Debug;

/// The processes that share one device with this one. Any thread may call it; each call is a few
/// system calls, except [`Self::ask`].
pub trait Neighbours: Debug + Send + Sync {
    /// Counts `bytes` more for this process, unless they are guaranteed to others, or wanted by
    /// them; returns true if it did.
    fn charge(&self, bytes: u64) -> bool;

    /// Says that this process may hold at most `bytes`. Makes no system call.
    fn set_limit(&self, bytes: u64);

    /// Undoes [`Self::charge`].
    fn refund(&self, bytes: u64);

    /// How much more could be charged, in bytes.
    fn room_bytes(&self) -> u64;

    /// Asks the others to give back `bytes`, and calls `take` once some did, again and again while
    /// more may come of it. What they gave is kept from third ones until this returns. Waits for
    /// answers for a moment only.
    fn ask(&self, bytes: u64, take: &mut dyn FnMut() -> Taken);
}

/// What came of an attempt to take what others gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was enough.
    All,
    /// So many bytes are still missing.
    Missing(u64),
}
