//! A snapshot can be undone entry by entry, as the viewer does.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::model::{Device, Event, Levels, Stream};
use crate::sample::{Shape, shaped};

fn as_json(profile: &Profile) -> Value {
    let mut bytes = Vec::new();
    write_json(profile, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Undoes the entries as `MemoryViz.js` does and fails where it would; returns the blocks and the
/// mapped bytes before the first entry.
fn go_back(snapshot: &Value, device: usize) -> (usize, u64) {
    let of = |value: &Value, key: &str| value[key].as_u64().unwrap();
    let mut mapped: BTreeMap<u64, u64> = BTreeMap::new();
    let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
    let segments = snapshot["segments"].as_array().unwrap();
    for segment in segments.iter().filter(|segment| of(segment, "device") == device as u64) {
        let (mut at, mut total) = (of(segment, "address"), 0);
        mapped.insert(at, at + of(segment, "total_size"));
        for block in segment["blocks"].as_array().unwrap() {
            assert_eq!(of(block, "address"), at);
            if block["state"] != "inactive" {
                blocks.insert(at, at + of(block, "size"));
            }
            at += of(block, "size");
            total += of(block, "size");
        }
        assert_eq!(total, of(segment, "total_size"));
    }
    for entry in snapshot["device_traces"][device].as_array().unwrap().iter().rev() {
        let action = entry["action"].as_str().unwrap();
        if matches!(action, "oom" | "snapshot") {
            continue;
        }
        let (start, end) = (of(entry, "addr"), of(entry, "addr") + of(entry, "size"));
        match action {
            "alloc" => drop(blocks.remove(&start)),
            "free_requested" => assert!(blocks.contains_key(&start), "{entry}"),
            "free_completed" => drop(blocks.insert(start, end)),
            "segment_unmap" | "segment_free" => {
                assert!(mapped.range(..end).next_back().is_none_or(|(_, &to)| to <= start));
                mapped.insert(start, end);
            }
            "segment_alloc" => assert_eq!(mapped.remove(&start), Some(end), "{entry}"),
            "segment_map" => {
                let (&from, &to) = mapped.range(..=start).next_back().unwrap();
                assert!(end <= to, "{entry}");
                mapped.remove(&from);
                let rest = [(from, start), (end, to)].into_iter().filter(|(a, b)| a < b);
                mapped.extend(rest);
            }
            other => panic!("{other}"),
        }
        for (from, to) in blocks.iter().next_back().into_iter().chain(blocks.get_key_value(&start))
        {
            let mut at = *from;
            while at < *to {
                let piece = mapped.range(..=at).next_back().filter(|(_, end)| **end > at);
                at = *piece.unwrap_or_else(|| panic!("{entry} is nowhere")).1;
            }
        }
    }
    (blocks.len(), mapped.iter().map(|(from, to)| to - from).sum())
}

#[test]
fn the_viewer_can_go_back_to_the_begin() {
    let profile = shaped(Shape { events: 40_000, kept: 40_000, devices: 2, has_sites: false });
    let snapshot = as_json(&profile);
    assert_eq!(go_back(&snapshot, 0), (0, 0));
    assert_eq!(go_back(&snapshot, 1), (0, 0));
    assert_eq!(snapshot["device_traces"].as_array().unwrap().len(), 2);
    let entries = snapshot["device_traces"][0].as_array().unwrap();
    let count = |action: &str| entries.iter().filter(|entry| entry["action"] == action).count();
    assert_eq!(count("alloc") as u64, profile.devices[0].allocations);
    assert_eq!(count("free_requested") as u64, profile.devices[0].frees);
    assert!(count("segment_alloc") > count("segment_free") && count("segment_free") > 0);
    let failed = profile.devices[0].out_of_memory_events;
    assert_eq!((count("oom") as u64, count("snapshot")), (failed, 1));
    let total: u64 = profile.devices.iter().map(|device| device.now.reserved_bytes).sum();
    let segments = snapshot["segments"].as_array().unwrap();
    assert_eq!(segments.iter().map(|s| s["total_size"].as_u64().unwrap()).sum::<u64>(), total);
    let live: u64 = profile.devices.iter().map(|device| device.now.allocated_bytes).sum();
    assert_eq!(segments.iter().map(|s| s["allocated_size"].as_u64().unwrap()).sum::<u64>(), live);
}

#[test]
fn a_history_without_its_begin_goes_back_too() {
    let profile = shaped(Shape { events: 30_000, kept: 7_000, devices: 1, has_sites: false });
    let (blocks, mapped) = go_back(&as_json(&profile), 0);
    assert_eq!(blocks, profile.history.start_live.len());
    assert!(mapped > 0);
}

/// Memory whose home moved without an event, and holes in an area.
#[test]
fn moved_memory_fits_wherever_it_is_said_to_be() {
    const MIB: u64 = 1 << 20;
    let block = |address, bytes, state| Block { address, bytes, state, ..Block::default() };
    let event = |action, address: u64, bytes| Event {
        action,
        address: address * MIB,
        requested_bytes: bytes * MIB,
        block_bytes: bytes * MIB,
        ..Event::default()
    };
    let area = Segment {
        address: 100 * MIB,
        bytes: 20 * MIB,
        blocks: vec![
            block(100 * MIB, 4 * MIB, BlockState::Live),
            block(104 * MIB, 4 * MIB, BlockState::Unmapped),
            block(108 * MIB, 2 * MIB, BlockState::Free),
            block(110 * MIB, 10 * MIB, BlockState::Paused),
        ],
        ..Segment::default()
    };
    let mut profile = Profile {
        devices: vec![Device::default()],
        streams: vec![Stream::default()],
        segments: vec![area],
        ..Profile::default()
    };
    profile.history.start = vec![Levels::default()];
    profile.history.events = vec![
        event(Action::Map, 104, 6),
        event(Action::Allocate, 104, 4),
        event(Action::Free, 104, 4),
        event(Action::Map, 98, 4),
        event(Action::Allocate, 102, 2),
        event(Action::Free, 102, 2),
        event(Action::Allocate, 100, 4),
    ];
    let snapshot = as_json(&profile);
    assert_eq!(snapshot["segments"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot["segments"][0]["is_expandable"], true);
    let (blocks, mapped) = go_back(&snapshot, 0);
    // Of the home at 98 … 102 only what is mapped at the end can be unmapped.
    assert_eq!((blocks, mapped), (0, 2 * MIB));
}

#[test]
fn numbers_of_every_length_are_pickled() {
    let mut bytes = Vec::new();
    let mut pickle = Pickle::begin(&mut bytes).unwrap();
    pickle.begin_dict().unwrap();
    for value in [0, 255, 256, 65_536, 1 << 31, (1 << 32) - 1, 0x7fff_ffff_ffff, u64::MAX] {
        pickle.number("n", value).unwrap();
    }
    pickle.end_dict().unwrap();
    pickle.end().unwrap();
    let expected: &[&[u8]] = &[
        b"\x80\x02}(",
        b"X\x01\0\0\0nq\0K\0",
        b"h\0K\xff",
        b"h\0M\0\x01",
        b"h\0J\0\0\x01\0",
        b"h\0\x8a\x05\0\0\0\x80\0",
        b"h\0\x8a\x05\xff\xff\xff\xff\0",
        b"h\0\x8a\x07\xff\xff\xff\xff\xff\x7f\0",
        b"h\0\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0",
        b"u.",
    ];
    assert_eq!(bytes, expected.concat());
}
