//! The circumstances of a run: its date, machine, versions and settings, as the pages list them.

use std::process::Command;

use crate::install::{PYTORCH_VERSION, RMM_VERSION};
use steps::root;

/// The run's date, machine, versions and settings.
pub(crate) fn read(passes: u16, prices: &str) -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ("date", first_line_of("date", &["-u", "+%Y-%m-%d"])),
        ("processor", format!("{}, {cores} cores for the run", processor())),
        ("system", first_line_of("uname", &["-sm"])),
        ("Genesis", first_line_of("git", &["describe", "--always", "--dirty"])),
        ("PyTorch", PYTORCH_VERSION.to_owned()),
        ("RMM", RMM_VERSION.to_owned()),
        (
            "compilers",
            format!(
                "{}; {}",
                first_line_of("rustc", &["-V"]),
                first_line_of("c++", &["--version"])
            ),
        ),
        ("passes", format!("{passes} in each process, unless said otherwise")),
        ("driver time", format!("by the prices of {prices}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// `circumstances` with the machine's load now, when measuring begins: it affects the times.
pub(crate) fn with_load(circumstances: &[(String, String)]) -> Vec<(String, String)> {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = text.split_whitespace().next().unwrap_or("unknown");
    let load = format!("{minute} processes running, on average over a minute");
    let load = ("load when it began".to_owned(), load);
    circumstances.iter().cloned().chain([load]).collect()
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    match (value("model name"), value("cpu family"), value("model\t")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model})")
        }
        (name, _, _) => name.unwrap_or_else(|| "unknown".to_owned()),
    }
}

/// The first line that a program prints.
fn first_line_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
