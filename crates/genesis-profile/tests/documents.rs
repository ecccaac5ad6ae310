//! Documents are read back unchanged, and anything else is an error. Every form can be written of
//! any profile.

mod sample;
#[path = "../../../tests/support/tier.rs"]
mod tier;

use genesis_profile::json::{self, ReadError};
use genesis_profile::model::{Action, Event, FORMAT, Levels};
use genesis_profile::{Form, Profile, text};
use proptest::prelude::*;
use sample::{Shape, profile, shaped};

fn as_json(profile: &Profile) -> Vec<u8> {
    written(profile, Form::Json)
}

fn written(profile: &Profile, form: Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    form.write(profile, &mut bytes).unwrap();
    bytes
}

const FORMS: [Form; 7] = [
    Form::Json,
    Form::Html,
    Form::Perfetto,
    Form::Text,
    Form::Prometheus,
    Form::SnapshotPickle,
    Form::SnapshotJson,
];

#[test]
fn what_is_written_is_read() {
    for (events, kept, devices, has_sites) in
        [(0, 0, 1, true), (3_000, 3_000, 1, true), (5_000, 700, 3, false)]
    {
        let profile = shaped(Shape { events, kept, devices, has_sites });
        assert!(json::read(&as_json(&profile)).unwrap() == profile, "{events} events");
    }
}

#[test]
fn an_empty_profile_has_every_form() {
    let empty = Profile { format: FORMAT.to_owned(), ..Profile::default() };
    assert_eq!(json::read(&as_json(&empty)).unwrap(), empty);
    for form in FORMS {
        written(&empty, form);
    }
}

#[test]
fn other_documents_are_refused_in_words() {
    let message = |document: &[u8]| json::read(document).unwrap_err().to_string();
    assert!(message(b"").contains("not a profile"));
    assert!(message(b"[1, 2]").contains("not a profile"));
    assert!(message(b"{\"a\": 1}").contains(FORMAT));
    let newer =
        String::from_utf8(as_json(&profile(10))).unwrap().replace(FORMAT, "genesis profile 2");
    assert!(message(newer.as_bytes()).contains("\"genesis profile 2\""));
    let mut wrong = profile(100);
    wrong.history.events[50].site = 99;
    let error = json::read(&as_json(&wrong)).unwrap_err();
    assert!(matches!(error, ReadError::Inconsistent(_)));
    assert!(error.to_string().contains("event 50 has site 99, of 10"), "{error}");
    let mut wrong = profile(100);
    wrong.segments[0].bytes += 512;
    assert!(message(&as_json(&wrong)).contains("segment 0"));
}

/// Every truncated document is an error. A step that is prime meets every part of a line.
#[test]
fn truncated_documents_are_errors() {
    let document = as_json(&profile(60));
    for end in (0..document.len()).rev().step_by(tier::some_or_all(7, 1)) {
        assert!(json::read(&document[..end]).is_err(), "{end}");
    }
}

/// The sample's sums agree with its events, so that tests of forms mean something.
#[test]
fn the_sample_is_consistent() {
    let whole = shaped(Shape { events: 20_000, kept: 20_000, devices: 2, has_sites: true });
    let cut = shaped(Shape { events: 20_000, kept: 3_000, devices: 2, has_sites: true });
    whole.validate().unwrap();
    cut.validate().unwrap();
    assert_eq!(cut.history.dropped_events, 17_000);
    assert_eq!(cut.devices, whole.devices);
    for device in &whole.devices {
        let live: u64 = (whole.live.iter().filter(|block| block.device == device.ordinal))
            .map(|block| block.block_bytes)
            .sum();
        assert_eq!(live, device.now.allocated_bytes);
        let held = whole.segments.iter().filter(|segment| segment.device == device.ordinal);
        assert_eq!(held.map(|segment| segment.bytes).sum::<u64>(), device.now.reserved_bytes);
        let peaks = &whole.timelines[device.ordinal as usize].peaks;
        let highest = peaks.iter().map(|levels| levels.allocated_bytes).max();
        assert_eq!(highest, Some(device.peak.allocated_bytes));
    }
    let counted: u64 = whole.sizes.iter().map(|size| size.counts.live_bytes).sum();
    assert_eq!(counted, whole.devices.iter().map(|device| device.now.allocated_bytes).sum::<u64>());
}

#[test]
fn the_page_has_no_markup_of_the_profiles() {
    let mut hostile = profile(200);
    let evil = "</script><script>evil(1)</script><!--";
    hostile.program = evil.to_owned();
    hostile.names.iter_mut().for_each(|name| *name = evil.to_owned());
    let page = String::from_utf8(written(&hostile, Form::Html)).unwrap();
    assert!(!page.contains("evil"));
    let plain = String::from_utf8(written(&profile(200), Form::Html)).unwrap();
    assert_eq!(page.matches('<').count(), plain.matches('<').count());
    for word in ["http:", "https:", "import(", "fetch(", "innerHTML"] {
        assert!(!plain.contains(word), "the page has {word}");
    }
}

#[test]
fn the_trace_of_a_long_history_keeps_its_peaks() {
    let profile = profile(300_000);
    let trace: serde_json::Value =
        serde_json::from_slice(&written(&profile, Form::Perfetto)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let highest = |name: &str| {
        let of = events.iter().filter(|event| event["ph"] == "C" && event["name"] == name);
        of.map(|event| event["args"]["bytes"].as_u64().unwrap()).max().unwrap()
    };
    let Levels { requested_bytes, allocated_bytes, active_bytes, reserved_bytes } =
        profile.devices[0].peak;
    assert_eq!(highest("requested"), requested_bytes);
    assert_eq!(highest("allocated"), allocated_bytes);
    assert_eq!(highest("active"), active_bytes);
    assert_eq!(highest("reserved"), reserved_bytes);
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(count("B") > 100 && count("B") >= count("E") && count("i") > 10);
    assert!(count("C") < 4 * 300_000);
}

fn any_event() -> impl Strategy<Value = Event> {
    let small = || prop_oneof![0..6_u64, any::<u64>()];
    let fields = (1..=17_u8, small(), small(), small(), small(), 0..4_u32);
    fields.prop_map(|(action, time_ns, address, requested_bytes, block_bytes, number)| Event {
        action: Action::from_number(action).unwrap(),
        time_ns,
        device: number / 2,
        stream: number,
        address,
        requested_bytes,
        block_bytes,
        site: number,
        name: number,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A document with changed bytes is an error or a profile, of which every form can be written.
    #[test]
    fn corrupted_documents_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut document = as_json(&profile(60));
        for (at, byte) in changes {
            let length = document.len();
            document[at.index(length)] = byte;
        }
        if let Ok(read) = json::read(&document) {
            for form in FORMS {
                written(&read, form);
            }
        }
    }

    /// The library does not check what it writes: no events make a form fail.
    #[test]
    fn no_history_is_too_strange_to_write(events in prop::collection::vec(any_event(), 0..60)) {
        let mut strange = profile(300);
        strange.history.events = events;
        for form in FORMS {
            written(&strange, form);
        }
        text::diff(&profile(300), &strange);
    }
}
