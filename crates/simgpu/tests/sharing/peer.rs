//! A process with a machine that does what a test tells it, a line at a time. It answers with a
//! line that begins with `@`: `@ok …`, or `@no` and CUDA's number.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::{env, thread};

use simgpu::{Code, Config, HandleProperties, IpcHandle, Machine, Result, StoreKind};

use crate::POSIX;

pub const MIB: u64 = 1 << 20;
/// Set in a peer: `bytes` or `addresses`.
const ROLE: &str = "SIMGPU_TEST_PEER";
/// The file of those that have one capacity.
const COMMON: &str = "SIMGPU_TEST_COMMON";

/// A peer, from the test's side.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// A process with a device of 64 MiB.
    pub fn start(store: StoreKind, common: Option<&Path>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "peer::peer", "--nocapture"]);
        command.env(ROLE, if store == StoreKind::RealBytes { "bytes" } else { "addresses" });
        command.envs(common.map(|path| (COMMON, path)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn pair(common: Option<&Path>) -> (Self, Self) {
        let start = || Self::start(StoreKind::RealBytes, common);
        (start(), start())
    }

    pub fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
    }

    pub fn answer(&mut self) -> Result<String> {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the peer has ended");
            // The harness of the peer prints lines of its own, and the first without its end.
            let Some((_, answer)) = line.trim_end().split_once('@') else { continue };
            return match answer.split_once(' ').unwrap_or((answer, "")) {
                ("ok", answer) => Ok(answer.to_owned()),
                (_, code) => Err(Code(code.parse().unwrap())),
            };
        }
    }

    pub fn ask(&mut self, order: &str) -> Result<String> {
        self.tell(order);
        self.answer()
    }

    /// Ends the peer at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends peers that have nothing left.
    pub fn finish<const COUNT: usize>(peers: [Self; COUNT]) {
        for mut peer in peers {
            assert_eq!(peer.ask("census"), Ok("0 0 0 0 0 0".into()));
            peer.tell("end");
            assert!(peer.child.wait().unwrap().success());
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After a failure; one that has ended stays as it is.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's side: not a test of its own.
#[test]
fn peer() {
    let Ok(role) = env::var(ROLE) else { return };
    let store = if role == "bytes" { StoreKind::RealBytes } else { StoreKind::AddressesOnly };
    let mut config = Config::new(store, 1, 64 * MIB);
    config.common = env::var_os(COMMON).map(Into::into);
    let machine = Machine::new(config).unwrap();
    let (mut exported, mut held) = (Vec::new(), Vec::new());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "end" {
            return;
        }
        match obey(&machine, (&mut exported, &mut held), &words) {
            Ok(answer) => println!("@ok {answer}"),
            Err(code) => println!("@no {}", code.0),
        }
        machine.validate().unwrap();
    }
}

fn obey(
    machine: &Arc<Machine>,
    (exported, held): (&mut Vec<OwnedFd>, &mut Vec<u64>),
    words: &[&str],
) -> Result<String> {
    let at = |index: usize| parsed::<u64>(words[index]);
    let text = |number: u64| number.to_string();
    let nothing = |()| String::new();
    match words[0] {
        "allocate" => machine.allocate(0, at(1)).map(text),
        "free" => machine.free(0, at(1)).map(nothing),
        "fill" => machine.fill(0, 1, at(1), at(2), at(3) as u8).map(nothing),
        "fill_on" => machine.fill(0, at(1) as usize, at(2), at(3), at(4) as u8).map(nothing),
        "expect" => {
            let other = machine.find_other(0, at(1), at(2), at(3) as u8)?;
            assert_eq!(other, None, "{words:?}");
            Ok(String::new())
        }
        "get" => machine.ipc_get_memory(0, at(1)).map(|handle| hexadecimal(&handle)),
        "open" => machine.ipc_open_memory(0, &handle_of(words[1])).map(text),
        "close" => machine.ipc_close_memory(0, at(1)).map(nothing),
        "create" => machine.create_with(0, at(1), POSIX).map(text),
        "release" => machine.release(0, at(1)).map(nothing),
        "export" => {
            exported.push(machine.export_handle(0, at(1))?);
            let descriptor = exported.last().unwrap().as_raw_fd();
            Ok(format!("/proc/{}/fd/{descriptor}", std::process::id()))
        }
        "import" => {
            let mut open = std::fs::OpenOptions::new();
            let file = open.read(true).write(true).open(words[1]).unwrap();
            machine.import_handle(0, &file.into()).map(text)
        }
        "free_bytes" => machine.memory_info(0).map(|info| text(info.free_bytes)),
        "violations" => Ok(machine.take_violations().len().to_string()),
        "census" => {
            let census = machine.census();
            let counts = [census.allocations, census.opened, census.handles, census.events];
            let [a, b, c, d] = counts;
            Ok(format!("{a} {b} {c} {d} {} {}", census.used_bytes, machine.imported_bytes()))
        }
        "hold" => machine.hold(0, at(1) as usize, parsed(words[2])).map(nothing),
        "idle" => machine.stream_query(0, at(1) as usize).map(|idle| idle.to_string()),
        "event_create" => machine.event_create_shared(0).map(text),
        "event_get" => machine.ipc_get_event(0, at(1)).map(|handle| hexadecimal(&handle)),
        "event_open" => machine.ipc_open_event(0, &handle_of(words[1])).map(text),
        "event_record" => machine.event_record(0, at(1), at(2) as usize).map(nothing),
        "event_wait" => machine.stream_wait(0, at(2) as usize, at(1)).map(nothing),
        "event_query" => machine.event_query(0, at(1)).map(|over| over.to_string()),
        "event_destroy" => machine.event_destroy(0, at(1)).map(nothing),
        "grab" => {
            grab(machine, held);
            Ok(machine.census().used_bytes.to_string())
        }
        "drop" => held.drain(..).try_for_each(|handle| machine.release(0, handle)).map(nothing),
        verb => panic!("{verb}"),
    }
}

/// Threads that take and give back at random, and in the end take until there is nothing left.
fn grab(machine: &Arc<Machine>, held: &mut Vec<u64>) {
    let take = |shared: bool| {
        let properties = HandleProperties { posix: shared, ..HandleProperties::default() };
        let mut handles = Vec::new();
        for round in 0..200 {
            handles.extend(machine.create_with(0, 2 * MIB, properties));
            if round % 3 == 0 {
                handles.pop().into_iter().for_each(|handle| machine.release(0, handle).unwrap());
            }
        }
        while let Ok(handle) = machine.create_with(0, 2 * MIB, properties) {
            handles.push(handle);
        }
        handles
    };
    thread::scope(|scope| {
        let threads = [true, false].map(|shared| scope.spawn(move || take(shared)));
        held.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
}

fn parsed<T: FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().unwrap()
}

fn hexadecimal(handle: &IpcHandle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle_of(text: &str) -> IpcHandle {
    std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..][..2], 16).unwrap())
}
