//! What stands on the screen, in terminals of several sizes.

use std::path::PathBuf;
use std::time::Duration;

use genesis_profile::Profile;
use genesis_profile::model::{Counts, Device, Forecast, Frame, Levels, Site, SiteSummary};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Page};
use super::draw::draw;
use super::{Found, describe, list};

const GIB: u64 = 1 << 30;

fn device(ordinal: u32, second: u64) -> Device {
    let now = Levels {
        requested_bytes: 10 * GIB,
        allocated_bytes: (10 + second) * GIB,
        active_bytes: (12 + second) * GIB,
        reserved_bytes: 20 * GIB,
    };
    Device {
        ordinal,
        name: "NVIDIA H200".to_owned(),
        total_bytes: 48 * GIB,
        usable_bytes: 40 * GIB,
        now,
        peak: Levels { reserved_bytes: 30 * GIB, ..now },
        allocations: 1000 * second,
        frees: 900 * second,
        hits: 990 * second,
        out_of_memory_events: 7,
        fragmentation_index: 0.25,
        forecast: None,
    }
}

/// The reading of a process with so many devices after so many seconds.
fn reading(process_id: u32, devices: u32, second: u64) -> Found {
    let frame = Frame { function: "forward".into(), file: "/a/model.py".into(), line: 42 };
    let counts = Counts {
        allocations: 1010,
        frees: 1000,
        live_bytes: 8 * GIB,
        peak_bytes: 9 * GIB,
        ..Counts::default()
    };
    let profile = Profile {
        program: format!("python train.py --seed {process_id}"),
        process_id,
        duration_ns: second * 1_000_000_000,
        strategy: "Elastic".to_owned(),
        backend: "cuda".to_owned(),
        devices: (0..devices).map(|ordinal| device(ordinal, second)).collect(),
        sites: vec![Site::default(), Site { frames: vec![frame] }],
        call_sites: vec![SiteSummary { site: 1, counts }],
        ..Profile::default()
    };
    Found { path: PathBuf::new(), profile, age: Duration::ZERO }
}

/// A view of a process with so many devices, after four seconds.
fn viewing(devices: u32) -> App {
    let mut app = App::new(vec![reading(1234, devices, 1)], Vec::new());
    let Page::Process(view) = &mut app.page else { panic!("one process is shown at once") };
    (2..=4).for_each(|second| view.update(Some(reading(1234, devices, second))));
    app
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_device_has_a_bar_figures_and_a_graph() {
    let expected = " python train.py --seed 1234 · process 1234 · Elastic on cuda
╭ 0: NVIDIA H200 ────────────────────────────────────────────────────────────────────────────────╮
│██████████████████████████████████▓▓▓▓▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░│
│█ live 14.00 GiB   ▓ pending 2.00 GiB   ▒ cached 4.00 GiB   reserved 20.00 GiB of 40.00 GiB, pea│
│fragmentation 25.0 %   1,000 allocations/s   900 frees/s   hits 99.0 %   7 requests refused     │
│live, up to 14.00 GiB                                                                       ▂▄▆█│
│                                                                                            ████│
│                                                                                            ████│
╰────────────────────────────────────────────────────────────────────────────────────────────────╯
      live       peak     blocks  call site
  8.00 GiB   9.00 GiB         10  model.py:42 forward
 q quit   Backspace all processes
";
    let drawn = screen(&viewing(1), 98, 12);
    assert_eq!(drawn, expected, "\n{drawn}");
}

/// A device of which more is held than it has, and whose memory will run out.
fn in_trouble(app: &mut App) {
    let forecast = Forecast {
        steps: 100,
        bytes_per_step: 5e6,
        steps_left: 1234.4,
        fewest_steps_left: 321.0,
        is_leak: true,
    };
    let mut found = reading(1234, 1, 5);
    let device = &mut found.profile.devices[0];
    (device.total_bytes, device.forecast) = (8 * GIB, Some(forecast));
    let Page::Process(view) = &mut app.page else { panic!() };
    view.update(Some(found));
}

#[test]
fn trouble_stands_at_the_foot_of_the_panel() {
    let mut app = viewing(1);
    in_trouble(&mut app);
    let said = "memory runs out in 1234 steps, at least 321: a leak of 4.77 MiB a step";
    let drawn = screen(&app, 118, 12);
    assert!(drawn.contains(&format!("╰ 12.00 GiB beyond the device  {said} ─")), "{drawn}");
    let Page::Process(view) = &app.page else { panic!() };
    let text = describe(&view.course);
    let beyond = "device 0: 12.00 GiB beyond the device, peak 22.00 GiB\n";
    assert!(text.contains(&format!("{beyond}device 0: {said}\n")), "{text}");
}

#[test]
fn small_terminals_show_what_they_can() {
    let drawn = screen(&viewing(4), 90, 8);
    for ordinal in 0..4 {
        let line = drawn.lines().nth(1 + ordinal).unwrap();
        assert!(line.trim_start().starts_with(&format!("{ordinal} ███")), "{drawn}");
        assert!(line.contains("live 14.00 GiB cached 4.00 GiB of 40.00 GiB 1,000/s"), "{drawn}");
    }
    assert!(screen(&viewing(8), 90, 8).contains(" … and 3 more devices"));
    assert!(screen(&viewing(8), 120, 80).contains("7: NVIDIA H200"));
    for width in [1, 2, 5, 20] {
        for height in 1..12 {
            screen(&viewing(3), width, height);
        }
    }
}

#[test]
fn a_process_that_says_nothing_or_ends_is_marked_and_stays() {
    let mut app = viewing(1);
    let Page::Process(view) = &mut app.page else { panic!() };
    view.update(Some(Found { age: Duration::from_secs(12), ..reading(1234, 1, 4) }));
    assert!(screen(&app, 100, 20).contains("said nothing for 12 s"));
    let Page::Process(view) = &mut app.page else { panic!() };
    view.update(None);
    let drawn = screen(&app, 100, 20);
    assert!(drawn.contains("has ended") && drawn.contains("live 14.00 GiB"), "{drawn}");
}

#[test]
fn of_several_processes_one_is_chosen() {
    let found = || (1..=3).map(|process_id| reading(process_id, 2, 1)).collect::<Vec<_>>();
    let mut app = App::new(found(), Vec::new());
    let drawn = screen(&app, 80, 8);
    assert!(drawn.contains("▸ ") && drawn.contains("22.00 GiB  40.00 GiB"), "{drawn}");
    let mut press = |code| app.press(KeyEvent::new(code, KeyModifiers::NONE));
    assert!(!press(KeyCode::Down) && !press(KeyCode::Down) && !press(KeyCode::Up));
    app.list(found());
    assert!(!app.press(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)));
    assert!(screen(&app, 80, 30).contains("--seed 2 · process 2 "));
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert!(app.press(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    assert!(app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)));
    app.list(Vec::new());
    assert!(screen(&app, 80, 8).contains("GENESIS_TOP=on"));
}

#[test]
fn the_same_as_text() {
    let app = viewing(2);
    let Page::Process(view) = &app.page else { panic!() };
    let text = describe(&view.course);
    assert!(text.starts_with("python train.py --seed 1234 · process 1234 · Elastic on cuda\n\n"));
    for part in ["0 NVIDIA H200  14.00 GiB", "25.0 %", "1,000  99.0 %", "model.py:42 forward"] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let text = list(&[reading(7, 1, 1), reading(8, 2, 1)]);
    let row = text.lines().find(|line| line.contains("--seed 8")).unwrap();
    assert!(row.ends_with("8  22.00 GiB  40.00 GiB"), "{text}");
}
