//! A call that is being served: its row, and the level at which it was made.

use std::ffi::c_int;

use crate::{last_error, report};

/// Which interface of CUDA's a call belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Driver,
    Runtime,
}

/// A call of one of our symbols.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    row: usize,
    pub(crate) level: Level,
}

impl Call {
    /// A call of row `row`, whose symbol is `name`.
    pub(crate) const fn new(row: usize, name: &str) -> Self {
        let name = name.as_bytes();
        let is_runtime = name[2] == b'd' && name[3] == b'a';
        Self { row, level: if is_runtime { Level::Runtime } else { Level::Driver } }
    }

    /// It is served: the answer is success.
    #[inline]
    pub(crate) fn serve(self) -> c_int {
        report::served(self.row);
        0
    }

    /// It is refused: the answer is `code`, which the runtime remembers as its last error.
    #[cold]
    pub(crate) fn refuse(self, code: c_int) -> c_int {
        report::refused(self.row);
        if self.level == Level::Runtime {
            last_error::set(code);
        }
        code
    }
}

/// A call of the symbol of that name.
macro_rules! call {
    ($name:ident) => {
        const {
            let name = stringify!($name);
            $crate::call::Call::new($crate::symbols::row(name), name)
        }
    };
}
pub(crate) use call;
