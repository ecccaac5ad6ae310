//! One handle at several addresses, one after the other or at once: what an allocator that moves
//! pages between streams may do, and what it may not.
//!
//! The detector knows memory by its physical bytes, so it does not matter through which mapping,
//! or when, a byte was touched. Whether a mapping may be removed depends on that mapping alone.

use simgpu::{Access, Config, Machine, Progress, StoreKind, Violation, Work};
use std::sync::Arc;

const GRANULE: u64 = 2 << 20;
const A: usize = 0xA00;
const B: usize = 0xB00;
const C: usize = 0xC00;

/// A reservation of four granules and one handle to be mapped in it.
struct Page<'a> {
    machine: &'a Machine,
    base: u64,
    handle: u64,
}

impl Page<'_> {
    /// Maps the handle in `slot`.
    fn show(&self, slot: u64) {
        let address = self.base + slot * GRANULE;
        self.machine.map(0, address, GRANULE, self.handle).unwrap();
        self.machine.set_access(0, address, GRANULE, &[0]).unwrap();
    }

    fn hide(&self, slot: u64) {
        self.machine.unmap(0, self.base + slot * GRANULE, GRANULE).unwrap();
    }

    fn touch(&self, stream: usize, slot: u64, access: Access) {
        let address = self.base + slot * GRANULE;
        self.machine.touch(0, stream, Work::new(address, 4096, access, "work")).unwrap();
    }

    fn write(&self, stream: usize, slot: u64) {
        self.touch(stream, slot, Access::Write);
    }

    fn record(&self, stream: usize) -> u64 {
        let event = self.machine.event_create(0, false).unwrap();
        self.machine.event_record(0, event, stream).unwrap();
        event
    }

    /// Work of `later` comes after that of `earlier` so far.
    fn order(&self, earlier: usize, later: usize) {
        self.machine.stream_wait(0, later, self.record(earlier)).unwrap();
    }

    /// The host queries all work of `stream` and finds it complete.
    fn find_complete(&self, stream: usize) {
        let event = self.record(stream);
        self.machine.run_to_idle(0, stream).unwrap();
        assert_eq!(self.machine.event_query(0, event), Ok(true));
    }
}

/// Runs `case` under both kinds of progress, which must not matter, and returns how many races
/// and how many touches of memory that went away it found.
fn found(case: impl Fn(&Page<'_>)) -> (usize, usize) {
    let [automatic, manual] = [Progress::Automatic, Progress::Manual].map(|progress| {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
        config.progress = progress;
        config.detect_races = true;
        let machine: Arc<Machine> = Machine::new(config).unwrap();
        let base = machine.reserve(0, 4 * GRANULE, 0).unwrap();
        let handle = machine.create(0, GRANULE).unwrap();
        case(&Page { machine: &machine, base, handle });
        machine.validate().unwrap();
        let violations = machine.take_violations();
        let count = |is: fn(&Violation) -> bool| violations.iter().filter(|one| is(one)).count();
        let races = count(|one| matches!(one, Violation::Race { .. }));
        let gone = count(|one| matches!(one, Violation::GoneWhileInUse { .. }));
        assert_eq!(races + gone, violations.len(), "{violations:?}");
        (races, gone)
    });
    assert_eq!(automatic, manual, "progress made a difference");
    automatic
}

#[test]
fn a_page_moves_on_at_once_and_leaves_when_its_work_is_known_complete() {
    // The same stream needs nothing, another one an event; the old place goes later.
    for (taker, is_ordered, races) in [(A, false, 0), (B, true, 0), (B, false, 1)] {
        let counts = found(|page| {
            page.show(0);
            page.write(A, 0);
            page.show(1);
            if is_ordered {
                page.order(A, taker);
            }
            page.write(taker, 1);
            page.find_complete(A);
            page.hide(0);
            page.find_complete(taker);
            page.hide(1);
        });
        assert_eq!(counts, (races, 0), "{taker:#x}, {is_ordered}");
    }
}

#[test]
fn what_is_known_complete_is_forgotten_wherever_it_was_mapped() {
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        page.find_complete(A);
        page.hide(0);
        page.show(2);
        page.write(B, 2);
        page.find_complete(B);
        page.hide(2);
        page.show(0); // the same address again
        page.write(C, 0);
    });
    assert_eq!(counts, (0, 0));
}

#[test]
fn touches_through_a_mapping_that_has_gone_still_conflict() {
    // The first place is left in order; a reader through the second is still under way when a
    // third stream writes through the third.
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        page.show(1);
        page.order(A, B);
        page.touch(B, 1, Access::Read);
        page.find_complete(A);
        page.hide(0);
        page.show(2);
        page.write(C, 2);
    });
    assert_eq!(counts, (1, 0));
    // Even if the place itself was left too early, which is another violation.
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        page.hide(0);
        page.show(1);
        page.write(B, 1);
    });
    assert_eq!(counts, (1, 1));
    // The order of events holds over the move, as between any two touches.
    let counts = found(|page| {
        page.show(0);
        page.show(1);
        page.write(A, 0);
        page.order(A, B);
        page.write(B, 1);
        page.find_complete(B); // and so A, which B came after
        page.hide(0);
        page.hide(1);
        page.show(3);
        page.write(C, 3);
    });
    assert_eq!(counts, (0, 0));
}

#[test]
fn only_work_through_a_mapping_keeps_it() {
    // Work through another alias, complete or not, is no reason to keep this one.
    let counts = found(|page| {
        page.show(0);
        page.show(1);
        page.write(A, 0);
        page.hide(1);
        page.show(1);
        page.hide(1);
    });
    assert_eq!(counts, (0, 0));
    // Work through this one is, with or without an alias left.
    for aliases in [1, 2] {
        let counts = found(|page| {
            for slot in 0..aliases {
                page.show(slot);
            }
            page.write(A, 0);
            page.hide(0);
        });
        assert_eq!(counts, (0, 1), "{aliases}");
    }
    // A new mapping at the same address does not inherit from the one before.
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        page.find_complete(A);
        page.hide(0);
        page.show(0);
        page.hide(0);
    });
    assert_eq!(counts, (0, 0));
}

#[test]
fn each_stream_that_used_a_mapping_counts_and_only_its_last_work() {
    let counts = found(|page| {
        page.show(0);
        for _ in 0..3 {
            page.touch(A, 0, Access::Read);
            page.touch(B, 0, Access::Read);
        }
        page.find_complete(A);
        page.touch(A, 0, Access::Read);
        page.hide(0);
    });
    assert_eq!(counts, (0, 2));
}

#[test]
fn an_event_found_complete_is_knowledge_up_to_its_record_only() {
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        let event = page.record(A);
        page.write(A, 0);
        page.machine.run_to_idle(0, A).unwrap();
        assert_eq!(page.machine.event_query(0, event), Ok(true));
        page.hide(0);
    });
    assert_eq!(counts, (0, 1));
    // Completion that the host did not query is not known to it.
    let counts = found(|page| {
        page.show(0);
        page.write(A, 0);
        page.record(A);
        page.machine.run_to_idle(0, A).unwrap();
        page.hide(0);
    });
    assert_eq!(counts, (0, 1));
    // Nor is that of an event queried while incomplete.
    let counts = found(|page| {
        page.show(0);
        page.machine.hold(0, A, true).unwrap();
        page.write(A, 0);
        let event = page.record(A);
        assert_eq!(page.machine.event_query(0, event), Ok(false));
        page.hide(0);
    });
    assert_eq!(counts, (0, 1));
}

#[test]
fn memory_whose_handle_is_released_keeps_its_history_while_it_is_mapped() {
    let counts = found(|page| {
        page.show(0);
        page.show(1);
        page.write(A, 0);
        page.machine.release(0, page.handle).unwrap();
        page.write(B, 1);
    });
    assert_eq!(counts, (1, 0));
}
