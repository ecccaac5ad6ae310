//! `genesis top` from outside: once, and live in a terminal.
//!
//! These tests use the library built next to the program, on the simulated device.

mod support;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use support::{check_refused, library, run, scratch, stderr, stdout};

/// The longest that a view may take to show something.
const PATIENCE: Duration = Duration::from_secs(60);
/// Leaves the second screen of a terminal.
const LEAVE: &str = "\x1b[?1049l";
/// The size of the terminal.
const COLUMNS: u16 = 100;
const LINES: u16 = 30;

/// A program that holds 3 MiB and allocates as it goes, until its input ends.
static ALLOCATING: LazyLock<PathBuf> = LazyLock::new(|| {
    const CODE: &str = r#"
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
int main(int count, char **arguments)
{
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : 0;
    if (!library) return 1;
    void *(*allocate)(size_t, int, void *) = dlsym(library, "genesis_malloc");
    void (*release)(void *, size_t, int, void *) = dlsym(library, "genesis_free");
    struct pollfd input = {0, POLLIN, 0};
    if (!allocate(3 << 20, 0, 0)) return 1;
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 1) == 0)
        release(allocate(1 << 20, 0, 0), 0, 0, 0);
    return 0;
}
"#;
    let (source, program) = (scratch("allocating.c"), scratch("allocating"));
    std::fs::write(&source, CODE).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-ldl").arg("-o").arg(&program).status();
    assert!(compiled.expect("a C compiler is installed").success());
    program
});

/// A process of [`ALLOCATING`] that is under way.
fn allocating_process() -> Child {
    let mut child = Command::new(&*ALLOCATING)
        .arg(library())
        .env("GENESIS_BACKEND", "sim")
        .env("GENESIS_TOP", "on")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// What is printed of a process, as soon as it says what it holds.
#[track_caller]
fn wait_for_process(process: &str) -> String {
    let started = Instant::now();
    loop {
        let answer = run(&["top", process, "--once"]);
        if answer.status.success() {
            return stdout(&answer);
        }
        assert!(started.elapsed() < PATIENCE, "{}", stderr(&answer));
    }
}

#[test]
fn a_running_process_is_shown_once() {
    let mut child = allocating_process();
    let process = child.id().to_string();
    let text = wait_for_process(&process);
    assert!(text.contains(&format!(" · process {process} · Elastic on sim\n")), "{text}");
    let row = text.lines().find(|line| line.starts_with("0 Simulated GPU")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert!(["3.00 MiB", "4.00 MiB"].contains(&cells[1]), "{text}");
    assert_eq!(cells[4], "80.00 GiB", "{text}");
    let a_second: f64 = cells[7].replace(',', "").parse().unwrap();
    assert!(a_second > 1.0, "{text}");
    assert_eq!(cells[9], "0", "{text}");
    // Without a terminal there is no live view.
    let piped = stdout(&run(&["top", &process]));
    assert!(piped.contains("0 Simulated GPU"), "{piped}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    check_refused(&run(&["top", &process]), 2, &format!("there is no process {process}"));
}

/// `genesis top` in a terminal of its own.
struct Live {
    child: Child,
    /// The terminal's side of the user: keys in, frames out.
    user: File,
    /// The terminal's side of the program.
    terminal: File,
    frames: Receiver<Vec<u8>>,
    /// All output so far.
    output: Vec<u8>,
}

/// What a terminal shows after `output`: characters, places of the cursor and cleared screens.
fn screen(output: &str) -> String {
    let blank = [[' '; COLUMNS as usize]; LINES as usize];
    let (mut cells, mut line, mut column) = (blank, 1, 1);
    let mut characters = output.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            if let Some(cell) = cells.get_mut(line - 1).and_then(|line| line.get_mut(column - 1)) {
                *cell = character;
            }
            column += 1;
            continue;
        }
        let is_last = |character: &char| character.is_ascii_alphabetic();
        let mut parameters = String::new();
        let last = characters.by_ref().find(|character| {
            parameters.push(*character);
            is_last(character)
        });
        let numbers = parameters.trim_matches(|character| !char::is_ascii_digit(&character));
        match (last, numbers.split_once(';')) {
            (Some('H'), Some((first, second))) => {
                (line, column) = (first.parse().unwrap(), second.parse().unwrap());
            }
            (Some('J'), None) => cells = blank,
            _ => {}
        }
    }
    cells.map(|line| line.iter().collect::<String>()).join("\n")
}

impl Live {
    fn start(arguments: &[&str]) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let path = ptsname(&user, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_row: LINES, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let side = || Stdio::from(terminal.try_clone().unwrap());
        // In a session of its own, of which this is the terminal.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_genesis"), "top"])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let user = File::from(user);
        let mut output = user.try_clone().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: the terminal is gone.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, user, terminal, frames, output: Vec::new() }
    }

    /// Waits until the terminal shows `text`.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        self.wait_until(text, |output| screen(output).contains(text));
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let started = Instant::now();
        loop {
            let output = String::from_utf8_lossy(&self.output);
            if is_so(&output) {
                return;
            }
            let left = PATIENCE.saturating_sub(started.elapsed());
            let Ok(frame) = self.frames.recv_timeout(left) else {
                panic!("{what:?} is not there:\n{}", screen(&output));
            };
            self.output.extend(frame);
        }
    }

    fn press(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end, and checks that the terminal is left as it was.
    #[track_caller]
    fn end(mut self) {
        self.wait_until("the end", |output| output.contains(LEAVE));
        assert!(self.child.wait().unwrap().success());
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    }
}

#[test]
fn a_running_process_is_shown_live() {
    let mut child = allocating_process();
    let process = child.id().to_string();
    wait_for_process(&process);
    let mut live = Live::start(&[&process]);
    live.expect(&format!("process {process} · Elastic on sim"));
    live.expect("Simulated");
    // From the second reading on.
    live.expect("allocations/s");
    // To the list and back.
    live.press("\x7f");
    live.expect("processes that say what they hold");
    live.expect(&process);
    live.press("\r");
    live.expect(&format!("process {process} · Elastic on sim"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    live.expect("has ended");
    live.press("q");
    live.end();
}

#[test]
fn a_signal_ends_a_live_view_and_leaves_the_terminal_as_it_was() {
    let mut child = allocating_process();
    let process = child.id().to_string();
    wait_for_process(&process);
    let mut live = Live::start(&[&process]);
    live.expect(&format!("process {process} "));
    let modes = tcgetattr(&live.terminal).unwrap().local_modes;
    assert!(!modes.contains(LocalModes::ICANON), "keys come one by one");
    let children = format!("/proc/{0}/task/{0}/children", live.child.id());
    let children = std::fs::read_to_string(children).unwrap();
    let viewer = children.trim().parse().unwrap_or(live.child.id() as i32);
    kill_process(Pid::from_raw(viewer).unwrap(), Signal::TERM).unwrap();
    live.end();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
