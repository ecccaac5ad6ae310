//! Tests of the table of extents.

use super::*;
use crate::base::DeviceOrdinal;
use crate::observe::EventStream;

#[test]
fn an_extent_stays_while_a_view_of_it_may_come_back() {
    let mut extents = ExtentTable::new(EventStream::silent().of(DeviceOrdinal(0)));
    let id = extents.add(MemoryHandle(1), (4096, SizeClass::Small), None);
    extents.add_view(id, 0, 0x10_0000);
    extents.add_view(id, 1, 0x20_0000);
    extents.come_home(id, 0x10_0000, SizeClass::Small);
    // One thread unmaps the shadow; another one releases the extent meanwhile.
    let shadow = extents.remove_view(id, 0x20_0000).unwrap();
    extents.leave_home(id, 1);
    extents.remove_view(id, 0x10_0000).unwrap();
    extents.forget_view(id);
    assert!(extents.has_views(id), "the shadow may come back");
    extents.put_back_view(id, shadow);
    assert_eq!(extents.at(0x20_0000), Some(id));
    extents.remove_view(id, 0x20_0000).unwrap();
    extents.forget_view(id);
    assert!(!extents.has_views(id));
    assert_eq!(extents.count(), 1);
    extents.remove(id);
    assert_eq!(extents.count(), 0);
    let again = extents.add(MemoryHandle(2), (4096, SizeClass::Small), None);
    assert_eq!(again, id, "a number again");
    assert!(!extents.has_views(id));
}

#[test]
fn what_rests_is_summed_up() {
    let mut extents = ExtentTable::new(EventStream::silent().of(DeviceOrdinal(0)));
    let resting_bytes = Arc::clone(extents.resting_bytes());
    let ids =
        [4096, 8192].map(|bytes| extents.add(MemoryHandle(1), (bytes, SizeClass::Small), None));
    ids.into_iter().for_each(|id| extents.rest(id));
    assert_eq!(resting_bytes.load(Relaxed), 12_288);
    assert!(extents.wake(ids[0]) && !extents.wake(ids[0]));
    assert_eq!(resting_bytes.load(Relaxed), 8192);
    extents.rest(ids[0]);
    extents.validate().unwrap();
}

/// Extents of 4096 and 8192 bytes, each with a home of its own and a shadow that was never left.
fn pair() -> (ExtentTable, [ExtentId; 2]) {
    let mut extents = ExtentTable::new(EventStream::silent().of(DeviceOrdinal(0)));
    let ids = [(4096, SizeClass::Small), (8192, SizeClass::Large)].map(|of| {
        let id = extents.add(MemoryHandle(1), of, None);
        let address = 0x10_0000 * u64::from(id + 1);
        extents.add_view(id, 3, address);
        extents.add_view(id, 4, address + 0x1_0000);
        extents.come_home(id, address, of.1);
        id
    });
    (extents, ids)
}

#[test]
fn views_are_found_by_their_addresses() {
    let (extents, [small, large]) = pair();
    assert_eq!((extents.count(), extents.shadow_count()), (2, 2));
    let all = [(0x10_0000, small), (0x11_0000, small), (0x20_0000, large), (0x21_0000, large)];
    assert_eq!(extents.within(0..u64::MAX).collect::<Vec<_>>(), all);
    assert_eq!(extents.within(0x10_0001..0x20_2000).collect::<Vec<_>>(), all[1..3]);
    assert_eq!(extents.within(0x10_0001..0x20_1fff).collect::<Vec<_>>(), all[1..2]);
    assert_eq!(extents.touching(0x10_0fff..0x20_0001), all[..3]);
    assert_eq!(extents.touching(0x10_1000..0x20_0000), all[1..2]);
    assert_eq!(extents.touching(0..0x10_0000), []);
    assert_eq!(extents.at(0x20_0000), Some(large));
    assert_eq!(extents.at(0x20_0200), None);
}

#[test]
fn shadows_go_in_the_order_in_which_they_were_left() {
    let (mut extents, [small, large]) = pair();
    let left = |extents: &ExtentTable| SizeClass::ALL.map(|class| extents.left_bytes(class));
    extents.leave_home(small, 5);
    extents.come_home(small, 0x11_0000, SizeClass::Small);
    extents.leave_home(small, 6);
    extents.leave_home(large, 7);
    assert_eq!(left(&extents), [8192, 8192]);
    assert_eq!(extents.next_of_round(SizeClass::Small), None, "no round has begun");
    extents.begin_round(SizeClass::Small);
    let (id, view) = extents.next_of_round(SizeClass::Small).unwrap();
    assert_eq!((id, view.address, view.left_epoch, view.lane), (small, 0x10_0000, 5, 3));
    let (_, next) = extents.next_of_round(SizeClass::Small).unwrap();
    assert_eq!((next.address, next.left_epoch), (0x11_0000, 6));
    assert_eq!(extents.next_of_round(SizeClass::Small), None);
    // Of the next round, one becomes a home again, and is skipped.
    extents.begin_round(SizeClass::Small);
    extents.come_home(small, 0x10_0000, SizeClass::Small);
    assert_eq!(extents.next_of_round(SizeClass::Small), Some((small, next)));
    assert_eq!(extents.next_of_round(SizeClass::Small), None);
    assert_eq!(left(&extents), [4096, 8192]);
    // Unmapping the large one's shadow is refused, and then done.
    let gone = extents.remove_view(large, 0x20_0000).unwrap();
    assert_eq!((left(&extents), extents.shadow_count()), ([4096, 0], 2));
    extents.put_back_view(large, gone);
    assert_eq!((left(&extents), extents.shadow_count()), ([4096, 8192], 3));
    extents.rest(large);
    extents.validate().unwrap();
}

/// What is left during a round is not in it: it is younger than all that are.
#[test]
fn what_is_left_during_a_round_comes_in_the_next() {
    let (mut extents, [small, _]) = pair();
    let next = |extents: &mut ExtentTable| {
        extents.next_of_round(SizeClass::Small).map(|(_, view)| (view.address, view.left_epoch))
    };
    extents.leave_home(small, 1);
    extents.begin_round(SizeClass::Small);
    extents.come_home(small, 0x10_0000, SizeClass::Small);
    extents.leave_home(small, 2);
    assert_eq!(next(&mut extents), None);
    extents.begin_round(SizeClass::Small);
    assert_eq!(next(&mut extents), Some((0x10_0000, 2)));
}

/// To change a home is to leave it and to come home elsewhere.
#[test]
fn a_home_changes_as_if_it_was_left() {
    let of = |extents: &ExtentTable, id| {
        let extent = extents.get(id).unwrap();
        let astray: Vec<_> = extents.strays(3).map(|(id, _)| id).collect();
        let left = SizeClass::ALL.map(|class| extents.left_bytes(class));
        let places = (extent.home, extent.origin, extent.shadows.clone(), astray);
        (extent.class, places, left, extents.shadow_count())
    };
    let (mut extents, [small, _]) = pair();
    let (mut stepwise, _) = pair();
    for (address, class, epoch) in
        [(0x11_0000, SizeClass::Large, 5), (0x10_0000, SizeClass::Small, 6)]
    {
        let before = extents.get(small).unwrap().class;
        assert_eq!(extents.change_home(small, address, class, epoch), Some(before));
        stepwise.leave_home(small, epoch);
        stepwise.come_home(small, address, class);
        assert_eq!(of(&extents, small), of(&stepwise, small));
        extents.validate().unwrap();
    }
    // Without the view at its origin, where it goes next is its origin.
    for table in [&mut extents, &mut stepwise] {
        table.add_view(small, 3, 0x12_0000);
        table.leave_home(small, 6);
        table.come_home(small, 0x11_0000, SizeClass::Small);
        table.remove_view(small, 0x10_0000).unwrap();
        table.forget_view(small);
    }
    extents.change_home(small, 0x12_0000, SizeClass::Small, 7).unwrap();
    stepwise.leave_home(small, 7);
    stepwise.come_home(small, 0x12_0000, SizeClass::Small);
    assert_eq!(extents.get(small).unwrap().origin, Some((3, 0x12_0000)));
    assert_eq!(of(&extents, small), of(&stepwise, small));
    let before = of(&extents, small);
    assert_eq!(extents.change_home(small, 0x13_0000, SizeClass::Small, 7), None);
    assert_eq!(of(&extents, small), before);
    extents.leave_home(small, 8);
    assert_eq!(extents.change_home(small, 0x11_0000, SizeClass::Small, 9), None);
}

#[test]
fn strays_are_known_by_where_they_first_lived() {
    let (mut extents, [small, large]) = pair();
    let ids =
        |extents: &ExtentTable, lane| extents.strays(lane).map(|(id, _)| id).collect::<Vec<_>>();
    assert!(ids(&extents, 3).is_empty() && ids(&extents, 4).is_empty());
    extents.leave_home(small, 1);
    extents.come_home(small, 0x11_0000, SizeClass::Small);
    assert_eq!((ids(&extents, 3), ids(&extents, 4)), (vec![small], Vec::new()));
    // Without the view at its origin it has none.
    extents.remove_view(small, 0x10_0000).unwrap();
    extents.forget_view(small);
    assert!(ids(&extents, 3).is_empty());
    extents.validate().unwrap();

    extents.set_aside(large);
    assert_eq!(extents.homeless_bytes(), 8192);
    assert_eq!((extents.left_bytes(SizeClass::Large), extents.shadow_count()), (0, 2));
    extents.validate().unwrap();
    extents.rest(large);
    assert_eq!(extents.homeless_bytes(), 8192, "it rests, and is set aside no more");
    assert_eq!(extents.resting(), [large]);
    extents.validate().unwrap();
}

#[test]
fn an_edge_is_used_through_another_view_until_its_loan_ends() {
    let (mut extents, [_, large]) = pair();
    let edge = Edge { start: 6144, end: 8192 };
    extents.begin_lending(large);
    extents.lend(large, 0x21_0000, (edge, 7));
    let loan = *extents.get(large).and_then(|extent| extent.lending.loan()).unwrap();
    assert_eq!((loan.view.address, loan.edge, loan.slot), (0x21_0000, edge, 7));
    assert_eq!((extents.lent(), extents.shadow_count()), (&[large][..], 1));
    assert_eq!(extents.get(large).unwrap().views().count(), 2);
    assert_eq!(extents.at(0x21_0000), Some(large), "it is still mapped");
    extents.validate().unwrap();
    assert_eq!(extents.end_loan(large, 5), Some(loan));
    assert_eq!(extents.end_loan(large, 5), None);
    assert_eq!((extents.lent().len(), extents.shadow_count()), (0, 2));
    assert_eq!(extents.left_bytes(SizeClass::Large), 8192);
    extents.begin_round(SizeClass::Large);
    let (_, view) = extents.next_of_round(SizeClass::Large).unwrap();
    assert_eq!((view.address, view.left_epoch), (0x21_0000, 5));
    extents.validate().unwrap();
}

#[test]
fn the_rest_of_an_extent_is_beside_its_edge() {
    let edges = [Edge { start: 0, end: 512 }, Edge { start: 3584, end: 4096 }];
    let rests = edges.map(|edge| edge.rest(4096));
    assert_eq!(rests, [Edge { start: 512, end: 4096 }, Edge { start: 0, end: 3584 }]);
    assert_eq!(edges.map(Edge::bytes), [512; 2]);
}

/// Each thing that may break, and a word of the message.
#[test]
fn what_is_broken_is_named() {
    type Break = fn(&mut ExtentTable, ExtentId);
    let cases: [(&str, Break); 12] = [
        ("not found", |extents, _| _ = extents.views.remove(&0x11_0000)),
        ("home, rest and aside", |extents, id| extents.get_mut(id).unwrap().is_set_aside = true),
        ("home, rest and aside", |extents, id| extents.resting.push(id)),
        ("overlaps", |extents, id| extents.get_mut(id).unwrap().bytes = 0x1_0001),
        ("recorded", |extents, id| _ = extents.views.insert(0x40_0000, id)),
        ("shadows counted", |extents, _| extents.shadow_count += 1),
        ("bytes left", |extents, _| extents.left_bytes[1] += 1),
        ("bytes rest", |extents, _| _ = extents.resting_bytes.fetch_add(1, Relaxed)),
        ("extents recorded", |extents, _| extents.count += 1),
        ("cannot have lent", |extents, id| {
            extents.begin_lending(id);
            extents.lend(id, 0x11_0000, (Edge { start: 512, end: 1024 }, 7));
        }),
        ("edges are lent", |extents, id| {
            extents.begin_lending(id);
            extents.lend(id, 0x11_0000, (Edge { start: 0, end: 512 }, 7));
            extents.lent.push(id);
        }),
        ("astray", |extents, id| extents.get_mut(id).unwrap().origin = Some((9, 0))),
    ];
    for (index, (word, broken)) in cases.into_iter().enumerate() {
        let (mut extents, [small, _]) = pair();
        extents.validate().unwrap();
        broken(&mut extents, small);
        let message = extents.validate().expect_err(word);
        assert!(message.contains(word), "{index}: {message}");
    }
}
