//! Sequences of C calls, right and wrong, on a simulated device. Nothing may crash, and blocks that
//! are live at the end can all be freed.
#![no_main]

mod panics;

use std::ffi::{CString, c_char, c_int, c_void};

use genesis as _;
use libfuzzer_sys::fuzz_target;

unsafe extern "C" {
    fn genesis_malloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
    fn genesis_malloc_alone(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
    fn genesis_free(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void);
    fn genesis_block_record_stream(ptr: *mut c_void, stream: *mut c_void) -> c_int;
    fn genesis_block_release(ptr: *mut c_void) -> c_int;
    fn genesis_block_pause(ptr: *mut c_void) -> c_int;
    fn genesis_block_resume(ptr: *mut c_void) -> c_int;
    fn genesis_cache_empty(device: c_int) -> c_int;
    fn genesis_cache_trim(device: c_int, bytes: usize, released: *mut usize) -> c_int;
    fn genesis_garbage_collect(device: c_int, released: *mut usize) -> c_int;
    fn genesis_memory_compact(device: c_int, bytes: *mut usize) -> c_int;
    fn genesis_memory_limit_set(device: c_int, bytes: usize) -> c_int;
    fn genesis_memory_fraction_set(device: c_int, fraction: f64) -> c_int;
    fn genesis_cache_limit_set(device: c_int, bytes: usize) -> c_int;
    fn genesis_memory_preallocate(device: c_int, bytes: usize, stream: *mut c_void) -> c_int;
    fn genesis_peer_access_enable(device: c_int, peer: c_int) -> c_int;
    fn genesis_stream_wait(device: c_int, stream: *mut c_void, other: *mut c_void) -> c_int;
    fn genesis_stream_forget(stream: *mut c_void) -> c_int;
    fn genesis_capture_begin(device: c_int) -> c_int;
    fn genesis_capture_end(device: c_int) -> c_int;
    fn genesis_tag_push(tag: *const c_char) -> c_int;
    fn genesis_tag_push_with(tag: *const c_char, backup: c_int) -> c_int;
    fn genesis_tag_pop() -> c_int;
    fn genesis_tag_limit_set(tag: *const c_char, device: c_int, bytes: usize) -> c_int;
    fn genesis_tags_resume() -> c_int;
    fn genesis_tag_resume(tag: *const c_char) -> c_int;
    fn genesis_host_malloc(size: usize, kind: c_int) -> *mut c_void;
    fn genesis_host_free(ptr: *mut c_void);
    fn genesis_host_cache_empty(kind: c_int) -> c_int;
    fn genesis_option_set(name: *const c_char, value: *const c_char) -> c_int;
    fn genesis_option_get(name: *const c_char, buffer: *mut c_char, capacity: usize) -> c_int;
    fn genesis_device_name_get(device: c_int, buffer: *mut c_char, capacity: usize) -> c_int;
    fn genesis_stats_reset_peak(device: c_int) -> c_int;
}

/// Options that may change while the library runs.
const OPTIONS: [&str; 6] = [
    "GENESIS_CACHE_SIZE",
    "GENESIS_GC_THRESHOLD",
    "GENESIS_GC_AGE_ALLOCATIONS",
    "GENESIS_DEBUG",
    "GENESIS_QUARANTINE_SIZE",
    "GENESIS_CALL_SITES",
];
const VALUES: [&str; 7] = ["", "0", "1", "0.5", "1MiB", "quarantine", "poison"];

/// The bytes, read as the arguments of calls.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Mostly one of two devices; now and then one that is none.
    fn device(&mut self) -> Option<c_int> {
        Some(match self.byte()? {
            250.. => -1,
            245.. => c_int::MAX,
            byte => c_int::from(byte % 3),
        })
    }

    fn stream(&mut self) -> Option<*mut c_void> {
        Some([0, 1, 2, 0xA000, 0xB000][self.byte()? as usize % 5] as *mut c_void)
    }

    /// Up to 256 MiB, or far too much.
    fn bytes(&mut self) -> Option<usize> {
        let (shift, rest) = (self.byte()?, self.byte()? as usize);
        Some(if shift == 255 { usize::MAX - rest } else { (1 << (shift % 28)) + rest })
    }
}

fuzz_target!(|data: &[u8]| {
    static START: std::sync::Once = std::sync::Once::new();
    START.call_once(|| {
        let environment = [
            ("GENESIS_BACKEND", "sim"),
            ("GENESIS_SIM_DEVICES", "2"),
            ("GENESIS_SIM_MEMORY", "512MiB"),
            ("GENESIS_LOG", "off"),
        ];
        for (name, value) in environment {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(name, value) };
        }
        panics::end_the_process();
    });
    let mut input = Input(data);
    let mut live = Vec::new();
    let mut host = Vec::new();
    while call(&mut input, &mut live, &mut host).is_some() {}
    // SAFETY: any arguments are valid; the blocks are live.
    unsafe {
        while genesis_tag_pop() == 0 {}
        for device in 0..2 {
            while genesis_capture_end(device) == 0 {}
            genesis_memory_limit_set(device, usize::MAX);
        }
        live.into_iter().for_each(|block| genesis_free(block, 0, 0, std::ptr::null_mut()));
        host.into_iter().for_each(|block| genesis_host_free(block));
        for device in 0..2 {
            assert_eq!(genesis_cache_empty(device), 0);
        }
    }
});

/// Makes one call; `None` at the end of the input.
fn call(
    input: &mut Input<'_>,
    live: &mut Vec<*mut c_void>,
    host: &mut Vec<*mut c_void>,
) -> Option<()> {
    let kind = input.byte()?;
    let number = input.byte()? as usize;
    let tag = [c"", c"a", c"b"][number % 3].as_ptr();
    let block = live.get(number % live.len().max(1)).copied().unwrap_or(number as *mut c_void);
    let mut out = 0;
    // SAFETY: any device, stream, size and number is valid; pointers are to memory of ours, or to
    // blocks, or foreign, which is refused. A name is a C string.
    unsafe {
        match kind % 34 {
            0..6 => {
                let made = genesis_malloc(input.bytes()?, input.device()?, input.stream()?);
                live.extend((!made.is_null()).then_some(made));
            }
            6..10 if !live.is_empty() => {
                let block = live.swap_remove(number % live.len());
                genesis_free(block, number, 7, input.stream()?);
            }
            6..10 => genesis_free(block, 0, 0, std::ptr::null_mut()),
            10 => drop(genesis_block_record_stream(block, input.stream()?)),
            11 if !live.is_empty() => {
                drop(genesis_block_release(live.swap_remove(number % live.len())));
            }
            12 => drop(genesis_block_pause(block)),
            13 => drop(genesis_block_resume(block)),
            14 => drop(genesis_cache_empty(input.device()?)),
            15 => drop(genesis_cache_trim(input.device()?, input.bytes()?, &mut out)),
            16 => drop(genesis_garbage_collect(input.device()?, &mut out)),
            17 => drop(genesis_memory_compact(input.device()?, &mut out)),
            18 => drop(genesis_memory_limit_set(input.device()?, input.bytes()?)),
            19 => drop(genesis_memory_fraction_set(input.device()?, number as f64 / 200.0)),
            20 => drop(genesis_cache_limit_set(input.device()?, input.bytes()?)),
            21 => {
                drop(genesis_memory_preallocate(input.device()?, input.bytes()?, input.stream()?));
            }
            22 => drop(genesis_peer_access_enable(input.device()?, input.device()?)),
            23 => drop(genesis_stream_wait(input.device()?, input.stream()?, input.stream()?)),
            24 => drop(genesis_stream_forget(input.stream()?)),
            25 if number % 4 == 0 => drop(genesis_capture_begin(input.device()?)),
            25 => drop(genesis_capture_end(input.device()?)),
            26 => drop(genesis_tag_push(tag)),
            27 => drop(genesis_tag_push_with(tag, c_int::from(input.byte()?))),
            28 => drop(genesis_tag_pop()),
            29 => drop(genesis_tag_limit_set(tag, input.device()?, input.bytes()?)),
            30 if number % 2 == 0 => drop(genesis_tags_resume()),
            30 => drop(genesis_tag_resume(tag)),
            31 => {
                let made = genesis_host_malloc(input.bytes()? % (1 << 22), (number % 3) as c_int);
                host.extend((!made.is_null()).then_some(made));
                if host.len() > 8 {
                    genesis_host_free(host.remove(0));
                    genesis_host_cache_empty((number % 3) as c_int);
                }
            }
            32 => {
                let made = genesis_malloc_alone(input.bytes()?, input.device()?, input.stream()?);
                live.extend((!made.is_null()).then_some(made));
            }
            _ => {
                let name = CString::new(OPTIONS[number % OPTIONS.len()]).ok()?;
                let value = CString::new(VALUES[input.byte()? as usize % VALUES.len()]).ok()?;
                genesis_option_set(name.as_ptr(), value.as_ptr());
                let mut buffer = [0; 16];
                genesis_option_get(name.as_ptr(), buffer.as_mut_ptr(), number % 17);
                genesis_device_name_get(input.device()?, buffer.as_mut_ptr(), number % 17);
                genesis_stats_reset_peak(0);
            }
        }
    }
    Some(())
}
