//! Memory that one process gives back is another one's at once, end to end: two processes that share
//! the device (`GENESIS_SHARE`).
//!
//! A second process of this program takes most of the memory and frees it: its Genesis has it cached.
//! Then this process asks Genesis for more than the driver has left. Only what the other one gives
//! back can serve that. Both know the device by its number, and the other one's stream is idle, which
//! it finds out by an event.

use std::ffi::{CString, c_void};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::Instant;

use genesis::ffi::allocation::{genesis_free, genesis_malloc};

use super::handle_reuse::set_option;
use super::{Bench, Outcome, Tried};

const ROUNDS: usize = 5;
/// Contexts, and others that use the device, take some.
const SPARED_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Does the memory come?
pub(super) fn give_back(bench: &Bench) -> Tried {
    let name = format!("gpu-probe-{}", std::process::id());
    set_option(c"GENESIS_SHARE", &CString::new(name.clone()).map_err(|error| error.to_string())?)?;
    let mut milliseconds = Vec::new();
    while milliseconds.len() < ROUNDS && !bench.is_over() {
        let (free_bytes, _) = bench.driver.memory_info()?;
        let left_bytes = free_bytes.checked_sub(SPARED_BYTES).ok_or("the device is in use")?;
        let bytes = left_bytes / 4 * 3 / MIB * MIB;
        let other = Neighbour::start(&name, bytes)?;
        let begin = Instant::now();
        let block = genesis_malloc(bytes as usize, 0, null_mut());
        if block.is_null() {
            let seen = format!("{} MiB of the other process did not come", bytes / MIB);
            return Ok(Outcome::new(false, seen));
        }
        milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
        genesis_free(block, bytes as usize, 0, null_mut());
        drop(other);
    }
    if let Some(file) = std::env::var_os("SIMCUDA_COMMON") {
        // The simulated driver's, for these processes alone.
        let _ = std::fs::remove_file(file);
    }
    let most = milliseconds.iter().copied().fold(0.0, f64::max);
    let seen = format!("{} times; at most {most:.1} ms", milliseconds.len());
    Ok(Outcome::new(!milliseconds.is_empty(), seen))
}

/// The other process, until it is dropped.
struct Neighbour(Child);

impl Neighbour {
    /// Starts it; returns once it has `bytes` cached.
    fn start(name: &str, bytes: u64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(["neighbour", &bytes.to_string()]).env("GENESIS_SHARE", name);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut other = Self(started.map_err(|error| error.to_string())?);
        let mut line = String::new();
        if let Some(output) = other.0.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        if line.trim() == "ready" { Ok(other) } else { Err("no second process".to_owned()) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Its input ends, and with it the process.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What the other process does: has `bytes` cached until its input ends.
pub(crate) fn be_neighbour(bytes: u64) -> Result<(), String> {
    let block: *mut c_void = genesis_malloc(bytes as usize, 0, null_mut());
    if block.is_null() {
        return Err("there is too little memory".to_owned());
    }
    genesis_free(block, bytes as usize, 0, null_mut());
    println!("ready");
    let _ = std::io::stdout().flush();
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).map(drop).map_err(|error| error.to_string())
}
