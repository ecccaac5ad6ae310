//! Facts: what documents leave open about a driver, each asked by a small probe.
//!
//! A probe is a function of the driver. Its doc comment is the question, the table below has the
//! answer that Genesis expects, and the page prints the observed one next to it. Each runs in a
//! process of its own, so one that upsets the driver does not disturb the others. A GPU may be
//! shared, so no work touches memory that is not mapped.

mod capture;
mod managed;
mod memory;
mod order;
mod virtual_memory;

use serde::{Deserialize, Serialize};

use crate::driver::Driver;

/// What a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) text: String,
    pub(crate) as_expected: bool,
}

impl Observation {
    fn new(as_expected: bool, text: impl Into<String>) -> Self {
        Self { text: text.into(), as_expected }
    }
}

/// A probe's answer, or why it has none.
type Observed = Result<Observation, String>;

/// A question to the driver.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    /// The answer that Genesis is built on.
    pub(crate) expected: &'static str,
    run: fn(&Driver) -> Observed,
}

/// A question and its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) question: String,
    pub(crate) expected: String,
    pub(crate) observed: String,
    pub(crate) verdict: Verdict,
}

/// An observation compared with what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    AsExpected,
    Different,
    NotObserved,
}

impl Verdict {
    /// For a report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::AsExpected => "as expected",
            Self::Different => "**different**",
            Self::NotObserved => "not observed",
        }
    }
}

impl Probe {
    /// True if it asks for more managed memory than the device has free.
    pub(crate) fn oversubscribes(&self) -> bool {
        managed::OVERSUBSCRIBING.contains(&self.name)
    }

    /// Asks the driver.
    pub(crate) fn ask(&self) -> Fact {
        self.fact(Driver::open().and_then(|driver| (self.run)(&driver)))
    }

    /// The fact that `observed` leads to.
    pub(crate) fn fact(&self, observed: Observed) -> Fact {
        let (observed, verdict) = match observed {
            Ok(seen) if seen.as_expected => (seen.text, Verdict::AsExpected),
            Ok(seen) => (seen.text, Verdict::Different),
            Err(reason) => (reason, Verdict::NotObserved),
        };
        let own = str::to_owned;
        Fact {
            name: own(self.name),
            question: own(self.question),
            expected: own(self.expected),
            observed,
            verdict,
        }
    }
}

/// The probe called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Probe> {
    PROBES.iter().find(|probe| probe.name == name)
}

macro_rules! probes {
    ($($module:ident::$name:ident: $question:literal => $expected:literal;)*) => {
        /// All probes.
        pub(crate) static PROBES: &[Probe] = &[$(Probe {
            name: stringify!($name),
            question: $question,
            expected: $expected,
            run: $module::$name,
        }),*];
    };
}

probes! {
    memory::allocation_alignment:
        "How are addresses of cuMemAlloc aligned?" => "to 512 bytes at least";
    memory::allocation_rounding:
        "How much physical memory does cuMemAlloc take?"
        => "whole 2 MiB pages; small ones share a page";
    memory::allocate_waits:
        "Does cuMemAlloc wait for work pending on another stream?" => "no";
    memory::free_waits:
        "Does cuMemFree wait for work pending on another stream?" => "yes";
    managed::managed_beyond_the_device:
        "May managed memory be more than the device has, and does it take none before it is touched?"
        => "yes, and it takes none";
    managed::managed_makes_room:
        "Is managed memory evicted for memory of cuMemAlloc?" => "yes";
    managed::managed_prefetch_and_faults:
        "What does it take to bring 256 MiB of managed memory by a prefetch, and by touching it?"
        => "a prefetch is cheaper";
    managed::managed_prefetch_in_capture:
        "Is a prefetch on a capturing stream refused?"
        => "not relied on: Genesis prefetches on no capturing stream";
    virtual_memory::granularity:
        "What are the granularities of physical memory?" => "2 MiB, both";
    virtual_memory::address_space:
        "How much address space can be reserved, by the TiB?" => "64 TiB at least";
    virtual_memory::calls_do_not_wait:
        "Do create, map, set-access and release wait for pending work?" => "no";
    virtual_memory::unmap_waits:
        "Does cuMemUnmap wait for work pending on a stream?"
        => "not reliably, so Genesis waits itself";
    virtual_memory::aliases_in_stream_order:
        "Mapped a second time while work on the first address is pending: does later work of the \
         stream see its bytes at the second, and back?" => "yes, always";
    virtual_memory::aliases_across_streams:
        "The same on another stream that waits for an event?" => "yes, always";
    virtual_memory::remapped_address:
        "Another handle mapped at an address used before: are its bytes seen there?"
        => "yes, always";
    virtual_memory::release_before_unmap:
        "Does memory stay usable when its handle is released before the mapping goes?"
        => "yes, and it comes back with the unmapping";
    virtual_memory::many_mappings_in_one_call:
        "May one set-access and one unmap cover many mappings?" => "yes";
    virtual_memory::part_of_a_mapping:
        "Is unmapping a part of a mapping refused?" => "yes, with 1";
    virtual_memory::part_of_a_handle:
        "Is mapping a handle from an offset on refused?" => "yes, with 801 (documented: 1)";
    virtual_memory::beyond_a_reservation:
        "Is mapping over the end of a reservation refused?"
        => "not relied on; the simulation refuses it";
    virtual_memory::unmapping_nothing:
        "Is unmapping where nothing is mapped refused, and setting access over a hole?"
        => "not relied on; the simulation refuses both";
    order::destroyed_streams_handle:
        "Is the handle of a stream destroyed with work pending given to a new stream?"
        => "it may be; the ids of streams differ always";
    order::event_outlives_its_stream:
        "Does an event stay pending when its stream is destroyed, and complete?" => "yes";
    order::wait_outlives_its_event:
        "Does a stream still wait when the event is destroyed?" => "yes";
    order::events_in_other_contexts:
        "May an event be recorded and asked about with another context current, or none?"
        => "yes, or refused with 201: then Genesis calls again in theirs";
    order::legacy_stream_and_others:
        "Does the legacy stream go ahead of a non-blocking stream?" => "yes";
    capture::virtual_memory_in_global_capture:
        "Are the calls that make and map memory legal while a stream captures in global mode?"
        => "yes, and the capture goes on";
    capture::allocation_in_global_capture:
        "Is cuMemAlloc refused in a global capture?" => "yes, with 900";
    capture::allocation_in_global_capture_of_another_thread:
        "Is cuMemAlloc of another thread refused in a global capture?" => "yes, with 900";
    capture::relaxed_calls_in_global_capture:
        "Is everything Genesis calls legal in a global capture once the thread's mode is relaxed?"
        => "yes, and the capture goes on";
    capture::records_in_global_capture:
        "Are recording an event, and asking if a stream captures, legal in a global capture of another \
         stream?"
        => "yes, and the capture goes on";
    capture::giving_back_in_global_capture:
        "What of giving memory back is legal in a global capture, by a relaxed thread?"
        => "not relied on: nothing is given back while a stream captures";
    capture::event_query_in_global_capture:
        "Is asking about an event of another stream refused in a global capture?"
        => "yes, with 900";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_probes_apart() {
        for probe in PROBES {
            assert!(std::ptr::eq(find(probe.name).unwrap(), probe), "{}", probe.name);
        }
        assert!(find("none").is_none());
    }

    #[test]
    fn what_oversubscribes_is_a_probe() {
        assert!(managed::OVERSUBSCRIBING.iter().all(|name| find(name).unwrap().oversubscribes()));
        assert!(!find("granularity").unwrap().oversubscribes());
    }

    #[test]
    fn observations_become_verdicts() {
        let probe = &PROBES[0];
        let verdict = |observed| probe.fact(observed).verdict;
        assert_eq!(verdict(Ok(Observation::new(true, "512"))), Verdict::AsExpected);
        assert_eq!(verdict(Ok(Observation::new(false, "256"))), Verdict::Different);
        let fact = probe.fact(Err("cuInit answered 100".to_owned()));
        assert_eq!(fact.verdict, Verdict::NotObserved);
        assert_eq!(fact.observed, "cuInit answered 100");
    }
}
