//! What was asked of one device: calls, virtual time, waits of the host.
//!
//! The counters only grow. Each call is counted and charged its least price when it is made,
//! whether it succeeds or not. What depends on size, and what makes it slow, is charged when it
//! succeeds.

use std::cell::Cell;

use crate::call::Call;
use crate::cost::CostTable;

thread_local! {
    static THREAD_NS: Cell<u64> = const { Cell::new(0) };
}

/// The virtual time of all calls that this thread has made, on every machine, in nanoseconds: the
/// difference of two readings is what the calls between them cost. Calls that a quiet machine only
/// counts (events, mostly) are not in it.
pub fn thread_driver_nanoseconds() -> u64 {
    THREAD_NS.get()
}

/// How often the host waited for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostWaits {
    /// `cuEventSynchronize`, `cuStreamSynchronize` and `cuCtxSynchronize`.
    pub explicit: u64,
    /// Waits inside other calls: `cuMemFree` and copies to and from the host.
    pub implicit: u64,
    /// Waits of either kind that found work unfinished.
    pub blocked: u64,
    /// Calls that found the queue of their stream full and waited for room.
    pub queue_full: u64,
    /// Virtual time of the work waited for, in nanoseconds.
    pub nanoseconds: u64,
}

/// What managed memory cost a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// How often the device faulted.
    pub faults: u64,
    /// What came to the device, by faults or prefetches, in bytes; not what was new.
    pub arrived_bytes: u64,
    /// What was evicted from the device, in bytes.
    pub evicted_bytes: u64,
    /// Virtual time for which streams waited for pages, in nanoseconds.
    pub nanoseconds: u64,
}

/// What was asked of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Calls, by [`Call`] as an index.
    pub calls: [u64; Call::COUNT],
    /// Virtual time spent in them, in nanoseconds, without waits for work.
    pub driver_nanoseconds: u64,
    /// Waits of the host.
    pub host_waits: HostWaits,
    /// Managed memory.
    pub paging: Paging,
}

impl Usage {
    /// How often `call` was made.
    pub const fn count(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            calls: [0; Call::COUNT],
            driver_nanoseconds: 0,
            host_waits: HostWaits::default(),
            paging: Paging::default(),
        }
    }
}

impl Usage {
    /// Charges a call of this thread by `charge`, and adds it to the thread's time.
    pub(crate) fn timed(&mut self, charge: impl FnOnce(&mut Self)) {
        let before_ns = self.driver_nanoseconds;
        charge(self);
        let more_ns = self.driver_nanoseconds - before_ns;
        THREAD_NS.set(THREAD_NS.get().saturating_add(more_ns));
    }

    pub(crate) fn charge_call(&mut self, call: Call, costs: &CostTable) {
        self.charge_calls(call, 1, costs);
    }

    pub(crate) fn charge_calls(&mut self, call: Call, count: u64, costs: &CostTable) {
        self.calls[call as usize] += count;
        self.charge_ns(costs.get(call).base_ns().saturating_mul(count));
    }

    pub(crate) fn charge_ns(&mut self, nanoseconds: u64) {
        self.driver_nanoseconds = self.driver_nanoseconds.saturating_add(nanoseconds);
    }

    /// Charges what a call costs beyond its least price, by the memory it concerned. Comes after
    /// [`Self::charge_call`], once the call has succeeded.
    pub(crate) fn charge_size(&mut self, call: Call, costs: &CostTable, bytes: u64, mappings: u64) {
        let cost = costs.get(call);
        self.charge_ns(cost.price_ns(bytes, mappings).saturating_sub(cost.base_ns()));
        self.charge_ns(cost.tail_ns(self.count(call)));
    }
}
