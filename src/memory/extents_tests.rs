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
    extents.remove(id);
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
