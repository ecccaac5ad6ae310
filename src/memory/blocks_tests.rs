//! Tests of the table of blocks.

use super::*;

#[test]
fn a_block_is_a_cache_line() {
    assert_eq!(size_of::<Block>(), 64);
}

#[test]
fn splitting_and_merging_restore_the_segment() {
    let directory = Arc::new(Directory::new());
    let mut table = BlockTable::new(3, Arc::clone(&directory));
    let segment = Segment { address: 0x10_0000, bytes: 4096, class: SizeClass::Small };
    let first = table.insert(segment);
    let third = table.split(first, 3072);
    let second = table.split(first, 1024);
    table.validate().unwrap();
    assert!(!table.is_whole_segment(second));
    assert_eq!(directory.get(0x10_0400), None, "it was not handed out");
    table.list(second);
    assert_eq!(directory.get(0x10_0400), Some(Entry { lane: 3, slot: second }));
    assert!(table.find(third, 0x10_0c00).is_some());

    table.merge_with_after(second);
    table.validate().unwrap();
    assert!(table.find(third, 0x10_0c00).is_none());
    table.merge_with_after(first);
    assert!(table.is_whole_segment(first));
    assert_eq!(table.remove(first), segment);
    table.validate().unwrap();
    assert!(table.is_empty());
    assert!(table.find(second, 0x10_0400).is_none());
}

fn table() -> (BlockTable, Slot, Slot) {
    let mut table = BlockTable::new(3, Arc::new(Directory::new()));
    let class = SizeClass::Small;
    let first = table.insert(Segment { address: 0x10_0000, bytes: 4096, class });
    let second = table.split(first, 1024);
    (table, first, second)
}

#[test]
fn bytes_are_counted_by_what_the_blocks_are() {
    let (mut table, first, second) = table();
    assert!(!table.is_empty());
    table.list(first);
    table.list(second);
    for (state, backed_bytes, paused_bytes) in [
        (State::Live, 4096, 0),
        (State::Paused, 1024, 3072),
        (State::Paused, 1024, 3072),
        (State::Absent, 1024, 0),
        (State::Pending, 4096, 0),
        (State::Unmapped, 1024, 0),
        (State::Claimed, 1024, 0),
        (State::Free, 4096, 0),
    ] {
        table.turn(second, state);
        assert_eq!(table.backed_bytes(), backed_bytes, "{state:?}");
        assert_eq!(table.paused_bytes(), paused_bytes, "{state:?}");
        table.validate().unwrap();
    }
    table.turn_into_shadow(second, Some(7));
    assert_eq!(table.get(second).links, [7, NO_SLOT]);
    table.turn_into_shadow(second, None);
    assert_eq!(table.get(second).links, [NO_SLOT; 2]);
    assert_eq!((table.backed_bytes(), table.slot_at(0x10_0400)), (1024, Some(second)));
    assert_eq!(table.slot_at(0x10_0600), None);

    let class = SizeClass::Large;
    let area = table.insert_area(Segment { address: 1 << 32, bytes: 1 << 21, class });
    assert_eq!(table.backed_bytes(), 1024);
    table.remove(area);
    assert_eq!(table.backed_bytes(), 1024);
    table.validate().unwrap();
}

#[test]
fn a_joined_block_was_freed_at_the_later_time() {
    for (first_tick, second_tick, requested_bytes) in
        [(4, 5, 2), (5, 4, 1), (5, 5, 1), (u32::MAX, 3, 2), (3, u32::MAX, 1)]
    {
        let (mut table, first, second) = table();
        table.get_mut(first).freed_tick = first_tick;
        table.get_mut(second).freed_tick = second_tick;
        (table.get_mut(first).requested_bytes, table.get_mut(second).requested_bytes) = (1, 2);
        (table.get_mut(first).freed_epoch, table.get_mut(second).freed_epoch) = (8, 9);
        (table.get_mut(first).freed_second, table.get_mut(second).freed_second) = (7, 6);
        table.merge_with_after(first);
        let joined = table.get(first);
        assert_eq!(joined.requested_bytes, requested_bytes, "{first_tick} {second_tick}");
        assert_eq!((joined.freed_epoch, joined.freed_second, joined.bytes), (9, 7, 4096));
    }
}

/// Each thing that may break, and a word of the message.
#[test]
fn what_is_broken_is_named() {
    type Break = fn(&mut BlockTable, Slot, Slot);
    let cases: [(&str, Break); 14] = [
        ("directory", |table, first, _| table.turn(first, State::Live)),
        ("directory", |table, first, _| table.turn(first, State::Pending)),
        ("directory", |table, first, _| table.turn(first, State::Shadow)),
        ("directory", |table, first, _| table.turn(first, State::Paused)),
        ("misaligned", |table, first, _| table.get_mut(first).bytes = 1000),
        ("misaligned", |table, first, _| table.get_mut(first).bytes = 0),
        ("misaligned", |table, first, _| table.get_mut(first).address += 8),
        ("neighbours", |table, _, second| table.get_mut(second).address += 512),
        ("neighbours", |table, _, second| table.get_mut(second).class = SizeClass::Large),
        ("neighbours", |table, _, second| table.get_mut(second).before = second),
        ("neighbours", |table, _, second| table.get_mut(second).state = State::Vacant),
        ("is not after", |table, first, _| table.get_mut(first).before = first),
        ("recorded", |table, _, second| table.get_mut(second).bytes = 512),
        ("recorded", |table, _, _| table.count += 1),
    ];
    for (index, (word, broken)) in cases.into_iter().enumerate() {
        let (mut table, first, second) = table();
        table.validate().unwrap();
        broken(&mut table, first, second);
        let message = table.validate().expect_err(word);
        assert!(message.contains(word), "{index}: {message}");
    }
    let (mut table, _, second) = table();
    table.list(second);
    table.turn(second, State::Paused);
    table.paused_bytes -= 512;
    assert!(table.validate().is_err_and(|message| message.contains("paused")));
}
