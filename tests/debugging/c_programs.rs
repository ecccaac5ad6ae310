//! C programs: what the library tells them, with file and line. Each case of
//! `c_tests/processes/debugging.c` prints on standard output at which lines it did what.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use genesis::config::PoolType;

use crate::plain;
use crate::programs::Language::C99;
use crate::programs::{command, compile, run, run_silently, text};
use crate::support::tier::some_or_all;

/// What a case printed: the lines on standard error, and for each word on standard output the line
/// of the source that printed it.
struct Told {
    pool_type: PoolType,
    lines: Vec<String>,
    places: Vec<(String, u32)>,
}

impl Told {
    /// The place of the last call that the program calls `what`.
    fn place(&self, what: &str, function: &str) -> String {
        let of = |(name, line): &&(String, u32)| (name == what).then_some(*line).is_some();
        let (_, line) = self.places.iter().rev().find(of).expect("the program has said where");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/c_tests/processes/debugging.c");
        format!("{file}:{line} ({function})")
    }
}

fn program(test: &str) -> PathBuf {
    compile(&format!("debugging-{test}"), "processes/debugging.c", C99, true)
}

/// Runs a case under each strategy; on every change under those that differ most.
fn told(case: &str, debug: &str, check: impl Fn(&Told)) {
    let program = program(case);
    let some = &[PoolType::Naive, PoolType::Caching, PoolType::Elastic];
    for &pool_type in some_or_all(&some[..], PoolType::ALL) {
        let mut command = command(&program);
        command.arg(case).env("GENESIS_POOL_TYPE", pool_type.name()).env("GENESIS_DEBUG", debug);
        let output = run(&mut command);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let place = |line: &str| {
            let (name, number) = line.rsplit_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        let lines = err.lines().map(plain).collect();
        let places = out.lines().filter_map(place).collect();
        check(&Told { pool_type, lines, places });
    }
}

#[test]
fn three_blocks_leaked_in_two_places_are_told_exactly() {
    told("leak", "leaks", |told| {
        let (cache, weights) =
            (told.place("cache", "make_cache"), told.place("weights", "load_weights"));
        assert_eq!(told.lines[0], "genesis: 3 blocks of 3.01 MiB live at exit:");
        let starts = [
            "  1 block of 3.00 MiB (3145728 bytes at A), device 0, ",
            "  2 blocks of 9.77 KiB, 5000 bytes each, device 0, ",
        ];
        for ((line, start), place) in told.lines[1..].iter().zip(starts).zip([cache, weights]) {
            assert!(line.starts_with(start), "{line}");
            assert!(line.ends_with(&format!(" s old, allocated at {place}")), "{line}");
        }
        assert_eq!(told.lines.len(), 3, "{:?}", told.lines);
    });
}

#[test]
fn a_program_that_leaks_nothing_is_told_nothing() {
    let modes = ["off", "leaks", "all,guard", "all", "leaks,guard"];
    for debug in &modes[..some_or_all(3, 5)] {
        told("leak_nothing", debug, |told| assert!(told.lines.is_empty(), "{:?}", told.lines));
    }
    told("leak", "poison,quarantine", |told| assert!(told.lines.is_empty(), "not asked for"));
}

#[test]
fn a_double_free_is_told_with_its_places() {
    for debug in ["leaks", "all", "guard"] {
        told("double_free", debug, |told| {
            let born = told.place("weights", "load_weights");
            let (freed, again) = (told.place("free", "let_go"), told.place("again", "double_free"));
            let expected = format!(
                "genesis: A is already free: 5000 bytes allocated at {born} (T s ago), freed at \
                 {freed} (T s ago); now used at {again}"
            );
            assert_eq!(told.lines, [expected]);
        });
    }
}

#[test]
fn a_foreign_free_is_told_with_its_place() {
    told("foreign_free", "leaks", |told| {
        let (born, freed) = (told.place("weights", "load_weights"), told.place("free", "let_go"));
        let expected = [
            format!(
                "genesis: A points into the block at A, not to its start, allocated at {born} (T s \
                 ago); now used at {freed}"
            ),
            format!(
                "genesis: A was not allocated by genesis, or its memory has been released; now \
                 used at {freed}"
            ),
        ];
        assert_eq!(told.lines, expected);
    });
}

#[test]
fn patterns_can_be_read() {
    told("patterns", "poison,quarantine", |told| assert!(told.lines.is_empty()));
}

#[test]
fn a_write_after_the_free_is_told_with_both_places() {
    told("late_write", "poison,quarantine", |told| {
        let (born, freed) = (told.place("weights", "load_weights"), told.place("free", "let_go"));
        let expected = format!(
            "genesis: device 0: the block of 5000 bytes at A was written to after it was freed: \
             byte 77; 5000 bytes allocated at {born} (T s ago), freed at {freed} (T s ago)"
        );
        assert_eq!(told.lines, [expected]);
    });
}

#[test]
fn a_write_behind_the_end_is_told_at_the_free() {
    told("slack", "poison", |told| {
        // Naive's blocks have no bytes behind those asked for, so nothing is poisoned there.
        if told.pool_type == PoolType::Naive {
            assert!(told.lines.is_empty(), "{:?}", told.lines);
            return;
        }
        let (born, freed) = (told.place("weights", "load_weights"), told.place("free", "let_go"));
        assert_eq!(told.lines.len(), 1, "{:?}: {:?}", told.pool_type, told.lines);
        let line = &told.lines[0];
        assert!(line.contains("was written past its end: byte 5000;"), "{line}");
        assert!(line.contains(&born) && line.contains(&freed), "{line}");
    });
}

/// With real bytes the fault is the host's.
#[test]
fn overruns_and_uses_after_the_free_end_a_guarded_program_where_they_happen() {
    const SIGSEGV: i32 = 11;
    for case in ["overrun", "use_after_free"] {
        let program = program(case);
        for pool_type in PoolType::ALL {
            // Not under `timeout`, which would hide the signal.
            let mut command = std::process::Command::new(&program);
            command.arg(case).env("GENESIS_BACKEND", "host").env("GENESIS_DEBUG", "guard");
            command.env("GENESIS_POOL_TYPE", pool_type.name());
            let output = command.output().unwrap();
            assert_eq!(output.status.signal(), Some(SIGSEGV), "{case}: {}", text(&output.stderr));
            assert!(text(&output.stdout).ends_with("before\n"), "{case}");
        }
    }
}

#[test]
fn live_blocks_are_visited_with_their_places() {
    let program = program("visit");
    for pool_type in PoolType::ALL {
        run_silently(command(&program).arg("visit").env("GENESIS_POOL_TYPE", pool_type.name()));
    }
}
