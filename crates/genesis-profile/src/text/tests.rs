//! The report and the difference show what the profiles contain.

use super::*;
use crate::model::{LiveBlock, Site, SiteSummary};
use crate::sample::{Shape, profile, shaped};

#[test]
fn the_report_has_every_part() {
    let profile = profile(20_000);
    let text = report(&profile);
    let device = &profile.devices[0];
    for part in [
        "python train.py --layers 24",
        "begun 2026-09-21 14:13:20 UTC",
        "Device 0 · NVIDIA H100",
        "peak of allocated at ",
        ", in step › ",
        "out of memory 1 ×",
        "90.0 GiB requested",
        "Biggest holders at the peak",
        "Biggest holders now",
        "model.py:31 Embedding.__init__",
        "The whole run, by block size",
        "The whole run, by call site",
        &bytes(device.peak.reserved_bytes),
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

#[test]
fn without_call_sites_holders_are_sizes() {
    let text = report(&shaped(Shape { events: 500, kept: 100, devices: 2, has_sites: false }));
    assert!(text.contains("192.0 MiB") && text.contains("Device 1"), "{text}");
    assert!(!text.contains("call site"), "{text}");
    assert!(text.contains("(the latest; 400 before them)"), "{text}");
}

#[test]
fn nothing_is_reported_of_nothing() {
    assert!(report(&Profile::default()).contains("nothing is live"));
}

#[test]
fn what_is_hostile_moves_no_cursor() {
    let mut profile = profile(2_000);
    profile.program = "a\u{1b}[2J\nb".to_owned();
    profile.names.iter_mut().for_each(|name| name.push('\u{7}'));
    assert!(!report(&profile).chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn a_difference_is_sorted_by_growth_whatever_the_numbers_of_sites() {
    let frame = |name: &str| Frame { function: name.to_owned(), ..Frame::default() };
    let site = |name: &str| Site { frames: vec![frame(name)] };
    let block = |site, block_bytes| LiveBlock { site, block_bytes, ..LiveBlock::default() };
    let before = Profile {
        sites: vec![Site::default(), site("leaks"), site("shrinks"), site("stays")],
        call_sites: vec![SiteSummary::default()],
        live: vec![block(1, 1024), block(2, 8192), block(3, 512)],
        ..Profile::default()
    };
    let after = Profile {
        sites: vec![Site::default(), site("stays"), site("new"), site("leaks")],
        live: vec![block(3, 1024), block(3, 1024), block(1, 512), block(2, 512)],
        ..before.clone()
    };
    let text = diff(&before, &after);
    let by_site = text.split("Live bytes by call site").nth(1).unwrap();
    let by_site = by_site.split("Live bytes by").next().unwrap();
    let order: Vec<&str> =
        by_site.lines().filter_map(|line| line.split("  ").last()).skip(2).collect();
    assert_eq!(order, ["leaks", "new", "shrinks", ""], "{text}");
    assert!(by_site.contains("+1.0 KiB") && by_site.contains("1 → 2"), "{text}");
    assert!(by_site.contains("−8.0 KiB"), "{text}");
    assert!(diff(&after, &after).contains("no change"));
}

#[test]
fn dates_are_those_of_the_calendar() {
    assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
    assert_eq!(date(1_790_000_000_000_000_000), "2026-09-21 14:13:20 UTC");
}
