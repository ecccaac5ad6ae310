//! Cases of a Python program, each a test under `python3` and under each other version that the
//! machine has.

#[path = "pythons.rs"]
pub mod pythons;

/// Makes a test of each case, for each Python: `run(case, python)`.
macro_rules! python_cases {
    ($run:ident: $($case:ident)*) => {
        python_cases! { @under python, std::path::PathBuf::from("python3"); $run: $($case)* }
        python_cases! { @found python_3_9, "3.9", "needs Python 3.9"; $run: $($case)* }
        python_cases! { @found python_3_10, "3.10", "needs Python 3.10"; $run: $($case)* }
        python_cases! { @found python_3_11, "3.11", "needs Python 3.11"; $run: $($case)* }
        python_cases! { @found python_3_12, "3.12", "needs Python 3.12"; $run: $($case)* }
        python_cases! { @found python_3_13, "3.13", "needs Python 3.13"; $run: $($case)* }
        python_cases! { @found python_3_14, "3.14", "needs Python 3.14"; $run: $($case)* }
        python_cases! { @found python_3_15, "3.15", "needs Python 3.15"; $run: $($case)* }
    };
    (@found $module:ident, $version:literal, $need:literal; $run:ident: $($case:ident)*) => {
        python_cases! {
            @under $module, crate::python_cases::pythons::find($version).unwrap(), ignore = $need;
            $run: $($case)*
        }
    };
    (@under $module:ident, $python:expr $(, $when:meta)?; $run:ident: $($case:ident)*) => {
        mod $module {
            python_cases! { @cases $python $(, $when)?; $run: $($case)* }
        }
    };
    (@cases $python:expr; $run:ident: $($case:ident)*) => {
        $(#[test]
        fn $case() {
            super::$run(stringify!($case), &$python);
        })*
    };
    (@cases $python:expr, $when:meta; $run:ident: $($case:ident)*) => {
        $(#[test]
        #[$when]
        fn $case() {
            super::$run(stringify!($case), &$python);
        })*
    };
}
