//! The file in which processes that share a device write what they hold, and its name.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // SAFETY: a name that ends, and a descriptor that nobody else has.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"register".as_ptr(), 0)) };
    file.write_all(data).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let _ = device_register::read(&path);
    if let Ok(name) = std::str::from_utf8(data) {
        let _ = device_register::parse_file_name(name);
    }
});
