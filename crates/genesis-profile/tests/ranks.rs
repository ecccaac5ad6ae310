//! Several processes' profiles: as one, and side by side.

mod sample;

use genesis_profile::merge::merge;
use genesis_profile::model::{Action, Device, Event, History, Levels, Profile};
use genesis_profile::{levels, text};
use sample::{Shape, shaped};

const GIB: u64 = 1 << 30;

/// A process that holds so many GiB in each step, and then nothing.
fn process(held: &[u64]) -> Profile {
    let mut events = Vec::new();
    for (step, gib) in (0..).zip(held) {
        let bytes = gib * GIB;
        let block = Event {
            requested_bytes: bytes,
            block_bytes: bytes,
            address: 1 << 40,
            time_ns: step * 10,
            ..Event::default()
        };
        events.push(Event { action: Action::Allocate, ..block });
        events.push(Event { action: Action::Free, time_ns: step * 10 + 5, ..block });
        let (action, time_ns) = (Action::Iteration, step * 10 + 6);
        events.push(Event { action, time_ns, requested_bytes: step, ..Event::default() });
    }
    let most = held.iter().max().unwrap() * GIB;
    let peak = Levels { requested_bytes: most, reserved_bytes: most, ..Levels::default() };
    let device = Device { usable_bytes: 80 * GIB, peak, ..Device::default() };
    let history = History { events, start: vec![Levels::default()], ..History::default() };
    Profile { devices: vec![device], history, ..Profile::default() }
}

fn named(processes: Vec<Profile>) -> Vec<(String, Profile)> {
    (0..).zip(processes).map(|(rank, profile)| (format!("rank {rank}"), profile)).collect()
}

#[test]
fn the_fullest_and_the_odd_one_are_named() {
    let report = text::ranks(&named(vec![
        process(&[10, 12, 11]),
        process(&[10, 12, 11]),
        process(&[10, 30, 11]),
    ]));
    for line in [
        "Genesis memory of 3 processes",
        "The fullest: rank 2, with 50.0 GiB left at its peak",
        "The odd one out: rank 2, whose live peak is 30.0 GiB, +18.0 GiB from the median of 12.0 GiB",
    ] {
        assert!(report.lines().any(|found| found == line), "{line}:\n{report}");
    }
    let step = report.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    let words: Vec<&str> = step.split_whitespace().collect();
    let expected = "1 12.0 GiB 12.0 GiB 30.0 GiB 30.0 GiB (rank 2) 18.0 GiB";
    assert_eq!(words.join(" "), expected, "{report}");
}

#[test]
fn the_fullest_is_the_one_with_the_least_left_and_of_two_none_is_odd() {
    let mut small = process(&[30]);
    small.devices[0].usable_bytes = 40 * GIB;
    let report = text::ranks(&named(vec![process(&[60]), small]));
    let line = "The fullest: rank 1, with 10.0 GiB left at its peak";
    assert!(report.lines().any(|found| found == line), "{report}");
    assert!(!report.contains("odd one") && !report.contains("unlike"), "{report}");
}

#[test]
fn of_many_the_lowest_and_the_highest_are_shown() {
    let mut processes = vec![process(&[20]); 8];
    processes[5] = process(&[21]);
    processes[6] = process(&[19]);
    let report = text::ranks(&named(processes));
    assert!(report.contains("None is unlike the others"), "{report}");
    let step = report.lines().last().unwrap();
    let words: Vec<&str> = step.split_whitespace().collect();
    let expected = "0 20.0 GiB 19.0 GiB (rank 6) 21.0 GiB (rank 5) 2.0 GiB";
    assert_eq!(words.join(" "), expected, "{report}");
}

#[test]
fn only_whole_steps_that_all_have_are_compared() {
    let mut late = process(&[5, 6, 7]);
    // The first events are not kept, so its first step is not whole.
    late.history.events.remove(0);
    late.history.dropped_events = 1;
    late.history.start[0].requested_bytes = 5 * GIB;
    let report = text::ranks(&named(vec![process(&[5, 6]), late]));
    let first_words = report.lines().filter_map(|line| line.split_whitespace().next());
    let numbers: Vec<u64> = first_words.filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers, [1], "{report}");
    assert!(!text::ranks(&named(vec![Profile::default(), process(&[1])])).contains("same step"));
}

#[test]
fn one_profile_has_what_both_have() {
    let shape = |devices| Shape { events: 3_000, kept: 2_000, devices, has_sites: true };
    let (first, mut second) = (shaped(shape(1)), shaped(shape(2)));
    second.started_unix_ns += 5_000_000_000;
    // Their tables differ, so that a wrong index is seen.
    second.names.iter_mut().for_each(|name| name.push_str(" of the second"));
    for frame in second.sites.iter_mut().flat_map(|site| &mut site.frames) {
        frame.file.push_str(" of the second");
    }
    let both = merge(named(vec![first.clone(), second.clone()]));
    both.validate().unwrap();
    let ordinals: Vec<u32> = both.devices.iter().map(|device| device.ordinal).collect();
    assert_eq!(ordinals, [0, 1, 2]);
    assert!(both.devices[2].name.starts_with("rank 1: "));
    assert_eq!(both.history.events.len(), 4_000);
    assert!(both.history.events.is_sorted_by_key(|event| event.time_ns));
    assert_eq!(both.duration_ns, 5_000_000_000 + second.duration_ns);
    // Every device's levels are what they are alone.
    let last = |profile: &Profile, row: usize| {
        let mut last = profile.history.start[row];
        levels::walk(profile, |_, of, levels| {
            if of == row {
                last = *levels;
            }
        });
        last
    };
    assert_eq!(last(&both, 0), last(&first, 0));
    assert_eq!([1, 2].map(|row| last(&both, row)), [0, 1].map(|row| last(&second, row)));
    // Names, sites and streams are still the same ones.
    let said = |profile: &Profile, event: &Event| {
        let is_named = matches!(event.action, Action::RangePush | Action::Mark);
        let name = if is_named { profile.name(event.name).to_owned() } else { String::new() };
        let stream = profile.streams.get(event.stream as usize).map(|stream| stream.key);
        (event.action, profile.site(event.site).clone(), name, stream)
    };
    let of_second = both.history.events.iter().filter(|event| event.device > 0);
    let expected: Vec<_> = second.history.events.iter().map(|event| said(&second, event)).collect();
    assert_eq!(of_second.map(|event| said(&both, event)).collect::<Vec<_>>(), expected);
    let moved = both.history.events.iter().filter(|event| event.device > 0);
    let times = moved.map(|event| event.time_ns - 5_000_000_000);
    assert!(times.eq(second.history.events.iter().map(|event| event.time_ns)));
    assert_eq!(merge(named(vec![second.clone()])), second, "one alone is what it was");
    // So are what is live, and the segments.
    let live_of = |profile: &Profile, devices: std::ops::Range<u32>| {
        let of_devices = profile.live.iter().filter(|block| devices.contains(&block.device));
        let said = of_devices.map(|block| {
            let stream = &profile.streams[block.stream as usize];
            let (key, device) = (stream.key, stream.device - devices.start);
            (block.block_bytes, profile.site(block.site).clone(), key, device)
        });
        let mut said: Vec<String> = said.map(|block| format!("{block:?}")).collect();
        said.sort();
        said
    };
    assert!(!second.live.is_empty() && !second.timelines.is_empty() && !second.sizes.is_empty());
    assert_eq!(live_of(&both, 0..1), live_of(&first, 0..1));
    assert_eq!(live_of(&both, 1..3), live_of(&second, 0..2));
    assert_eq!(both.segments.len(), first.segments.len() + second.segments.len());
    assert_eq!(
        both.history.start_live.len(),
        first.history.start_live.len() + second.history.start_live.len()
    );
    let addresses = |profile: &Profile| {
        profile.live.iter().map(|block| block.address).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(addresses(&both).len(), addresses(&first).len() + addresses(&second).len());
    // The second's timelines begin as much later as it did.
    for (row, own) in second.timelines.iter().enumerate() {
        let moved = &both.timelines[first.timelines.len() + row];
        let later = (5_000_000_000 / own.interval_ns) as usize;
        assert_eq!(moved.device, own.device + 1);
        assert_eq!(moved.peaks[later..], own.peaks);
        assert!(moved.peaks[..later].iter().all(|peak| *peak == Levels::default()));
    }
    let counted = |profile: &Profile| {
        let sizes = profile.sizes.iter().map(|size| size.counts.allocations);
        let sites = profile.call_sites.iter().map(|site| site.counts.allocations);
        [sizes.sum::<u64>(), sites.sum()]
    };
    let sum = |index| counted(&first)[index] + counted(&second)[index];
    assert_eq!(counted(&both), [sum(0), sum(1)]);
    let per_site = |profile: &Profile, name: &str| {
        let of_name = profile
            .call_sites
            .iter()
            .filter(|summary| format!("{:?}", profile.site(summary.site)).contains(name));
        of_name.map(|summary| summary.counts.allocations).sum::<u64>()
    };
    for name in ["Embedding", "Adam", "all_gather"] {
        let sum = per_site(&first, name) + per_site(&second, name);
        assert_eq!(per_site(&both, name), sum, "{name}");
    }
}
