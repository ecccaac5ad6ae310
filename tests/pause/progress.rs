//! How far a pause or resume is, as the thread's callback is told.

use std::sync::{Arc, Mutex};

use genesis::base::size::{GIB, MIB};
use genesis::base::{Backup, Status};
use genesis::heap::{Keeping, set_progress_callback};
use simgpu::{Call, Code, StoreKind, Target, Times};

use crate::support::{A, Rig, tier};
use crate::{Scene, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    every_kind_is_told_of_to_the_end
    what_is_not_copied_is_done_at_once
    a_failure_ends_before_the_end
}

/// What `act` told: pairs of what is done and what is to be.
fn told(act: impl FnOnce()) -> Vec<(u64, u64)> {
    let pairs = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&pairs);
    set_progress_callback(Some(Arc::new(move |done, total| {
        own.lock().unwrap().push((done, total))
    })));
    act();
    set_progress_callback(None);
    Arc::into_inner(pairs).unwrap().into_inner().unwrap()
}

fn assert_complete(told: &[(u64, u64)], bytes: u64) {
    assert_eq!(told.first(), Some(&(0, bytes)));
    assert_eq!(told.last(), Some(&(bytes, bytes)));
    assert!(told.is_sorted() && told.iter().all(|pair| pair.1 == bytes), "{told:?}");
}

fn kept(backup: Backup) -> Keeping {
    Keeping { backup: Some(backup), version: None }
}

fn live_bytes(rig: &Rig) -> u64 {
    rig.heap.tag_usage(crate::DEVICE).unwrap()[0].live_bytes
}

fn every_kind_is_told_of_to_the_end(store: StoreKind) {
    let rig = subject(store).plan().capacity(GIB).start();
    rig.hold(Some(WEIGHTS), 300 * MIB, A, 1);
    rig.hold(Some(WEIGHTS), 5 * MIB, A, 2);
    let bytes = live_bytes(&rig);
    let every = [Backup::Disk, Backup::Pinned, Backup::Pageable];
    let has_bytes = store == StoreKind::RealBytes;
    for &backup in if has_bytes { tier::some_or_all(&every[..1], &every[..]) } else { &every[..] } {
        let pausing = told(|| rig.heap.pause_tags(Some(WEIGHTS), kept(backup)).unwrap());
        assert_complete(&pausing, bytes);
        assert!(pausing.len() > 2, "in pieces: {pausing:?}");
        assert_complete(&told(|| rig.resume(WEIGHTS)), bytes);
    }
    assert_eq!(told(|| rig.pause(WEIGHTS, false)), [], "nothing is copied");
    assert_eq!(told(|| rig.resume(WEIGHTS)), []);
    // Other threads have callbacks of their own.
    let elsewhere = || {
        std::thread::scope(|scope| scope.spawn(|| rig.pause(WEIGHTS, true)).join().unwrap());
    };
    assert_eq!(told(elsewhere), []);
    rig.resume(WEIGHTS);
    rig.finish_without_host_memory();
}

fn what_is_not_copied_is_done_at_once(store: StoreKind) {
    let scene = Scene::new(store);
    let keeping = Keeping { backup: Some(Backup::Pinned), version: Some(1) };
    let mut all = Vec::new();
    for _ in 0..2 {
        all.push(told(|| scene.rig.heap.pause_tags(Some(WEIGHTS), keeping).unwrap()));
        scene.rig.resume(WEIGHTS);
    }
    let bytes = all[0][0].1;
    all.iter().for_each(|told| assert_complete(told, bytes));
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn a_failure_ends_before_the_end(store: StoreKind) {
    let scene = Scene::new(store);
    let faults = scene.rig.machine.faults();
    faults.fail(Target::call(Call::CopyToHost), 2, Times::Once, Code(12345));
    let pausing = told(|| {
        let failed = scene.rig.heap.pause(WEIGHTS, true).unwrap_err();
        assert_eq!(failed.status, Status::DriverFailed);
    });
    assert!(pausing.iter().all(|(done, total)| done < total), "{pausing:?}");
    scene.finish();
}
