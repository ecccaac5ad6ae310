//! Calls without the lock return, count and change the same as calls under it. Random calls are
//! made to two machines; one is never quiet, because its script has a rule that never strikes.

use std::sync::{Arc, Mutex};
use std::thread;

use simgpu::{Call, CaptureMode, Code, Config, Machine, Progress, StoreKind, Target, Times, Work};

const DEVICES: u64 = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn machine() -> Arc<Machine> {
    let config = Config::new(StoreKind::AddressesOnly, DEVICES as usize, 64 << 20);
    Machine::new(config).unwrap()
}

/// One step of a program on `machine`; every result as a text.
fn step(
    machine: &Machine,
    random: &mut Random,
    streams: &mut Vec<usize>,
    events: &mut Vec<u64>,
) -> String {
    // Also a device that does not exist, an implicit stream, and an event that never existed.
    let device = random.below(8).min(DEVICES) as u32 % (DEVICES as u32 + 1);
    let of = |list: &[usize], place: u64| list.get(place as usize % (list.len() + 1)).copied();
    let stream = of(streams, random.below(64)).unwrap_or([0, 1, 2, 0x77][random.below(4) as usize]);
    let event = events.get(random.below(64) as usize % (events.len() + 1)).copied().unwrap_or(999);
    match random.below(100) {
        0..6 => {
            let made = machine.stream_create(device, random.below(3) == 0);
            streams.extend(made.ok());
            format!("{made:?}")
        }
        6..12 => {
            let timing = random.below(4) == 0;
            let made = machine.event_create(device, timing);
            events.extend(made.ok());
            format!("{made:?}")
        }
        12..35 => format!("{:?}", machine.event_record(device, event, stream)),
        35..55 => format!("{:?}", machine.event_query(device, event)),
        55..65 => format!("{:?}", machine.stream_wait(device, stream, event)),
        65..80 => format!("{:?}", machine.capture_info(device, stream)),
        80 => format!("{:?}", machine.stream_destroy(device, stream)),
        81 => format!("{:?}", machine.event_destroy(device, event)),
        82 => format!("{:?}", machine.hold(device, stream, random.below(4) == 0)),
        83 => format!("{:?}", machine.delay(device, stream, 5)),
        84 => format!("{:?}", machine.begin_capture(device, stream, CaptureMode::Global)),
        85..88 => {
            let ended = machine.end_capture(device, stream);
            format!("{:?}", ended.map(|graph| graph.touch_count()))
        }
        88 => {
            let is_manual = random.below(4) == 0;
            machine.set_progress(if is_manual { Progress::Manual } else { Progress::Automatic });
            String::new()
        }
        89 => {
            machine.detect_races(random.below(3) == 0);
            String::new()
        }
        90 => format!("{:?}", machine.touch(device, stream, Work::write(4096, 1, "nowhere"))),
        91 => format!("{:?}", machine.event_synchronize(device, event)),
        92 => format!("{:?}", machine.synchronize(device)),
        93..96 => format!("{:?}", machine.pending(device, stream)),
        _ => {
            let other = events.first().copied().unwrap_or(0);
            format!("{:?}", machine.event_elapsed_ns(other, event))
        }
    }
}

#[test]
fn a_quiet_machine_answers_and_counts_like_any_other() {
    let never = u64::MAX;
    let mut counted = 0;
    for seed in 0..400 {
        let [free, locked] = [machine(), machine()];
        locked.faults().fail(Target::ANY, never, Times::Once, Code(12345));
        let [mut mine, mut theirs] = [(); 2].map(|()| (Random(seed), Vec::new(), Vec::new()));
        for number in 0..500 {
            let (random, streams, events) = &mut mine;
            let answer = step(&free, random, streams, events);
            let (random, streams, events) = &mut theirs;
            let expected = step(&locked, random, streams, events);
            assert_eq!(answer, expected, "seed {seed}, step {number}");
        }
        for device in 0..DEVICES as u32 {
            assert_eq!(free.usage(device), locked.usage(device), "seed {seed}");
            counted += free.usage(device).unwrap().count(Call::EventRecord);
        }
        assert_eq!(free.take_violations().len(), locked.take_violations().len(), "seed {seed}");
        assert_eq!((free.validate(), free.census()), (locked.validate(), locked.census()));
        free.validate().unwrap();
    }
    assert!(counted > 5000, "{counted} events were recorded");
}

#[test]
fn calls_of_many_threads_are_all_counted() {
    const THREADS: u64 = 20;
    const ROUNDS: u64 = 1000;
    let machine = machine();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let stream = machine.stream_create(0, false).unwrap();
                let event = machine.event_create(0, false).unwrap();
                for _ in 0..ROUNDS {
                    machine.event_record(0, event, stream).unwrap();
                    assert_eq!(machine.event_query(0, event), Ok(true));
                    assert_eq!(machine.capture_info(0, stream), Ok(None));
                }
            });
        }
    });
    let usage = machine.usage(0).unwrap();
    for call in [Call::EventRecord, Call::EventQuery, Call::StreamIsCapturing] {
        assert_eq!(usage.count(call), THREADS * ROUNDS);
    }
    let costs = machine.config().costs;
    let price = |call: Call| usage.count(call) * costs.get(call).base_ns();
    assert_eq!(usage.driver_nanoseconds, Call::ALL.map(price).into_iter().sum::<u64>());
}

#[test]
fn each_call_is_told_in_its_thread_before_it_is_made() {
    let machine = machine();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (stream, event) =
        (machine.stream_create(0, false).unwrap(), machine.event_create(0, false).unwrap());
    let (known, asked) = (Arc::clone(&told), Arc::downgrade(&machine));
    machine.before_each_call(move |call| {
        // The machine can be used meanwhile.
        let count = asked.upgrade().unwrap().usage(0).unwrap().count(call);
        known.lock().unwrap().push((thread::current().id(), call, count));
    });
    // Only the first counts.
    machine.before_each_call(|_| unreachable!());
    machine.event_record(0, event, stream).unwrap();
    let other = thread::scope(|scope| {
        let query = scope.spawn(|| {
            machine.event_query(0, event).unwrap();
            thread::current().id()
        });
        query.join().unwrap()
    });
    let own = thread::current().id();
    assert_eq!(*told.lock().unwrap(), [(own, Call::EventRecord, 0), (other, Call::EventQuery, 0)]);
}
