//! The Python package under every version of Python that the machine has, without any other package
//! (`tests/python_versions/program.py`). What it does for PyTorch and others is tested with these:
//! `tests/torch`, `tests/frameworks`.

#[allow(dead_code, reason = "nothing is compiled")]
#[path = "c_interface/programs.rs"]
mod programs;
#[macro_use]
#[path = "support/python_cases.rs"]
mod python_cases;

use std::path::Path;

use programs::{command, library_folder, run_silently};

/// Runs a case of the program under `python`; it checks itself.
fn works(case: &str, python: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = command(python);
    command
        .args(["-W", "error"])
        .arg(root.join("tests/python_versions/program.py"))
        .arg(case)
        .env("PYTHONPATH", root.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GENESIS_LIBRARY", library_folder().join("libgenesis.so"));
    assert_eq!(run_silently(&mut command), "");
}

python_cases! { works:
    modules_warn_of_nothing
    host_buffers_are_arrays
    host_buffers_are_files_buffers
}
