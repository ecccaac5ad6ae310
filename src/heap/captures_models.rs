//! The gate between waits and captures, under drawn schedules: no wait begins while a
//! stream is captured, however the capture was announced.

use std::sync::Arc;

use shuttle::thread;

use super::*;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::schedules;

/// How a capture becomes known before it begins.
#[derive(Clone, Copy)]
enum Way {
    Announced,
    /// By a private pool; its flag has no order of its own (`super::pools`).
    Pool,
}

fn meet(way: Way) {
    let captures = Arc::new(Captures::default());
    let is_routing = Arc::new(AtomicBool::new(false));
    // What the driver knows. It looks as a wait begins.
    let is_capturing = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (captures, is_routing) = (Arc::clone(&captures), Arc::clone(&is_routing));
        let is_capturing = Arc::clone(&is_capturing);
        thread::spawn(move || {
            let may_capture = || is_routing.load(Ordering::Relaxed) || captures.is_any();
            let wait = begin_wait(&captures, may_capture);
            let invalidates = wait.is_ok() && is_capturing.load(SeqCst);
            drop(wait);
            assert!(!invalidates, "a wait began during a capture");
        })
    };
    match way {
        Way::Announced => captures.begin(),
        Way::Pool => {
            is_routing.store(true, Ordering::Relaxed);
            fence(SeqCst);
            captures.become_known();
        }
    }
    is_capturing.store(true, SeqCst);
    is_capturing.store(false, SeqCst);
    match way {
        Way::Announced => assert!(captures.end()),
        Way::Pool => is_routing.store(false, Ordering::Relaxed),
    }
    waiter.join().unwrap();
    assert!(begin_wait(&captures, || captures.is_any()).is_ok());
    assert_eq!(captures.waits.load(SeqCst), 0);
}

#[test]
fn no_wait_begins_during_a_capture() {
    schedules::explore(|seed| {
        meet(if seed % 4 < 2 { Way::Announced } else { Way::Pool });
    });
}
