//! The commands that show where memory went, from outside: `timeline`, `report`, `diff`.
//!
//! These tests use the library built next to the program, on the simulated device.

mod support;

use std::io::Read;

use base64::Engine;
use genesis_profile::model::{Action, Levels};
use genesis_profile::{Profile, json, units};
use genesis_replay::report::Report;
use support::{check_refused, genesis, run, scratch, stderr, stdout, trace};

fn sum(profile: &Profile, level: fn(&Levels) -> u64) -> u64 {
    profile.devices.iter().map(|device| level(&device.peak)).sum()
}

/// The profile that stands in a page; its events stand apart.
fn in_page(page: &str) -> Profile {
    let element = page.find("id=\"profile-data\"").unwrap();
    let start = element + page[element..].find('>').unwrap() + 1;
    let packed = &page[start..start + page[start..].find('<').unwrap()];
    let deflated = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
    let mut document = String::new();
    let mut plain = flate2::read::ZlibDecoder::new(&deflated[..]);
    plain.read_to_string(&mut document).unwrap();
    json::read(document.as_bytes()).unwrap()
}

#[test]
fn a_timeline_shows_the_peaks_that_the_replay_measures() {
    for (name, strategy) in
        [("gpt2_train", "Caching"), ("gpt2_train", "Elastic"), ("fsdp_streams", "Elastic")]
    {
        let replayed = run(&["replay", &trace(name), "--strategy", strategy, "--warm=0", "--json"]);
        let report: Report = serde_json::from_slice(&replayed.stdout).unwrap();
        let output = scratch(&format!("{name}-{strategy}.html"));
        let answer = genesis()
            .args(["timeline", &trace(name), "--strategy", strategy, "-o"])
            .arg(&output)
            .output()
            .unwrap();
        assert!(answer.status.success(), "{}", stderr(&answer));
        let said = stdout(&answer);
        assert!(said.contains(&format!("{name} under {strategy}, ")), "{said}");
        assert_eq!((said.lines().count(), &*stderr(&answer)), (1, ""));

        let profile = in_page(&std::fs::read_to_string(&output).unwrap());
        assert_eq!((&*profile.program, &*profile.strategy), (name, strategy));
        assert_eq!(profile.history.dropped_events, 0);
        assert_eq!(sum(&profile, |levels| levels.requested_bytes), report.live_peak_bytes);
        assert_eq!(sum(&profile, |levels| levels.reserved_bytes), report.cold.reserved_peak_bytes);
        assert!(profile.call_sites.is_empty(), "they would be the replay's own");
    }
}

#[test]
fn a_profile_is_kept_reported_and_written_in_every_form() {
    let kept = scratch("kept.json");
    let answer = genesis()
        .args(["timeline", &trace("fsdp_streams"), "--output"])
        .arg(&kept)
        .output()
        .unwrap();
    assert!(answer.status.success(), "{}", stderr(&answer));
    let profile = json::read(&std::fs::read(&kept).unwrap()).unwrap();
    let iterations =
        profile.history.events.iter().filter(|event| event.action == Action::Iteration);
    let replayed = run(&["replay", &trace("fsdp_streams"), "--warm=0", "--json"]);
    let report: Report = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(iterations.count() as u64, report.iterations);
    let events = profile.history.events.iter();
    let allocations = events.filter(|event| event.action.is_allocation()).count() as u64;
    assert_eq!(allocations, profile.devices[0].allocations);

    let kept = kept.to_string_lossy();
    for (ending, start) in [
        ("html", &b"<!DOCTYPE html>"[..]),
        ("trace.json", b"{"),
        ("txt", b"Genesis memory profile"),
        ("prom", b"# HELP genesis_"),
        ("pickle", b"\x80"),
        ("json", b"{\"format\":\"genesis profile 1\""),
    ] {
        let output = scratch(&format!("again.{ending}"));
        let answer = run(&["timeline", &kept, "-o", &output.to_string_lossy()]);
        assert!(answer.status.success(), "{}", stderr(&answer));
        let written = std::fs::read(&output).unwrap();
        assert!(written[..start.len()].eq_ignore_ascii_case(start), "{ending}: {written:.30?}");
    }
    assert_eq!(std::fs::read(&*kept).unwrap(), std::fs::read(scratch("again.json")).unwrap());

    let of_profile = stdout(&run(&["report", &kept]));
    assert!(of_profile.contains("fsdp_streams") && of_profile.contains("Elastic on sim"));
    assert_eq!(of_profile, std::fs::read_to_string(scratch("again.txt")).unwrap());
    let of_trace = stdout(&run(&["report", &trace("fsdp_streams")]));
    let device =
        |text: &str| text.lines().find(|line| line.contains("reserved")).map(str::to_owned);
    assert!(device(&of_trace).is_some());
    assert_eq!(device(&of_trace), device(&of_profile));
}

/// Without `--output` the page stands in the folder one is in.
#[test]
fn a_page_has_the_inputs_name() {
    let folder = scratch("named");
    let _ = std::fs::create_dir(&folder);
    let answer =
        genesis().args(["timeline", &trace("alternating")]).current_dir(&folder).output().unwrap();
    assert!(answer.status.success(), "{}", stderr(&answer));
    assert!(stdout(&answer).starts_with("alternating.html: alternating under "));
    let files: Vec<_> = folder.read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["alternating.html"]);
}

#[test]
fn a_difference_says_what_grew() {
    let (before, after) = (scratch("before.json"), scratch("after.json"));
    for (strategy, output) in [("Caching", &before), ("Naive", &after)] {
        let output = output.to_string_lossy();
        let written =
            run(&["timeline", &trace("alternating"), "--strategy", strategy, "-o", &output]);
        assert!(written.status.success(), "{}", stderr(&written));
    }
    let answer = run(&["diff", &before.to_string_lossy(), &after.to_string_lossy()]);
    assert!(answer.status.success(), "{}", stderr(&answer));
    let text = stdout(&answer);
    assert!(text.contains("Caching on sim") && text.contains("Naive on sim"), "{text}");
    let peaks = [&before, &after]
        .map(|path| json::read(&std::fs::read(path).unwrap()).unwrap().devices.swap_remove(0).peak);
    assert!(peaks[0].reserved_bytes > peaks[1].reserved_bytes, "{text}");
    for (name, of) in [
        ("peak requested", (|levels| levels.requested_bytes) as fn(&Levels) -> u64),
        ("peak reserved", |levels| levels.reserved_bytes),
    ] {
        let [a, b] = [of(&peaks[0]), of(&peaks[1])];
        let change = units::signed_bytes(i128::from(b) - i128::from(a));
        let expected = format!("{name} {} {} {change}", units::bytes(a), units::bytes(b));
        let mut lines =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(lines.any(|line| line == expected), "{expected:?} is missing in\n{text}");
    }
}

#[test]
fn requests_that_fail_are_said_and_shown() {
    let output = scratch("short.json");
    let answer = genesis()
        .args(["timeline", &trace("alternating"), "--device-memory=256MiB", "-o"])
        .arg(&output)
        .output()
        .unwrap();
    assert!(answer.status.success());
    let said = stderr(&answer);
    assert!(
        said.contains(" requests failed: out of memory") && said.lines().count() == 1,
        "{said}"
    );
    let profile = json::read(&std::fs::read(&output).unwrap()).unwrap();
    assert!(profile.devices[0].out_of_memory_events > 0);
}

#[test]
fn what_cannot_be_shown_is_one_line_and_status_2() {
    let page = scratch("a.html");
    std::fs::write(&page, "<!doctype html>").unwrap();
    let page = page.to_string_lossy();
    check_refused(&run(&["report", &page]), 2, "a.html: a page, which cannot be read back");
    let other = scratch("other.json");
    std::fs::write(&other, "{\"format\": \"something\"}").unwrap();
    check_refused(&run(&["diff", &other.to_string_lossy(), &page]), 2, "other.json: not a profile");
    check_refused(&run(&["report", "/no/such.json"]), 2, "/no/such.json: ");
    let alternating = trace("alternating");
    check_refused(&run(&["timeline", &alternating, "-o", "x.pdf"]), 2, "x.pdf: the name ends in");
    check_refused(&run(&["report", &alternating, "--strategy=X"]), 2, "=X: not a pool type");
    check_refused(&run(&["timeline", &alternating, "-o", "/no/x.html"]), 1, "/no/x.html: cannot");
    let nonsense = scratch("nonsense.gtr");
    std::fs::write(&nonsense, "nonsense").unwrap();
    check_refused(&run(&["report", &nonsense.to_string_lossy()]), 2, "nonsense.gtr: ");
    check_refused(&run(&["top", "999999999"]), 2, "there is no process 999999999");
    check_refused(&run(&["top", "1"]), 2, "process 1 does not say what it holds");
    assert_eq!(run(&["diff", "one.json"]).status.code(), Some(2));
}

#[test]
fn tiers_are_proposed_from_a_trace_and_from_its_profile() {
    let output = scratch("tiers.json");
    let trace = trace("gpt2_train");
    let answer = genesis().args(["timeline", &trace, "-o"]).arg(&output).output().unwrap();
    assert!(answer.status.success(), "{}", stderr(&answer));
    let of_trace = stdout(&run(&["plan", "--tiers", &trace, "--most-tiers=3"]));
    let profile = output.to_str().unwrap();
    assert_eq!(stdout(&run(&["plan", "--tiers", profile, "--most-tiers=3"])), of_trace);
    let line = of_trace.lines().last().unwrap();
    let tiers = line.strip_prefix("genesis.MemoryManager({").unwrap();
    assert_eq!(tiers.split_once('}').unwrap().0.split(", ").count(), 3, "{of_trace}");
    assert!(of_trace.contains(" reserved for a peak of "), "{of_trace}");
    let none = genesis().args(["plan", "--tiers", &trace, "--device=7"]).output().unwrap();
    check_refused(&none, 2, "no requests on device 7");
    let unsaid = genesis().args(["plan", &trace]).output().unwrap();
    assert_eq!(unsaid.status.code(), Some(2), "{}", stderr(&unsaid));
}

#[test]
fn ranks_are_side_by_side() {
    let folder = scratch("ranks");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    // Two of one program, one of another; by rank, not by name or order.
    for (name, rank) in [("alternating", 10), ("alternating", 2), ("fsdp_streams", 3)] {
        let output = folder.join(format!("run-rank{rank}.json"));
        let written = run(&["timeline", &trace(name), "-o", &output.to_string_lossy()]);
        assert!(written.status.success(), "{}", stderr(&written));
    }
    let folder_name = folder.to_string_lossy();
    let answer = run(&["report", &folder_name]);
    assert!(answer.status.success(), "{}", stderr(&answer));
    let text = stdout(&answer);
    let ranks: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("  rank ")?.split_whitespace().next())
        .collect();
    assert_eq!(ranks, ["2", "3", "10"], "{text}");
    assert!(text.contains("\nThe odd one out: rank 3, "), "{text}");
    let files: Vec<String> = [3, 10, 2]
        .map(|rank| folder.join(format!("run-rank{rank}.json")).to_string_lossy().into_owned())
        .into();
    assert_eq!(stdout(&run(&["report", &files[0], &files[1], &files[2]])), text);

    let page = scratch("ranks.html");
    let answer = run(&["timeline", &folder_name, "-o", &page.to_string_lossy()]);
    assert!(answer.status.success(), "{}", stderr(&answer));
    let profile = in_page(&std::fs::read_to_string(&page).unwrap());
    let names: Vec<&str> = profile.devices.iter().map(|device| &*device.name).collect();
    assert!(names[0].starts_with("rank 2: ") && names.last().unwrap().starts_with("rank 10: "));

    std::fs::copy(&files[0], folder.join("other-rank2.json")).unwrap();
    check_refused(&run(&["report", &folder_name]), 2, "two files are of rank 2: leave one out");
    let empty = scratch("no ranks");
    let _ = std::fs::create_dir(&empty);
    check_refused(
        &run(&["report", &empty.to_string_lossy()]),
        2,
        "no profile (.json) and no trace",
    );
}
