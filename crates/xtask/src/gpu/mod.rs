//! `cargo xtask gpu`: measures a GPU, its driver, and Genesis on them.
//!
//! `crates/gpu-probe` measures. This builds the folder that it runs from (`bundle`), starts it, and
//! writes the results to the project's own folder for that GPU; those of the simulated driver, where
//! there is no GPU, to the build folder. The built folder runs without cargo and without this repository:
//! `FOLDER/run` on the machine with the GPU.

mod bundle;

use std::path::{Path, PathBuf};
use std::process::Command;

use steps::{Outcome, Step, root, run, target_folder};

/// Where the results of GPUs go, each in a folder of its name, from the root of the repository.
const RESULTS: &str = "docs/benchmarks";
/// Where those of the simulated driver go, from the build folder.
const SIMULATED_RESULTS: &str = "gpu/results";

/// Measure a GPU and its driver, and Genesis on them; without one, show it on a simulated driver
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only build: make FOLDER, which can be carried to a machine with a GPU; there, FOLDER/run
    #[arg(long, value_name = "FOLDER", conflicts_with = "run")]
    build: Option<PathBuf>,
    /// Only run, from a folder built before
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    /// The Python that has PyTorch [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn gpu(arguments: &Arguments) -> Outcome {
    if let Some(folder) = &arguments.build {
        return bundle::build(folder);
    }
    if let Some(folder) = &arguments.run {
        return measure(folder, arguments.python.as_deref());
    }
    let folder = target_folder().join("gpu");
    bundle::build(&folder)?;
    measure(&folder, arguments.python.as_deref())
}

fn measure(folder: &Path, python: Option<&Path>) -> Outcome {
    let program = std::path::absolute(folder.join(bundle::RUN))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let results = match gpu_name(folder) {
        Some(name) => root().join(RESULTS).join(folder_name(&name)),
        None => target_folder().join(SIMULATED_RESULTS),
    };
    let mut step = Step::new(program, &["--output"]);
    step.extend([results]);
    if let Some(python) = python {
        step.extend([Path::new("--python"), python]);
    }
    run(&step)
}

/// What the driver calls the machine's GPU; `None` if there is no driver, or no GPU.
fn gpu_name(folder: &Path) -> Option<String> {
    let asked = Command::new(folder.join(bundle::PROBE)).arg("machine").output().ok()?;
    let machine: serde_json::Value = serde_json::from_slice(&asked.stdout).ok()?;
    Some(machine["gpu"].as_str()?.to_owned())
}

/// A name in small letters, digits and underscores.
fn folder_name(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric();
    let words = name.split(|character| !is_plain(character)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_as_the_gpu() {
        assert_eq!(folder_name("NVIDIA H100 80GB HBM3"), "nvidia_h100_80gb_hbm3");
        assert_eq!(folder_name("Tesla T4 (A/B) "), "tesla_t4_a_b");
    }
}
