//! Handles of shared blocks, and the messages between their processes: handles that were changed,
//! requests to the thread that answers them, and answers to an import. Nothing may panic or crash,
//! and what was imported can be closed.
#![no_main]

mod panics;

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use genesis as _;
use libfuzzer_sys::fuzz_target;

unsafe extern "C" {
    fn genesis_malloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
    fn genesis_free(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void);
    fn genesis_block_export(ptr: *const c_void, handle: *mut Handle) -> c_int;
    fn genesis_block_import(
        handle: *const Handle,
        device: c_int,
        ptr: *mut *mut c_void,
        size: *mut usize,
    ) -> c_int;
    fn genesis_block_close(ptr: *mut c_void) -> c_int;
    fn genesis_block_discard(handle: *const Handle) -> c_int;
}

type Handle = [u8; 64];

const SUCCESS: c_int = 0;
/// Where a handle has the process that made it, and what its checksum is of.
const SERVICE: std::ops::Range<usize> = 8..24;
const CHECKED: std::ops::Range<usize> = 0..56;
const BLOCK_BYTES: usize = 100_000;
/// The sizes of an answer, and of a message with descriptors.
const ANSWER_BYTES: usize = 96;
const FILES_BYTES: usize = 520;
const MOST_FILES: usize = 8;
/// How long a thread may take to read what was sent to it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Another process, as far as this one can tell: it answers each request with these bytes.
struct Stranger {
    service: [u8; 16],
    answer: &'static Mutex<Vec<u8>>,
}

static STRANGER: LazyLock<Stranger> = LazyLock::new(|| {
    let mut service = [0x5A; 16];
    service[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let listener = UnixListener::bind_addr(&door(&service)).unwrap();
    let answer: &'static Mutex<Vec<u8>> = Box::leak(Box::default());
    std::thread::spawn(move || {
        for line in listener.incoming() {
            let mut line = line.unwrap();
            let mut request = [0; 32];
            if line.read_exact(&mut request).is_ok() {
                send_answer(&mut line, &answer.lock().unwrap());
            }
        }
    });
    Stranger { service, answer }
});

fuzz_target!(|data: &[u8]| {
    static START: std::sync::Once = std::sync::Once::new();
    START.call_once(|| {
        let environment =
            [("GENESIS_BACKEND", "sim"), ("GENESIS_POOL_TYPE", "Caching"), ("GENESIS_LOG", "off")];
        for (name, value) in environment {
            // SAFETY: no other thread runs yet that reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
        panics::end_the_process();
    });
    let Some((&kind, rest)) = data.split_first() else { return };
    // SAFETY: there is no such stream's work.
    let block = unsafe { genesis_malloc(BLOCK_BYTES, 0, ptr::null_mut()) };
    assert!(!block.is_null());
    let mut handle = [0; 64];
    // SAFETY: the block is live and the handle can be written.
    assert_eq!(unsafe { genesis_block_export(block, &mut handle) }, SUCCESS);
    match kind % 4 {
        0 => use_handle(&changed(&handle, rest)),
        1 => answer_import(&handle, rest),
        2 => request(&handle, rest),
        _ => {
            let mut bytes = [0; 64];
            bytes.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            use_handle(&bytes);
        }
    }
    // SAFETY: the block and the handle are as above; a handle that was used up is refused.
    unsafe {
        genesis_free(block, BLOCK_BYTES, 0, ptr::null_mut());
        let _ = genesis_block_discard(&handle);
    }
});

/// `handle` with other bytes at places that `changes` names, and a checksum that is right.
fn changed(handle: &Handle, changes: &[u8]) -> Handle {
    let mut handle = *handle;
    for change in changes.chunks_exact(2) {
        handle[usize::from(change[0]) % CHECKED.end] ^= change[1];
    }
    seal(handle)
}

fn seal(mut handle: Handle) -> Handle {
    let checksum = handle[CHECKED].iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    handle[CHECKED.end..].copy_from_slice(&checksum.to_le_bytes());
    handle
}

fn use_handle(handle: &Handle) {
    let (mut block, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: any bytes may be a handle; what was imported is closed once.
    unsafe {
        let imported = genesis_block_import(handle, -1, &mut block, &mut bytes);
        if imported == SUCCESS {
            assert_eq!(genesis_block_close(block), SUCCESS);
        }
        let _ = genesis_block_discard(handle);
    }
}

/// Imports a block of the stranger, who answers with `data`.
fn answer_import(own: &Handle, data: &[u8]) {
    let mut handle = *own;
    handle[SERVICE].copy_from_slice(&STRANGER.service);
    data.clone_into(&mut STRANGER.answer.lock().unwrap());
    use_handle(&seal(handle));
}

/// Sends `data` to the thread that answers requests, and reads what it says.
fn request(handle: &Handle, data: &[u8]) {
    let service = handle[SERVICE].try_into().unwrap();
    let mut line = UnixStream::connect_addr(&door(service)).unwrap();
    line.set_read_timeout(Some(PATIENCE)).unwrap();
    // Of what it does not understand it ends the line.
    let _ = line.write_all(data);
    let _ = line.shutdown(std::net::Shutdown::Write);
    let mut said = Vec::new();
    match line.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

fn door(service: &[u8; 16]) -> SocketAddr {
    let digits: String = service.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("genesis-{digits}")).unwrap()
}

/// Sends an answer, and then messages with as many descriptors as the first word of each says.
fn send_answer(line: &mut UnixStream, data: &[u8]) {
    let (answer, messages) = data.split_at(data.len().min(ANSWER_BYTES));
    if line.write_all(answer).is_err() {
        return;
    }
    for message in messages.chunks(FILES_BYTES) {
        let count = usize::from(message[0]).min(MOST_FILES);
        if !send_with_files(line, message, count) {
            return;
        }
    }
}

/// Sends `bytes` with `count` descriptors, which are of no memory.
fn send_with_files(line: &UnixStream, bytes: &[u8], count: usize) -> bool {
    static NOTHING: LazyLock<File> = LazyLock::new(|| File::open("/dev/null").unwrap());
    let files = [NOTHING.as_raw_fd(); MOST_FILES];
    let mut control = [0u64; 16];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the header's parts are live until the call returns, and there is room for the control
    // message and its data.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        if count > 0 {
            let files_bytes = (count * size_of::<RawFd>()) as u32;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(files_bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(files_bytes) as _;
            ptr::copy_nonoverlapping(files.as_ptr(), libc::CMSG_DATA(first).cast(), count);
        }
        libc::sendmsg(line.as_raw_fd(), &header, libc::MSG_NOSIGNAL) == bytes.len() as isize
    }
}
