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

    /// All processes that share the device, this one first.
    fn list(&self) -> Vec<Neighbour>;

    /// Asks the others to give back what is missing for a request, and calls `take` once some did,
    /// again and again while more may come of it. What they gave is kept from third ones until this
    /// returns. Waits for answers for a moment only.
    fn ask(&self, wanted: Wanted, take: &mut dyn FnMut() -> Taken);
}

/// A process that shares a device. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The process's number.
    pub process: u32,
    /// Its program's name.
    pub program: String,
    /// What is live in it, as it has last said.
    pub live_bytes: u64,
    /// What it has cached.
    pub cached_bytes: u64,
    /// What it holds of the device.
    pub held_bytes: u64,
    /// What the others leave to it.
    pub guarantee_bytes: u64,
    /// The most that it may hold; `None`: no limit.
    pub limit_bytes: Option<u64>,
    /// Its part of the device; `None`: it has none.
    pub part_bytes: Option<u64>,
}

/// What a request needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// All that it charges.
    pub bytes: u64,
    /// As much of that as the device does not have free, or nobody may charge now.
    pub missing_bytes: u64,
}

/// What came of an attempt to take what others gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was enough.
    All,
    /// So many bytes are still missing.
    Missing(u64),
}
