//! A process that does what a test tells it.
//!
//! The test writes a line to its standard input; it answers with one line that begins with `@`:
//! `@ok …`, or `@no status text`.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_void};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, ptr, thread};

use genesis::base::Status;
use genesis::config::PoolType;
use genesis::ffi::sharing::{
    BlockHandle, genesis_block_close, genesis_block_discard, genesis_block_export,
    genesis_block_import,
};
use genesis::ffi::{allocation, library, memory, statistics, streams, tags};
use genesis::observe::Statistics;

use crate::on_simcuda;

/// Set in a peer.
const ROLE: &str = "GENESIS_TEST_PEER";

/// A peer, from the test's side.
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(pool_type: PoolType, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "peer::peer", "--nocapture"]);
        on_simcuda::put_beneath(&mut command);
        command.env(ROLE, "1").env("GENESIS_BACKEND", "cuda");
        command.env("GENESIS_POOL_TYPE", pool_type.name()).env("GENESIS_HANDLE_TYPE", "posix");
        command.env("SIMCUDA_STORE", "bytes").env("SIMCUDA_MEMORY", "1GiB");
        command.env("SIMCUDA_ON_VIOLATION", "abort").env("GENESIS_LOG", "off");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// One to export, one to import.
    pub fn pair(pool_type: PoolType) -> (Self, Self) {
        (Self::start(pool_type, &[]), Self::start(pool_type, &[]))
    }

    /// The peer's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells the peer to do something.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Has the peer do something; its answer, or why not.
    pub fn ask(&mut self, order: &str) -> Result<String, String> {
        self.tell(order);
        self.answer(order)
    }

    /// The peer's answer to the order.
    pub fn answer(&mut self, order: &str) -> Result<String, String> {
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the peer ended at: {order}");
            // The harness of the peer prints lines of its own, and the first without its end.
            let Some((_, answer)) = line.trim_end().split_once('@') else { continue };
            return match answer.split_once(' ').unwrap_or((answer, "")) {
                ("ok", answer) => Ok(answer.to_owned()),
                (_, refusal) => Err(refusal.to_owned()),
            };
        }
    }

    /// The number that the peer answers.
    pub fn number(&mut self, order: &str) -> u64 {
        self.do_it(order).parse().unwrap()
    }

    pub fn do_it(&mut self, order: &str) -> String {
        self.ask(order).unwrap_or_else(|refusal| panic!("{order}: {refusal}"))
    }

    pub fn malloc(&mut self, bytes: u64) -> u64 {
        self.do_it(&format!("malloc {bytes}")).parse().unwrap()
    }

    pub fn free(&mut self, block: u64) {
        self.do_it(&format!("free {block}"));
    }

    pub fn fill(&mut self, block: u64, bytes: u64, value: u8) {
        self.do_it(&format!("fill {block} {bytes} {value}"));
    }

    /// Checks that `bytes` from `block` on are `value`.
    pub fn expect(&mut self, block: u64, bytes: u64, value: u8) {
        self.do_it(&format!("expect {block} {bytes} {value}"));
    }

    pub fn export(&mut self, block: u64) -> String {
        self.do_it(&format!("export {block}"))
    }

    /// The block's address and size there.
    pub fn import(&mut self, handle: &str) -> (u64, u64) {
        let answer = self.do_it(&format!("import {handle}"));
        let (address, bytes) = answer.split_once(' ').unwrap();
        (address.parse().unwrap(), bytes.parse().unwrap())
    }

    pub fn close(&mut self, block: u64) {
        self.do_it(&format!("close {block}"));
    }

    /// What is alive in the peer's driver.
    pub fn census(&mut self, what: &str) -> u64 {
        self.do_it(&format!("census {what}")).parse().unwrap()
    }

    /// The bytes of live blocks, as soon as they are `bytes`: a release needs a moment to arrive.
    pub fn expect_allocated(&mut self, bytes: u64) {
        let mut allocated = 0;
        for _ in 0..500 {
            allocated = self.do_it("allocated").parse().unwrap();
            if allocated == bytes {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{allocated} bytes are live, not {bytes}");
    }

    /// Ends the peer at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends peers that hold nothing: every byte and every descriptor is accounted for.
    pub fn finish<const COUNT: usize>(peers: [Self; COUNT]) {
        for mut peer in peers {
            peer.expect_allocated(0);
            peer.do_it("empty");
            for what in ["opened", "imported_bytes", "mappings", "handles", "used_bytes"] {
                assert_eq!(peer.census(what), 0, "{what}");
            }
            assert_eq!(peer.do_it("files"), "0", "descriptors of shared memory are left");
            drop(peer.input.take());
            let status = peer.child.wait().unwrap();
            assert!(status.success(), "{status}");
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
    if env::var(ROLE).is_err() {
        return;
    }
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words: VecDeque<&str> = line.split(' ').collect();
        let verb = words.pop_front().unwrap();
        let words: Vec<&str> = words.into();
        match obey(verb, &words) {
            Ok(answer) => println!("@ok {answer}"),
            Err(refusal) => println!("@no {refusal}"),
        }
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn obey(verb: &str, words: &[&str]) -> Result<String, String> {
    let at = |index: usize| number(words[index]);
    let address = || at(0) as usize as *mut c_void;
    let nothing = |status: Status| done(status).map(|()| String::new());
    match verb {
        "malloc" => {
            let ptr = allocation::genesis_malloc(at(0) as usize, 0, ptr::null_mut());
            if ptr.is_null() { Err(last_error()) } else { Ok((ptr as u64).to_string()) }
        }
        "free" => {
            library::genesis_last_error_clear();
            allocation::genesis_free(address(), 0, 0, ptr::null_mut());
            nothing(library::genesis_last_error_get())
        }
        "fill" | "expect" => touch(verb, at(0), at(1) as usize, at(2) as u8),
        "export" => export(at(0)),
        "import" => import(words[0]),
        "close" => nothing(genesis_block_close(address())),
        "discard" => {
            let handle = handle_of(words[0]);
            // SAFETY: the handle is live.
            nothing(unsafe { genesis_block_discard(&handle) })
        }
        "crowd" => crowd(words),
        "allocated" => Ok(statistics().allocated_bytes.current.to_string()),
        "reserved" => Ok(statistics().reserved_bytes.current.to_string()),
        "info" => info(),
        "empty" => nothing(memory::genesis_cache_empty(0)),
        "limit" => nothing(memory::genesis_memory_limit_set(0, at(0) as usize)),
        "churn" => Ok(churn(at(0), at(1), at(2))),
        "work" => work(at(0), at(1)),
        "nanoseconds" => Ok(thread_nanoseconds().to_string()),
        "fork" => Ok(fork().to_string()),
        "capture" if words[0] == "begin" => nothing(streams::genesis_capture_begin(0)),
        "capture" => nothing(streams::genesis_capture_end(0)),
        "tag" => {
            let name = CString::new(words[1]).unwrap();
            // SAFETY: the name is a string.
            nothing(unsafe {
                match words[0] {
                    "push" => tags::genesis_tag_push(name.as_ptr()),
                    "pause" => tags::genesis_tag_pause(name.as_ptr(), 1),
                    _ => tags::genesis_tag_resume(name.as_ptr()),
                }
            })
        }
        "census" => Ok(simcuda(c"simcuda_census", words[0]).to_string()),
        "calls" => Ok(simcuda(c"simcuda_calls", words[0]).to_string()),
        "fail" => fail(words[0], at(1), at(2), at(3)),
        "files" => Ok(shared_files().to_string()),
        _ => panic!("{verb}"),
    }
}

/// The last error: its number and its line.
fn last_error() -> String {
    let status = library::genesis_last_error_get();
    // SAFETY: a string of the library, valid until this thread's next failure.
    let text = unsafe { CStr::from_ptr(library::genesis_last_error_message_get()) };
    format!("{status:?} {}", text.to_str().unwrap())
}

fn done(status: Status) -> Result<(), String> {
    if status == Status::Success { Ok(()) } else { Err(last_error()) }
}

/// Free and total memory as the program sees it.
fn info() -> Result<String, String> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are live.
    done(unsafe { memory::genesis_memory_info_get(0, &mut free, &mut total) })?;
    Ok(format!("{free} {total}"))
}

/// Allocates and frees `operations` times (0: for ever) at random, at most `most_bytes` at a time.
/// Returns how many requests were refused; nothing is live then.
fn churn(seed: u64, operations: u64, most_bytes: u64) -> String {
    let (mut state, mut live, mut refused, mut done) = (seed | 1, Vec::new(), 0, 0);
    let mut below = |bound: u64| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    };
    let free = |block: *mut c_void| allocation::genesis_free(block, 0, 0, ptr::null_mut());
    while operations == 0 || done < operations {
        done += 1;
        if below(5) < 3 && live.len() < 32 {
            let bytes = 1 + below(most_bytes);
            let block = allocation::genesis_malloc(bytes as usize, 0, ptr::null_mut());
            if block.is_null() {
                refused += 1;
                assert!(last_error().starts_with("OutOfMemory"), "{}", last_error());
                live.drain(..).for_each(free);
            } else {
                live.push(block);
            }
        } else if !live.is_empty() {
            free(live.swap_remove(below(live.len() as u64) as usize));
        }
    }
    live.drain(..).for_each(free);
    refused.to_string()
}

/// Queues work on the default stream that writes the block, and has streams stand still.
fn work(address: u64, bytes: u64) -> Result<String, String> {
    type Progress = unsafe extern "C" fn(i32) -> i32;
    type Touch = unsafe extern "C" fn(i32, *mut c_void, *mut c_void, usize, i32) -> i32;
    // SAFETY: as in `simcuda`.
    let code = unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        std::mem::transmute::<*mut c_void, Progress>(find(c"simcuda_progress"))(1);
        let touch = std::mem::transmute::<*mut c_void, Touch>(find(c"simcuda_touch"));
        touch(0, ptr::null_mut(), address as usize as *mut c_void, bytes as usize, 1)
    };
    if code == 0 { Ok(String::new()) } else { Err(code.to_string()) }
}

/// The virtual time in this thread's calls of the driver.
fn thread_nanoseconds() -> u64 {
    type Clock = unsafe extern "C" fn(*mut u64) -> i32;
    let mut time = 0;
    // SAFETY: as in `simcuda`.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"simcuda_thread_nanoseconds".as_ptr());
        std::mem::transmute::<*mut c_void, Clock>(found)(&mut time);
    }
    time
}

/// A child that does nothing, and outlives this process.
fn fork() -> i32 {
    // SAFETY: the child only sleeps and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::close(0);
            libc::close(1);
            libc::close(2);
            libc::sleep(20);
            libc::_exit(0);
        }
        child
    }
}

fn touch(verb: &str, address: u64, bytes: usize, value: u8) -> Result<String, String> {
    let place = address as usize as *mut u8;
    // SAFETY: the test says that the block is live and mapped, and uses it in no other way now.
    let block = unsafe { std::slice::from_raw_parts_mut(place, bytes) };
    if verb == "fill" {
        block.fill(value);
    } else if let Some(other) = block.iter().position(|&byte| byte != value) {
        return Err(format!("byte {other} is {}", block[other]));
    }
    Ok(String::new())
}

fn export(address: u64) -> Result<String, String> {
    let mut handle = BlockHandle { bytes: [0; 64] };
    let block = address as usize as *const c_void;
    // SAFETY: the handle is live.
    done(unsafe { genesis_block_export(block, &mut handle) })?;
    Ok(handle.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn handle_of(text: &str) -> BlockHandle {
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap();
    BlockHandle { bytes: std::array::from_fn(byte) }
}

fn import(text: &str) -> Result<String, String> {
    let (mut block, mut bytes) = (ptr::null_mut(), 0);
    let handle = handle_of(text);
    // SAFETY: all three are live.
    done(unsafe { genesis_block_import(&handle, -1, &mut block, &mut bytes) })?;
    Ok(format!("{} {bytes}", block as u64))
}

/// Imports each handle in a thread of its own, several times over, and closes the block.
fn crowd(handles: &[&str]) -> Result<String, String> {
    thread::scope(|scope| {
        let threads: Vec<_> = handles
            .iter()
            .map(|text| {
                scope.spawn(move || {
                    let answer = import(text)?;
                    let address = number(answer.split(' ').next().unwrap());
                    done(genesis_block_close(address as usize as *mut c_void))
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })
    .map(|()| String::new())
}

fn statistics() -> Statistics {
    let mut statistics =
        Statistics { struct_size: size_of::<Statistics>(), ..Statistics::default() };
    // SAFETY: the place is live, and its size is set.
    assert_eq!(unsafe { statistics::genesis_stats_get(0, &mut statistics) }, Status::Success);
    statistics
}

/// Calls a function of simcuda's that takes a name.
fn simcuda(function: &CStr, name: &str) -> i64 {
    let name = CString::new(name).unwrap();
    type Function = unsafe extern "C" fn(*const c_char) -> i64;
    // SAFETY: simcuda is loaded, and its functions of these names have this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr());
        assert!(!found.is_null());
        std::mem::transmute::<*mut c_void, Function>(found)(name.as_ptr())
    }
}

/// From the `nth` call of that name on, `times` calls return `code`; no call: none fails any more.
fn fail(call: &str, nth: u64, code: u64, times: u64) -> Result<String, String> {
    type Fail = unsafe extern "C" fn(*const c_char, i64, i32, i64) -> i32;
    type Clear = unsafe extern "C" fn() -> i32;
    let name = CString::new(call).unwrap();
    // SAFETY: as in `simcuda`.
    unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if call == "none" {
            std::mem::transmute::<*mut c_void, Clear>(find(c"simcuda_faults_clear"))();
        } else {
            let fail = std::mem::transmute::<*mut c_void, Fail>(find(c"simcuda_fail"));
            fail(name.as_ptr(), nth as i64, code as i32, times as i64);
        }
    }
    Ok(String::new())
}

/// How many descriptors of memory files the process has beyond its driver's own two.
fn shared_files() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let names = links.filter(|link| link.to_string_lossy().contains("memfd:simgpu"));
    names.count().saturating_sub(2)
}
