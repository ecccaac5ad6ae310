//! `cargo run --release -p genesis-profile --example sample_page -- EVENTS FILE [OPTION …]`
//!
//! Writes the profile of a program that never ran, in the form that the file's name says (see
//! `Form::of_path`). Options: `--kept N` keeps only the latest N events, `--devices N`,
//! `--no-sites`, and `--hostile`, which puts markup, scripts and control characters into every
//! name.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use genesis_profile::{Form, Profile};
use sample::{Shape, shaped};

const HOSTILE: &str = "</script><script>document.title='owned'</script><img src=x \
                       onerror=\"document.title='owned'\">'\"`${1}\\\u{2028}\u{0}\u{1b}[31m<!--";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [events, path, options @ ..] = arguments else {
        return Err("usage: sample_page EVENTS FILE [OPTION …]".to_owned());
    };
    let events: usize = events.parse().map_err(|_| format!("{events} is no number"))?;
    let mut shape = Shape { events, kept: events, devices: 1, has_sites: true };
    let mut is_hostile = false;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut number = || options.next().and_then(|n| n.parse().ok()).ok_or("a number, please");
        match option.as_str() {
            "--kept" => shape.kept = number()?,
            "--devices" => shape.devices = number()? as u32,
            "--no-sites" => shape.has_sites = false,
            "--hostile" => is_hostile = true,
            other => return Err(format!("{other} is no option")),
        }
    }
    let form = Form::of_path(path.as_ref()).ok_or_else(|| format!("{path}: in which form?"))?;
    let mut profile = shaped(shape);
    if is_hostile {
        make_hostile(&mut profile);
    }
    let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
    let mut out = BufWriter::new(file);
    let written = form.write(&profile, &mut out).and_then(|()| out.flush());
    written.map_err(|error| format!("{path}: {error}"))
}

fn make_hostile(profile: &mut Profile) {
    let Profile { program, strategy, backend, genesis_version, names, sites, devices, .. } =
        profile;
    let frames = sites.iter_mut().flat_map(|site| &mut site.frames);
    let of_frames = frames.flat_map(|frame| [&mut frame.function, &mut frame.file]);
    let of_devices = devices.iter_mut().map(|device| &mut device.name);
    let single = [program, strategy, backend, genesis_version];
    for text in single.into_iter().chain(names).chain(of_frames).chain(of_devices) {
        text.insert_str(0, HOSTILE);
    }
}
