//! A device that a program fills: extents become finer once hardly any memory is left and about as much
//! lies in pieces, or once a request was refused for pieces.

use genesis::base::StreamHandle;
use genesis::base::size::{GIB, MIB};
use genesis::config::{ElasticPolicy, LogLevel};
use genesis::heap::PoolId;
use simgpu::{Call, Code, Progress, Target, Times};

use crate::ADDRESSES;
use crate::support::{A, B, DEVICE, Plan, Rig};

const DEVICE_BYTES: u64 = 16 * GIB;
/// Blocks that are kept, each with a hole after it that no extent fits in, until memory is scarce.
const KEPT_BYTES: u64 = 26 * MIB;
const HOLE_BYTES: u64 = 6 * MIB;
const PAIRS: u64 = 500;
/// What a step asks for when the holes are free: less than they are together.
const LARGE_BYTES: u64 = 2 * GIB;
/// Hardly anything is left after it.
const LAST_BYTES: u64 = DEVICE_BYTES - PAIRS * (KEPT_BYTES + HOLE_BYTES) - 100 * MIB;
/// What extents are made of once memory is scarce.
const FINE_BYTES: u64 = 2 * MIB;
/// What the log says.
const SCARCE_LINE: &str = "memory is scarce; extents of at most ";

fn plan() -> Plan {
    let mut plan = ADDRESSES.plan().capacity(DEVICE_BYTES);
    plan.settings.log = LogLevel::Info;
    plan
}

/// What a step does when its holes are free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peak {
    /// It uses what was never used.
    Last,
    /// It needs the holes.
    Large,
}

/// A step of the program, which fills the device, makes holes, and frees all at its end. Returns whether it
/// got what it asked for.
fn step(rig: &Rig, stream: StreamHandle, peak: Peak) -> bool {
    let allocate = |bytes| rig.allocate_and_touch(bytes, stream);
    let pairs: Vec<(u64, u64)> =
        (0..PAIRS).map(|_| (allocate(KEPT_BYTES), allocate(HOLE_BYTES))).collect();
    pairs.iter().for_each(|&(_, hole)| rig.free(hole));
    let bytes = match peak {
        Peak::Last => LAST_BYTES,
        Peak::Large => LARGE_BYTES,
    };
    let got = rig.heap.allocate(bytes, DEVICE, stream).inspect(|&address| {
        rig.touch(address, stream);
        rig.free(address);
    });
    pairs.into_iter().for_each(|(kept, _)| rig.free(kept));
    rig.check();
    got.is_ok()
}

/// Returns how often the log says that memory is scarce.
fn times_scarce(rig: &Rig) -> usize {
    rig.lines().iter().filter(|line| line.contains(SCARCE_LINE)).count()
}

#[test]
fn a_program_that_was_refused_memory_in_pieces_gets_it_in_later_steps() {
    let rig = plan().start();
    assert!(!step(&rig, A, Peak::Large), "the holes are in pieces");
    for _ in 0..3 {
        assert!(step(&rig, A, Peak::Large));
    }
    let calls = rig.statistics().driver_memory_calls;
    assert!(step(&rig, A, Peak::Large));
    assert_eq!(rig.statistics().driver_memory_calls, calls, "and it comes to rest");
    assert_eq!(rig.statistics().out_of_memory_events, 1);
    assert_eq!(times_scarce(&rig), 1);
    rig.finish();
}

/// No request was refused: that hardly anything is left is enough.
#[test]
fn a_program_that_fills_the_device_fits_when_it_needs_the_holes() {
    let rig = plan().start();
    assert!(step(&rig, A, Peak::Last));
    assert_eq!(times_scarce(&rig), 1);
    assert_eq!(rig.usage().count(Call::Release), 0, "not before the next trough is over");
    for _ in 0..3 {
        assert!(step(&rig, A, Peak::Large));
    }
    assert_eq!(rig.statistics().out_of_memory_events, 0);
    let extents = rig.usage().count(Call::Create) - rig.usage().count(Call::Release);
    assert!(extents >= PAIRS * HOLE_BYTES / FINE_BYTES, "{extents} extents");
    rig.finish();
}

/// What contexts and other libraries have taken is not left, though no allocation here counts it.
#[test]
fn memory_that_others_have_taken_is_not_left() {
    const TAKEN_BYTES: u64 = 512 * MIB;
    let rig = plan().capacity(DEVICE_BYTES + TAKEN_BYTES).start();
    let taken = rig.machine.allocate(0, TAKEN_BYTES).unwrap();
    assert!(step(&rig, A, Peak::Last));
    assert_eq!(times_scarce(&rig), 1);
    assert!(step(&rig, A, Peak::Large));
    assert_eq!(rig.statistics().out_of_memory_events, 0);
    rig.machine.free(0, taken).unwrap();
    rig.finish();
}

/// A program that leaves no pieces keeps its extents, however full the device is.
#[test]
fn a_full_device_without_holes_is_not_scarce() {
    let rig = plan().start();
    for _ in 0..3 {
        let blocks: Vec<u64> =
            (0..DEVICE_BYTES / (64 * MIB)).map(|_| rig.allocate(64 * MIB, A)).collect();
        blocks.into_iter().for_each(|block| rig.free(block));
    }
    assert_eq!((times_scarce(&rig), rig.usage().count(Call::Release)), (0, 0));
    rig.finish();
}

#[test]
fn finer_policies_have_nothing_to_change() {
    for policy in [ElasticPolicy::Fine, ElasticPolicy::Tight] {
        let rig = plan().set(|settings| settings.elastic_policy = policy).start();
        assert!(step(&rig, A, Peak::Last) && step(&rig, A, Peak::Large));
        assert_eq!((times_scarce(&rig), rig.usage().count(Call::Release)), (0, 0));
        rig.finish();
    }
}

/// Work that still uses what goes back is waited for, once.
#[test]
fn the_host_waits_once_for_work_that_is_under_way() {
    let mut plan = plan();
    plan.machine.detect_races = true;
    plan.machine.progress = Progress::Manual;
    let rig = plan.start();
    assert!(step(&rig, A, Peak::Last));
    assert_eq!(rig.usage().host_waits.explicit, 0);
    assert!(step(&rig, A, Peak::Large));
    assert_eq!(rig.usage().host_waits.explicit, 1);
    rig.finish();
}

/// Nothing goes back while a stream is captured, but at a later trough.
#[test]
fn finer_extents_wait_for_the_end_of_a_capture() {
    let rig = plan().start();
    assert!(step(&rig, A, Peak::Last));
    rig.heap.begin_capture(DEVICE).unwrap();
    assert!(step(&rig, A, Peak::Last));
    assert_eq!(rig.usage().count(Call::Release), 0);
    rig.heap.end_capture(DEVICE).unwrap();
    assert!(step(&rig, A, Peak::Last));
    assert_ne!(rig.usage().count(Call::Release), 0);
    assert!(step(&rig, A, Peak::Large));
    rig.finish();
}

/// Two streams take turns with the same memory, and each gives it back at its own trough, once.
#[test]
fn each_large_stream_gets_finer_extents_once() {
    let rig = plan().start();
    assert!(step(&rig, A, Peak::Last));
    for stream in [A, B, A, B, A, B] {
        assert!(step(&rig, stream, Peak::Large));
    }
    let released = rig.usage().count(Call::Release);
    for stream in [A, B] {
        assert!(step(&rig, stream, Peak::Large));
    }
    assert_eq!(rig.usage().count(Call::Release), released);
    assert_eq!(times_scarce(&rig), 1);
    assert_eq!(rig.statistics().out_of_memory_events, 0);
    rig.finish();
}

/// At the troughs of a private pool nothing goes back, neither what the pool has nor what others have.
#[test]
fn a_private_pool_gives_nothing_back() {
    const POOL: PoolId = PoolId(0, 1);
    let rig = plan().start();
    assert!(step(&rig, A, Peak::Last));
    assert_eq!(times_scarce(&rig), 1);
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    let cycle = || {
        let blocks: Vec<u64> = (0..64).map(|_| rig.allocate(64 * MIB, B)).collect();
        blocks.into_iter().for_each(|block| rig.free(block));
        rig.usage().count(Call::Release)
    };
    let released = cycle();
    assert_ne!(released, 0, "what the pool needs");
    assert_eq!([cycle(), cycle()], [released; 2]);
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

/// What the driver does not take back is kept, and nothing is lost.
#[test]
fn memory_that_the_driver_does_not_take_back_is_used_again() {
    for (call, times) in [(Call::Unmap, Times::Forever), (Call::Release, Times::Once)] {
        let rig = plan().start();
        assert!(step(&rig, A, Peak::Last));
        rig.machine.faults().fail(Target::call(call), 1, times, Code(12345));
        assert!(step(&rig, A, Peak::Last), "{call:?}");
        rig.machine.faults().clear();
        assert!(step(&rig, A, Peak::Last), "{call:?}");
        rig.finish();
    }
}
