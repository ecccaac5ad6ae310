//! `cargo xtask long-runs`: programs whose steps never repeat, under the real PyTorch on simcuda,
//! with Genesis and with PyTorch's own allocator. `benches/long_runs` has the programs and writes
//! docs/benchmarks/long_runs.md.

use steps::{Outcome, run, target_folder};

use crate::libraries::Profile;
use crate::torch;

/// Installs what is missing, builds, and measures; `arguments` go to benches/long_runs/measure.py.
pub(crate) fn measure(arguments: &[String]) -> Outcome {
    let python = torch::install()?;
    Profile::Release.build()?;
    let mut measure = torch::python_on_simcuda(&python, Profile::Release);
    measure.extend(["benches/long_runs/measure.py".into(), "--build".into(), target_folder()]);
    measure.extend(arguments);
    run(&measure)
}
