//! All methods are safe from any thread.

use std::sync::Mutex;

use genesis::base::StreamHandle;

use crate::subject::{PLAIN, Subject};

const THREADS: u8 = 8;
const ROUNDS: u8 = 20;

/// Threads allocate, map, unmap and free at once. What they hold never overlaps, and never shows
/// another thread's bytes.
pub(crate) fn memory_from_many_threads(subject: &Subject) {
    let live: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let bytes_are_real = subject.device_bytes;
    let enter = |address: u64, bytes: u64| {
        let mut live = live.lock().unwrap();
        let overlap = live.iter().find(|(at, of)| address < at + of && *at < address + bytes);
        assert_eq!(overlap, None, "{address:#x} of {bytes} bytes");
        live.push((address, bytes));
    };
    let leave = |address: u64| live.lock().unwrap().retain(|(at, _)| *at != address);
    let exercise = |address: u64, bytes: u64, seed: u8| {
        if bytes_are_real {
            crate::subject::write_pattern(address, bytes, seed);
            std::thread::yield_now();
            assert!(crate::subject::has_pattern(address, bytes, seed));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (enter, leave, exercise) = (&enter, &leave, &exercise);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = 1 + u64::from(thread) * 997 + u64::from(round) * 100_003;
                    let address = driver.allocate(bytes).unwrap();
                    enter(address, bytes);
                    exercise(address, bytes, thread);

                    let base = driver.reserve(2 * granule, 0).unwrap();
                    let handle = driver.create(granule, PLAIN).unwrap();
                    driver.map(base + granule, granule, handle).unwrap();
                    driver.set_access(base + granule, granule, &[]).unwrap();
                    enter(base, 2 * granule);
                    exercise(base + granule, granule, thread);
                    leave(base);
                    driver.unmap(base + granule, granule).unwrap();
                    driver.release(handle).unwrap();
                    driver.unreserve(base, 2 * granule).unwrap();

                    exercise(address, bytes, thread);
                    leave(address);
                    driver.free(address).unwrap();
                }
            });
        }
    });
}

pub(crate) fn events_from_many_threads(subject: &Subject) {
    let driver = &*subject.driver;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let event = driver.event_create().unwrap();
                    driver.event_record(event, StreamHandle::PER_THREAD).unwrap();
                    driver.stream_wait(StreamHandle::LEGACY, event).unwrap();
                    driver.event_synchronize(event).unwrap();
                    assert_eq!(driver.event_query(event), Ok(true));
                    driver.event_destroy(event).unwrap();
                }
                driver.synchronize().unwrap();
            });
        }
    });
}
