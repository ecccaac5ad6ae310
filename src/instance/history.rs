//! PyTorch's history: the latest calls with their stacks, for `torch.cuda.memory._snapshot`. A
//! profile of its own, so that it neither disturbs the program's profile nor depends on it.

use super::{EVENTS, heap, profile};
use crate::base::Result;
use crate::callsite;
use crate::config::CallSites;
use crate::observe::{Keeping, Profiler};
use crate::process::{self, fork};

static HISTORY: Profiler = Profiler::new();

/// Which calls have their stacks in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stacks {
    /// None.
    Off,
    /// Those that allocate.
    Allocations,
    /// All.
    All,
}

/// Records from now on, and keeps at least `most_events` of the latest events; `call_sites` is the
/// kind of the stacks. If a history is being recorded already, it continues, without its earlier
/// events if `clears`.
pub(crate) fn start(
    most_events: usize,
    stacks: Stacks,
    call_sites: CallSites,
    clears: bool,
) -> Result<()> {
    let heap = heap()?;
    let keeping = Keeping {
        history_events: most_events,
        has_sites: stacks != Stacks::Off,
        has_own_sites: true,
        has_free_sites: stacks == Stacks::All,
    };
    callsite::choose(call_sites);
    if HISTORY.is_on() {
        return HISTORY.keep(keeping, clears);
    }
    process::starting_threads(|| HISTORY.start(&EVENTS, keeping, heap))
}

/// Ends the recording and drops the history; does nothing if none is being recorded.
pub(crate) fn stop() -> Result<()> {
    fork::refuse_child()?;
    if !HISTORY.is_on() {
        return Ok(());
    }
    let stopped = HISTORY.stop(None);
    callsite::choose(heap()?.settings().call_sites);
    HISTORY.forget();
    stopped
}

/// Writes the present memory of every device, and the history if one is being recorded, to `path`
/// in PyTorch's form.
pub(crate) fn write(path: &str) -> Result<()> {
    let seen = if HISTORY.is_on() { HISTORY.describe()? } else { profile::nothing_seen() };
    profile::write_snapshot_of(seen, path)
}
