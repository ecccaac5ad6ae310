//! A profile's JSON. What is read can be written in every form, and its JSON is read as the same.
#![no_main]

use genesis_profile::{Form, json, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(profile) = json::read(data) else { return };
    text::report(&profile);
    let mut written = Vec::new();
    Form::Json.write(&profile, &mut written).unwrap();
    assert!(json::read(&written).is_ok());
});
