//! What is live, with places, ages and tags; and the report of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use genesis::base::DeviceOrdinal;
use genesis::base::size::MIB;
use genesis::config::{DebugModes, PoolType};
use simgpu::StoreKind;

use crate::support::{A, B, DEVICE};
use crate::{LEAKS, at, everywhere, plain, plan};

#[test]
fn leaks_are_told_by_place() {
    everywhere(LEAKS, |rig| {
        assert_eq!(rig.heap.leak_report(), None);
        at(1);
        let freed = rig.allocate(4 * MIB, A);
        at(40);
        rig.allocate(1000, A);
        rig.allocate(1000, B);
        at(50);
        let last = rig.allocate(2 * MIB, B);
        rig.free(freed);
        let report = rig.heap.leak_report().unwrap();
        let mut lines = report.lines();
        assert_eq!(lines.next(), Some("3 blocks of 2.00 MiB live at exit:"), "{report}");
        let line = plain(lines.next().unwrap());
        assert!(
            line.starts_with("  1 block of 2.00 MiB (2097152 bytes at A), device 0, "),
            "{line}"
        );
        assert!(line.ends_with(" s old, allocated at program.c:50 (main)"), "{line}");
        let line = lines.next().unwrap();
        assert!(line.starts_with("  2 blocks of 1.95 KiB, 1000 bytes each, device 0, "), "{line}");
        assert!(line.ends_with(" s old, allocated at program.c:40 (main)"), "{line}");
        assert_eq!(lines.next(), None);
        rig.free(last);
        assert!(rig.heap.leak_report().unwrap().starts_with("2 blocks of "));
        rig.finish();
    });
}

#[test]
fn details_are_of_the_blocks_that_were_seen() {
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let plan = plan(PoolType::Elastic, StoreKind::AddressesOnly, DebugModes::OFF)
        .devices(2, 64 * MIB)
        .clock(move || Duration::from_secs(clock.load(Relaxed)));
    let rig = plan.start();
    let before = rig.allocate(3 * MIB, A);
    let mut settings = rig.heap.settings();
    settings.debug = LEAKS;
    rig.heap.apply(&settings);
    at(5);
    now.store(10, Relaxed);
    rig.heap.begin_tag("weights").unwrap();
    let tagged = rig.heap.allocate(2 * MIB, DeviceOrdinal(1), B).unwrap();
    rig.heap.end_tag().unwrap();
    now.store(25, Relaxed);

    let live = rig.heap.live_details(None, 0).unwrap();
    let seen: Vec<_> =
        live.iter().map(|one| (one.block.address, one.site, one.age, one.tag.as_deref())).collect();
    let age = Some(Duration::from_secs(15));
    assert_eq!(seen, [(before, 0, None, None), (tagged, 5, age, Some("weights"))]);
    assert_eq!(rig.heap.live_details(Some(DEVICE), 0).unwrap().len(), 1);
    assert_eq!(rig.heap.live_details(None, 3 * MIB).unwrap().len(), 1);
    assert!(rig.heap.live_details(Some(DeviceOrdinal(2)), 0).is_err());

    rig.heap.pause("weights", true).unwrap();
    let report = rig.heap.leak_report().unwrap();
    let lines: Vec<String> = report.lines().map(plain).collect();
    assert_eq!(
        lines,
        [
            "2 blocks of 5.00 MiB live at exit:",
            "  1 block of 3.00 MiB (3145728 bytes at A), device 0, allocated at a place not known",
            "  1 block of 2.00 MiB (2097152 bytes at A), device 1, tag \"weights\", 15.000 s old, \
             allocated at program.c:5 (main)",
        ]
    );
    rig.heap.resume("weights").unwrap();
    rig.finish();
}
