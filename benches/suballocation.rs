//! What a call of arenas, fixed-size pools and memory managers costs through the C ABI, beside
//! std::pmr's resources and mimalloc, in one process. The program is `suballocation/pairs.cpp`.
//!
//! `MIMALLOC_LIBRARY` names mimalloc's shared library where the system has none, and
//! `MIMALLOC_SECURE_LIBRARY` one that was built with its own checks.

#[allow(dead_code)] // one program is compiled
#[path = "../tests/c_interface/programs.rs"]
mod programs;

use programs::Language::Cpp17;

fn main() {
    let mut compiler = programs::compiler(Cpp17);
    compiler.args(["-O2", "-pthread"]);
    let source = "../benches/suballocation/pairs.cpp";
    let program = programs::compile_by(compiler, "bench", source, Cpp17, true);
    let mut pairs = programs::command(program);
    if std::env::args().any(|argument| argument == "--smoke") {
        pairs.arg("--smoke");
    }
    print!("{}", programs::run_silently(&mut pairs));
}
