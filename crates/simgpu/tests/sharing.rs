//! Memory and events that several processes have: by descriptors, by handles of 64 bytes, and one
//! capacity for all.
//!
//! A test drives *peers*: processes of this same program, each with a machine of its own, that do
//! what they are told ([`peer`]).

#[path = "sharing/capacity.rs"]
mod capacity;
#[path = "sharing/peer.rs"]
mod peer;

use std::os::fd::OwnedFd;

use peer::{MIB, Peer};
use simgpu::{Code, Config, HandleProperties, Machine, StoreKind};

const GRANULE: u64 = 2 * MIB;
const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];
const POSIX: HandleProperties = HandleProperties { posix: true, fabric: false, rdma: false };

/// A file that no process has memory in.
fn other_file() -> OwnedFd {
    std::fs::File::open("/dev/zero").unwrap().into()
}

#[test]
fn a_descriptor_keeps_memory_after_its_makers_end() {
    for store in STORES {
        let machines = [(); 2].map(|()| Machine::new(Config::new(store, 1, 64 * MIB)).unwrap());
        let [maker, taker] = machines;
        let handle = maker.create_with(0, 2 * GRANULE, POSIX).unwrap();
        let descriptor = maker.export_handle(0, handle).unwrap();
        let base = maker.reserve(0, 2 * GRANULE, 0).unwrap();
        maker.map(0, base, 2 * GRANULE, handle).unwrap();
        maker.set_access(0, base, 2 * GRANULE, &[0]).unwrap();
        maker.fill(0, 1, base, 2 * GRANULE, 7).unwrap();
        drop(maker);

        // Twice: each import is a handle to be released.
        for _ in 0..2 {
            let imported = taker.import_handle(0, &descriptor).unwrap();
            let place = taker.reserve(0, 2 * GRANULE, 0).unwrap();
            assert_eq!(taker.map(0, place, GRANULE, imported), Err(Code::NOT_SUPPORTED));
            taker.map(0, place, 2 * GRANULE, imported).unwrap();
            taker.set_access(0, place, 2 * GRANULE, &[0]).unwrap();
            assert_eq!(taker.find_other(0, place, 2 * GRANULE, 7), Ok(None));
            assert_eq!(taker.census().used_bytes, 0, "it counts for its maker");
            assert_eq!(taker.imported_bytes(), 2 * GRANULE);
            taker.release(0, imported).unwrap();
            assert_eq!(taker.imported_bytes(), 2 * GRANULE, "the mapping keeps it");
            taker.unmap(0, place, 2 * GRANULE).unwrap();
            taker.unreserve(0, place, 2 * GRANULE).unwrap();
            assert_eq!(taker.imported_bytes(), 0);
            taker.validate().unwrap();
        }
    }
}

#[test]
fn only_memory_made_for_it_has_a_descriptor() {
    for store in STORES {
        let machine = Machine::new(Config::new(store, 1, 64 * MIB)).unwrap();
        let plain = machine.create(0, GRANULE).unwrap();
        assert_eq!(machine.export_handle(0, plain).err(), Some(Code::INVALID_VALUE));
        let shared = machine.create_with(0, GRANULE, POSIX).unwrap();
        let descriptor = machine.export_handle(0, shared).unwrap();
        // Also by the process that made it; an imported handle is not exported again.
        let again = machine.import_handle(0, &descriptor).unwrap();
        assert_eq!(machine.export_handle(0, again).err(), Some(Code::INVALID_VALUE));
        assert_eq!(machine.import_handle(0, &other_file()), Err(Code::INVALID_VALUE));
        for handle in [plain, shared, again] {
            machine.release(0, handle).unwrap();
        }
        assert_eq!(machine.export_handle(0, shared).err(), Some(Code::INVALID_VALUE));
        let kind = STORES.into_iter().find(|&kind| kind != store).unwrap();
        let other = Machine::new(Config::new(kind, 1, 64 * MIB)).unwrap();
        assert_eq!(other.import_handle(0, &descriptor), Err(Code::INVALID_VALUE));
        assert_eq!(machine.census().used_bytes, 0);
        machine.validate().unwrap();
    }
}

#[test]
fn allocations_are_opened_by_other_processes_alone() {
    for store in STORES {
        let (mut here, mut there) = (Peer::start(store, None), Peer::start(store, None));
        // A part of a page, and whole granules.
        for bytes in [700, GRANULE + 512] {
            let address = here.ask(&format!("allocate {bytes}")).unwrap();
            let handle = here.ask(&format!("get {address}")).unwrap();
            assert_eq!(here.ask(&format!("open {handle}")), Err(Code::INVALID_CONTEXT));
            here.ask(&format!("fill {address} {bytes} 5")).unwrap();
            let copy = there.ask(&format!("open {handle}")).unwrap();
            assert_eq!(there.ask(&format!("open {handle}")), Ok(copy.clone()), "the same address");
            there.ask(&format!("expect {copy} {bytes} 5")).unwrap();
            there.ask(&format!("fill {copy} {bytes} 6")).unwrap();
            here.ask(&format!("expect {address} {bytes} 6")).unwrap();
            assert_eq!(there.ask(&format!("free {copy}")), Err(Code::INVALID_VALUE));
            assert_eq!(there.ask(&format!("get {copy}")), Err(Code::INVALID_VALUE));
            there.ask(&format!("close {copy}")).unwrap();
            there.ask(&format!("expect {copy} {bytes} 6")).unwrap();
            there.ask(&format!("close {copy}")).unwrap();
            assert_eq!(there.ask(&format!("close {copy}")), Err(Code::INVALID_VALUE));
            here.ask(&format!("free {address}")).unwrap();
            assert_eq!(there.ask(&format!("open {handle}")), Err(Code::MAP_FAILED));
        }
        let handle = here.ask("create 2097152").unwrap();
        assert_eq!(here.ask(&format!("get {handle}")), Err(Code::INVALID_VALUE));
        here.ask(&format!("release {handle}")).unwrap();
        Peer::finish([here, there]);
    }
}

#[test]
fn freeing_what_is_open_elsewhere_is_a_violation() {
    let (mut here, mut there) = Peer::pair(None);
    let address = here.ask("allocate 4096").unwrap();
    let handle = here.ask(&format!("get {address}")).unwrap();
    there.ask(&format!("open {handle}")).unwrap();
    here.ask(&format!("free {address}")).unwrap();
    assert_eq!(here.ask("violations"), Ok("1".into()));
    // A process that ends has nothing open any more.
    let address = here.ask("allocate 4096").unwrap();
    let handle = here.ask(&format!("get {address}")).unwrap();
    there.ask(&format!("open {handle}")).unwrap();
    there.kill();
    here.ask(&format!("free {address}")).unwrap();
    assert_eq!(here.ask("violations"), Ok("0".into()));
    Peer::finish([here]);
}

#[test]
fn a_handle_of_a_process_that_ended_opens_nothing() {
    let (mut here, mut there) = Peer::pair(None);
    let address = here.ask("allocate 4096").unwrap();
    let memory = here.ask(&format!("get {address}")).unwrap();
    let event = here.ask("event_create").unwrap();
    let event = here.ask(&format!("event_get {event}")).unwrap();
    here.kill();
    assert_eq!(there.ask(&format!("open {memory}")), Err(Code::MAP_FAILED));
    assert_eq!(there.ask(&format!("event_open {event}")), Err(Code::MAP_FAILED));
    // One kind is not taken for the other.
    assert_eq!(there.ask(&format!("open {event}")), Err(Code::INVALID_HANDLE));
    assert_eq!(there.ask(&format!("event_open {memory}")), Err(Code::INVALID_HANDLE));
    assert_eq!(there.ask(&format!("open {}", "0".repeat(128))), Err(Code::INVALID_HANDLE));
    Peer::finish([there]);
}

#[test]
fn a_stream_comes_after_another_processs_event() {
    let (mut here, mut there) = Peer::pair(None);
    let event = here.ask("event_create").unwrap();
    let handle = here.ask(&format!("event_get {event}")).unwrap();
    let opened = there.ask(&format!("event_open {handle}")).unwrap();
    assert_eq!(there.ask(&format!("event_query {opened}")), Ok("true".into()), "never recorded");
    assert_eq!(there.ask(&format!("event_record {opened} 7")), Err(Code::INVALID_HANDLE));
    let address = here.ask("allocate 4096").unwrap();
    for _ in 0..3 {
        here.ask("hold 7 true").unwrap();
        here.ask(&format!("fill_on 7 {address} 4096 1")).unwrap();
        here.ask(&format!("event_record {event} 7")).unwrap();
        assert_eq!(there.ask(&format!("event_query {opened}")), Ok("false".into()));
        there.ask(&format!("event_wait {opened} 9")).unwrap();
        assert_eq!(there.ask("idle 9"), Ok("false".into()));
        here.ask("hold 7 false").unwrap();
        assert_eq!(there.ask(&format!("event_query {opened}")), Ok("true".into()));
        assert_eq!(there.ask("idle 9"), Ok("true".into()));
    }
    here.ask(&format!("free {address}")).unwrap();
    there.ask(&format!("event_destroy {opened}")).unwrap();
    here.ask(&format!("event_destroy {event}")).unwrap();
    assert_eq!(there.ask(&format!("event_open {handle}")), Err(Code::MAP_FAILED));
    Peer::finish([here, there]);
}
