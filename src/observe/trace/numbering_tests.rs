//! The records of events, also of those that only a faulty program makes.

use super::*;
use crate::base::DeviceOrdinal;

fn event(action: Action, address: u64, stream: u64, amount: u64) -> Event {
    Event { stream, address, amount, ..Event::new(action, DeviceOrdinal(3)) }
}

fn allocate(address: u64) -> Event {
    event(Action::Allocate, address, 0, 100)
}

fn free(address: u64) -> Event {
    event(Action::Free, address, 0, 0)
}

/// The records that events make, as (op, device, stream, id, size).
fn records(numbering: &mut Numbering, events: &[Event]) -> Vec<(u8, u8, u16, u32, u64)> {
    let mut made = Vec::new();
    for event in events {
        numbering.add(event, |record| {
            let [op, device, s0, s1, i0, i1, i2, i3, size @ ..] = record;
            let (stream, id) = (u16::from_le_bytes([s0, s1]), u32::from_le_bytes([i0, i1, i2, i3]));
            made.push((op, device, stream, id, u64::from_le_bytes(size)));
        });
    }
    made
}

#[test]
fn blocks_keep_id_device_and_stream_from_allocation_to_free() {
    let mut numbering = Numbering::default();
    let made = records(
        &mut numbering,
        &[
            event(Action::Allocate, 0x1000, 77, 100),
            event(Action::Allocate, 0x2000, 88, 200),
            event(Action::RecordStream, 0x1000, 99, 0),
            free(0x1000),
            event(Action::Allocate, 0x1000, 88, 300),
            event(Action::EmptyCache, 0, 0, 0),
            event(Action::EndIteration, 0, 0, 12),
        ],
    );
    assert_eq!(
        made,
        [
            (1, 3, 0, 0, 100),
            (1, 3, 1, 1, 200),
            (3, 3, 2, 0, 0),
            (2, 3, 0, 0, 0),
            (1, 3, 1, 2, 300),
            (4, 3, 0, 0, 0),
            (5, 0, 0, 12, 0),
        ]
    );
    assert_eq!((numbering.records, numbering.left_out), (7, 0));
}

#[test]
fn what_is_not_in_the_trace_is_left_out_and_counted() {
    let mut numbering = Numbering::default();
    let strangers = [free(0x1000), event(Action::RecordStream, 0x1000, 5, 0)];
    assert_eq!(records(&mut numbering, &strangers), []);
    let made = records(&mut numbering, &[allocate(0x1000), free(0x1000), free(0x1000)]);
    assert_eq!(made, [(1, 3, 0, 0, 100), (2, 3, 0, 0, 0)]);
    assert_eq!((numbering.records, numbering.left_out), (2, 3));
}

#[test]
fn a_missed_free_is_put_in() {
    let mut numbering = Numbering::default();
    let made = records(&mut numbering, &[allocate(0x1000), allocate(0x1000)]);
    assert_eq!(made, [(1, 3, 0, 0, 100), (2, 3, 0, 0, 0), (1, 3, 0, 1, 100)]);
    assert_eq!(numbering.put_in, 1);
}

#[test]
fn nothing_is_freed_at_once() {
    let mut numbering = Numbering::default();
    let nothing = event(Action::Allocate, 0, 0, 0);
    let made = records(&mut numbering, &[nothing, nothing]);
    assert_eq!(made, [(1, 3, 0, 0, 0), (2, 3, 0, 0, 0), (1, 3, 0, 1, 0), (2, 3, 0, 1, 0)]);
    assert!(numbering.live.is_empty());
}

#[test]
fn ids_begin_anew_and_pass_over_those_of_live_blocks() {
    let mut numbering = Numbering::default();
    let old = [allocate(0x1000), allocate(0x2000), allocate(0x3000), free(0x2000)];
    records(&mut numbering, &old);
    numbering.next_id = u32::MAX;
    let ids = |made: Vec<(u8, u8, u16, u32, u64)>| -> Vec<u32> {
        made.into_iter().map(|(_, _, _, id, _)| id).collect()
    };
    let more: Vec<Event> = (4..8).map(|n| allocate(n << 12)).collect();
    assert_eq!(ids(records(&mut numbering, &more)), [u32::MAX, 1, 3, 4]);
    // The second time round, among the ids of the first.
    records(&mut numbering, &[free(0x1000), free(0x4000)]);
    numbering.next_id = u32::MAX;
    let more: Vec<Event> = (8..11).map(|n| allocate(n << 12)).collect();
    assert_eq!(ids(records(&mut numbering, &more)), [u32::MAX, 0, 5]);
    assert_eq!(numbering.ids_in_use.as_ref().unwrap().len(), numbering.live.len());
}

#[test]
fn streams_beyond_the_last_number_share_it() {
    let mut numbering = Numbering::default();
    for stream in 0..70_000 {
        numbering.add(&event(Action::Allocate, 0, stream, 0), |_| ());
    }
    let made = records(&mut numbering, &[event(Action::Allocate, 0, 65_534, 0), allocate(0)]);
    assert_eq!((made[0].2, made[2].2), (65_534, 0));
    let made = records(&mut numbering, &[event(Action::Allocate, 0, 69_999, 0)]);
    assert_eq!(made[0].2, u16::MAX);
    assert_eq!(numbering.streams_folded, 70_000 - 65_536);
}
