//! Options: a line for each, `NAME=VALUE`. What was set is shown so that it can be set again.
#![no_main]

use genesis::config::{OPTIONS, Settings, get, set};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut settings = Settings::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        // A number stands for one of the names, which are hard to guess.
        let known = name.parse().ok().and_then(|number: usize| OPTIONS.get(number));
        let name = known.map_or(name, |option| option.name);
        if set(&mut settings, name, value, false).is_err() {
            continue;
        }
        let shown = get(&settings, name).unwrap();
        let mut again = settings.clone();
        set(&mut again, name, &shown, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(get(&again, name).unwrap(), shown);
    }
});
