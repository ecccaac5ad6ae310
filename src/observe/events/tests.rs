//! Several consumers of one stream: each gets every event noted while it was attached, in order and
//! once. One that fails gets no more, and the others go on.

use super::*;

/// Keeps its events until it is told to fail.
#[derive(Default)]
struct Keeper {
    addresses: Vec<u64>,
    times: Vec<u64>,
    fails_at: Option<u64>,
    panics: bool,
    failure: Option<Error>,
}

impl Consumer for Keeper {
    fn take(&mut self, event: &Event) {
        assert!(!self.panics, "as told");
        self.addresses.push(event.address);
        self.times.push(event.time);
    }

    fn settle(&mut self, _is_asked: bool) -> Result<Duration> {
        match self.fails_at {
            Some(address) if self.addresses.contains(&address) => {
                Err(Error::new(Status::FileFailed, "as told"))
            }
            _ => Ok(Duration::from_secs(1)),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failure = Some(error.clone());
    }
}

fn stream() -> &'static EventStream {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    Box::leak(Box::new(EventStream::with_clock(|| TICKS.fetch_add(1, Relaxed))))
}

fn note(stream: &EventStream, addresses: std::ops::Range<u64>) {
    for address in addresses {
        stream.note(Event { address, ..Event::new(Action::Free, DeviceOrdinal(0)) });
    }
}

fn attach(stream: &'static EventStream, keeper: Keeper) -> (Arc<Mutex<Keeper>>, Subscription) {
    let keeper = Arc::new(Mutex::new(keeper));
    let consumer = Arc::clone(&keeper);
    (keeper, stream.attach(consumer).unwrap())
}

#[test]
fn each_gets_what_was_noted_while_it_was_attached() {
    const MANY: u64 = 3 * CAPACITY as u64;
    let stream = stream();
    assert!(!stream.is_on());
    let (first, of_first) = attach(stream, Keeper::default());
    assert!(stream.is_on());
    note(stream, 0..10);
    let (second, of_second) = attach(stream, Keeper::default());
    note(stream, 10..MANY);
    stream.detach(&of_first, None).unwrap();
    assert!(stream.is_on());
    note(stream, MANY..MANY + 5);
    of_second.flush().unwrap();
    assert!(first.lock().unwrap().addresses.iter().copied().eq(0..MANY));
    assert!(second.lock().unwrap().addresses.iter().copied().eq(10..MANY + 5));
    stream.detach(&of_second, None).unwrap();
    assert!(!stream.is_on());
    assert!(second.lock().unwrap().times.is_sorted());

    // Noted without a consumer: lost.
    note(stream, 0..1);
    let (third, of_third) = attach(stream, Keeper::default());
    note(stream, 1..2);
    stream.detach(&of_third, None).unwrap();
    assert_eq!(third.lock().unwrap().addresses, [1]);
}

#[test]
fn one_that_fails_is_left_out_and_the_others_are_not() {
    let stream = stream();
    let (good, of_good) = attach(stream, Keeper::default());
    let (failing, of_failing) = attach(stream, Keeper { fails_at: Some(7), ..Keeper::default() });
    let (_, of_defect) = attach(stream, Keeper { panics: true, ..Keeper::default() });
    note(stream, 0..8);
    of_good.flush().unwrap();
    assert_eq!(of_failing.flush().unwrap_err().message, "as told");
    assert_eq!(of_defect.outcome().unwrap_err().status, Status::Internal);
    note(stream, 8..12);
    for (subscription, status) in
        [(&of_failing, Status::FileFailed), (&of_defect, Status::Internal)]
    {
        assert_eq!(stream.detach(subscription, None).unwrap_err().status, status);
    }
    assert!(failing.lock().unwrap().failure.is_some());
    assert!(stream.is_on());
    stream.detach(&of_good, None).unwrap();
    assert!(good.lock().unwrap().addresses.iter().copied().eq(0..12));
    assert!(!stream.is_on());
}

/// Threads that attach and detach at the same time wait for each other.
#[test]
fn consumers_come_and_go_on_many_threads() {
    let stream = stream();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let (keeper, subscription) = attach(stream, Keeper::default());
                    note(stream, 0..10);
                    stream.detach(&subscription, None).unwrap();
                    assert!(keeper.lock().unwrap().addresses.len() >= 10);
                }
            });
        }
    });
    assert!(!stream.is_on());
}

/// A flush that another thread asks for meanwhile may pass on new events: also to a new consumer,
/// whose command is behind it.
#[test]
fn a_flush_of_others_takes_nothing_from_a_new_consumer() {
    let stream = stream();
    let (_, of_other) = attach(stream, Keeper::default());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                of_other.flush().unwrap();
            }
        });
        let counts = (0..2000).map(|_| {
            let (keeper, subscription) = attach(stream, Keeper::default());
            note(stream, 0..10);
            stream.detach(&subscription, None).unwrap();
            keeper.lock().unwrap().addresses.len()
        });
        let counts: Vec<usize> = counts.filter(|&count| count != 10).collect();
        is_over.store(true, Relaxed);
        assert!(counts.is_empty(), "{counts:?} of 10 events");
    });
    stream.detach(&of_other, None).unwrap();
}
