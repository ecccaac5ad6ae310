//! A recorded trace: GTR1, GTR1 compressed with Zstandard, or a log of RMM's. What is read can be
//! written, and is read again as it was.
#![no_main]

use genesis_replay::gtr;
use genesis_replay::program::Program;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(records) = gtr::read(data) else { return };
    let _ = Program::prepare(&records);
});
