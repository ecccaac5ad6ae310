//! The file in which processes that share a device write what they hold, and its name; and what each
//! may take and gives back, whatever the entries say.
#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use device_register::{Entry, Neighbourhood};
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
    judge(data);
});

/// Of any entries nobody gets more than the device has, or gives more than it holds.
fn judge(data: &[u8]) {
    let (numbers, _) = data.as_chunks();
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let Some((now_ns, needed_bytes)) = numbers.next().zip(numbers.next()) else { return };
    let mut entries: Vec<Entry> = std::iter::from_fn(|| entry(&mut numbers)).collect();
    let Some(own) = entries.pop() else { return };
    let all = Neighbourhood { own, others: entries };
    let total_bytes = all.others.iter().chain([&all.own]).map(|one| one.total_bytes).max();
    assert!(Some(all.room_bytes(now_ns)) <= total_bytes);
    for one in all.others.iter().chain([&all.own]) {
        assert!(all.budget_bytes(one) <= one.limit_bytes);
        assert!(all.spare_bytes(one, needed_bytes) <= all.own.charged_bytes);
    }
    let asked = all.asked(all.helpers(needed_bytes, now_ns), needed_bytes);
    let asked_bytes: u128 = asked.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    assert!(asked_bytes <= needed_bytes.into());
}

fn entry(numbers: &mut impl Iterator<Item = u64>) -> Option<Entry> {
    let small = numbers.next()?;
    Some(Entry {
        process: small as u32,
        weight: (small >> 32) as u32,
        total_bytes: numbers.next()?,
        charged_bytes: numbers.next()?,
        cached_bytes: numbers.next()?,
        limit_bytes: numbers.next()?,
        guarantee_bytes: numbers.next()?,
        promised_bytes: numbers.next()?,
        promised_since_ns: numbers.next()?,
        door: numbers.next()?,
        container: numbers.next()? % 3,
        container_limit_bytes: numbers.next()?,
        ..Entry::default()
    })
}
