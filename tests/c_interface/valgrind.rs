//! What valgrind is told.

/// To say nothing but of errors and of what leaks for certain, which fail the program. Threads take
/// turns, as one that waits for another's lock may wait for ever otherwise.
pub const ARGUMENTS: [&str; 7] = [
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--fair-sched=yes",
    // Which names a few more functions in a report, and takes a quarter of a short run.
    "--read-inline-info=no",
];
