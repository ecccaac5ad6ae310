//! What a process says of itself while it runs: to `genesis top`, and to Prometheus. In processes
//! of their own (`c_tests/processes/publishing.c`), which do what they are told on their input.

#[allow(dead_code, reason = "these processes are talked to while they run")]
#[path = "c_interface/programs.rs"]
mod programs;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use genesis::observe::publication::{FOLDERS, file_name};
use genesis_profile::{Profile, json};
use programs::Language::C99;
use programs::{command, compile, text};

const MIB: u64 = 1 << 20;
/// Machines that are busy may take a while for what takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that is watched.
struct Subject {
    process: Child,
    process_id: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Subject {
    /// Starts one under a name that no other test uses.
    fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let program = compile(name, "processes/publishing.c", C99, true);
        let mut command = command(&program);
        command.env("GENESIS_BACKEND", "sim").envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut number = String::new();
        output.read_line(&mut number).unwrap();
        Self { process, process_id: number.trim().parse().unwrap(), input, output }
    }

    fn tell(&mut self, commands: &str) {
        self.input.write_all(commands.as_bytes()).unwrap();
        for _ in commands.chars() {
            let mut answer = String::new();
            self.output.read_line(&mut answer).unwrap();
            assert_eq!(answer, "ok\n");
        }
    }

    /// Where its file is, or would be.
    fn path(&self) -> PathBuf {
        let user_id = Path::new("/proc/self").metadata().unwrap().uid();
        let folders = FOLDERS.map(Path::new);
        let paths = folders.map(|folder| folder.join(file_name(user_id, self.process_id)));
        paths.iter().find(|path| path.exists()).unwrap_or(&paths[0]).clone()
    }

    fn reading(&self) -> Option<Profile> {
        Some(json::read(&std::fs::read(self.path()).ok()?).expect("never half of a file"))
    }

    /// What it says once it is what is `expected`.
    #[track_caller]
    fn wait_for(&self, expected: impl Fn(&Profile) -> bool) -> Profile {
        let started = Instant::now();
        loop {
            match self.reading() {
                Some(reading) if expected(&reading) => return reading,
                last => assert!(started.elapsed() < PATIENCE, "{last:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The first line that it writes to standard error, once there is one. Waits for it.
    fn first_line(&mut self) -> String {
        let mut line = Vec::new();
        let errors = self.process.stderr.as_mut().unwrap();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            errors.read_exact(&mut byte).expect("it writes a line before it ends");
            line.push(byte[0]);
        }
        text(&line)
    }

    /// Lets it end; returns what else it wrote to standard error.
    fn end(self) -> String {
        drop(self.input);
        let output = self.process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    }
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn live_bytes(reading: &Profile) -> u64 {
    reading.devices.first().map_or(0, |device| device.now.requested_bytes)
}

#[test]
fn a_process_says_what_it_holds_as_it_goes() {
    let mut subject = Subject::start("holds", &[("GENESIS_TOP", "on")]);
    assert!(subject.reading().is_none(), "it has not allocated");
    subject.tell("aaa");
    let first = subject.wait_for(|reading| live_bytes(reading) == 3 * MIB);
    assert_eq!((first.process_id, &*first.backend), (subject.process_id, "sim"));
    assert!(first.program.ends_with("-publishing-c99"), "{}", first.program);
    let device = &first.devices[0];
    assert_eq!((device.allocations, device.frees, device.out_of_memory_events), (3, 0, 0));
    assert!(device.now.reserved_bytes >= 3 * MIB && device.usable_bytes == 80 << 30);
    assert_eq!(first.streams[0].now.requested_bytes, 3 * MIB);
    assert!(first.call_sites.is_empty() && first.history.events.is_empty());
    let mode = subject.path().metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "others may not look");

    subject.tell("acc");
    let later = subject.wait_for(|reading| live_bytes(reading) == 4 * MIB);
    let later = match later.devices[0].allocations {
        2004 => later,
        _ => subject.wait_for(|reading| reading.devices[0].allocations == 2004),
    };
    assert!(later.duration_ns > first.duration_ns);
    assert_eq!(later.started_unix_ns, first.started_unix_ns);
    assert!(later.devices[0].hits >= 1999);

    let path = subject.path();
    assert_eq!(subject.end(), "");
    assert!(!path.exists());
}

#[test]
fn it_begins_and_ends_when_told_and_a_child_takes_nothing_away() {
    let mut subject = Subject::start("told", &[]);
    subject.tell("a");
    assert!(subject.reading().is_none());
    subject.tell("n");
    let first = subject.wait_for(|reading| live_bytes(reading) == MIB);
    let path = subject.path();
    subject.tell("f");
    assert!(path.exists(), "the child has removed it");
    subject.wait_for(|reading| reading.duration_ns > first.duration_ns);
    subject.tell("o");
    wait_until(|| !path.exists());
    subject.tell("na");
    subject.wait_for(|reading| live_bytes(reading) == 2 * MIB);
    subject.tell("onono");
    wait_until(|| !path.exists());
    subject.tell("n");
    subject.wait_for(|reading| live_bytes(reading) == 2 * MIB);
    assert_eq!(subject.end(), "");
    assert!(!path.exists());
}

#[test]
fn a_killed_process_leaves_a_whole_file() {
    let mut subject = Subject::start("killed", &[("GENESIS_TOP", "on")]);
    subject.tell("a");
    subject.wait_for(|reading| live_bytes(reading) == MIB);
    let path = subject.path();
    subject.input.write_all(b"k").unwrap();
    subject.process.wait().unwrap();
    assert_eq!(live_bytes(&json::read(&std::fs::read(&path).unwrap()).unwrap()), MIB);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_biggest_call_sites_are_told_while_a_profile_is_made() {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join("published-profile.json");
    let variables = [
        ("GENESIS_TOP", "on"),
        ("GENESIS_PROFILE", profile.to_str().unwrap()),
        ("GENESIS_CALL_SITES", "native"),
    ];
    let mut subject = Subject::start("sites", &variables);
    subject.tell("aa");
    let reading = subject.wait_for(|reading| !reading.call_sites.is_empty());
    let reading = match reading.call_sites[0].counts.live_bytes {
        bytes if bytes == 2 * MIB => reading,
        _ => subject.wait_for(|reading| reading.call_sites[0].counts.live_bytes == 2 * MIB),
    };
    let site = reading.site(reading.call_sites[0].site);
    let functions: Vec<&str> = site.frames.iter().map(|frame| &*frame.function).collect();
    assert!(functions.contains(&"allocate_here"), "{functions:?}");
    assert_eq!(subject.end(), "");
    assert!(profile.exists());
}

#[test]
fn metrics_are_for_everybody_to_read_and_go_with_the_process() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metrics");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let target = folder.join("genesis-%p.prom");
    let variables =
        [("GENESIS_METRICS", target.to_str().unwrap()), ("GENESIS_METRICS_SECONDS", "0.1")];
    let mut subject = Subject::start("metrics", &variables);
    let path = folder.join(format!("genesis-{}.prom", subject.process_id));
    subject.tell("a");
    let says = |line: &str| {
        std::fs::read_to_string(&path).is_ok_and(|text| text.lines().any(|other| other == line))
    };
    let requested = |bytes: u64| {
        format!("genesis_memory_requested_bytes{{{}}} {bytes}", labels(&path).unwrap_or_default())
    };
    wait_until(|| says(&requested(MIB)));
    subject.tell("a");
    wait_until(|| says(&requested(2 * MIB)));
    assert_eq!(path.metadata().unwrap().mode() & 0o777 & !0o022, 0o644);
    assert!(subject.reading().is_none(), "nobody asked for it");
    subject.tell("m");
    wait_until(|| !path.exists());
    assert_eq!(subject.end(), "");
    assert_eq!(folder.read_dir().unwrap().count(), 0);

    let mut subject = Subject::start("metrics", &variables);
    subject.tell("a");
    let path = folder.join(format!("genesis-{}.prom", subject.process_id));
    wait_until(|| path.exists());
    assert_eq!(subject.end(), "");
    assert_eq!(folder.read_dir().unwrap().count(), 0);
}

/// The labels that every metric of a device has.
fn labels(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with("genesis_memory_usable_bytes{"))?;
    Some(line.split_once('{')?.1.split_once('}')?.0.to_owned())
}

#[test]
fn a_file_that_cannot_be_written_is_one_warning() {
    // A folder stands where the file should go.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwritable");
    let _ = std::fs::remove_dir_all(&folder);
    let target = folder.join("x.prom");
    std::fs::create_dir_all(&target).unwrap();
    let variables =
        [("GENESIS_METRICS", target.to_str().unwrap()), ("GENESIS_METRICS_SECONDS", "0.1")];
    let mut subject = Subject::start("unwritable", &variables);
    // Each attempt makes a file in the folder and removes it: at most two times to be seen.
    let changed = || folder.metadata().unwrap().modified().unwrap();
    let mut last = changed();
    subject.tell("a");
    for _ in 0..2 * 3 {
        wait_until(|| changed() != last);
        last = changed();
    }
    subject.tell("ac");
    let said = subject.end();
    assert!(
        said.starts_with(&format!("genesis: GENESIS_METRICS: {}: ", target.display())),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_file_without_a_folder_is_one_warning() {
    let variables =
        [("GENESIS_METRICS", "/no/such/folder/x.prom"), ("GENESIS_METRICS_SECONDS", "0.1")];
    let mut subject = Subject::start("no_folder", &variables);
    subject.tell("a");
    let said = subject.first_line() + &subject.end();
    assert!(said.starts_with("genesis: GENESIS_METRICS: /no/such/folder/x.prom: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
