//! The most telling frame of a stack: the innermost of the user's own code.

use crate::model::{Frame, Site};

/// Parts of the paths of files that are not the user's own code.
const NOT_THE_USERS: [&str; 10] = [
    "/site-packages/",
    "/dist-packages/",
    "/python/genesis/",
    "/lib/python3",
    "<frozen ",
    "/include/c++/",
    "/genesis/allocator.hpp",
    "/genesis/memory_resource.hpp",
    // The C library, if it has debug information: the beginning of every thread.
    "/nptl/",
    "/sysdeps/",
];

impl Site {
    /// The index of the most telling frame: the innermost that does not belong to PyTorch, Genesis,
    /// the interpreter's library or C++. If there is none: the operator of a backward pass, or the
    /// innermost. `None` for an unknown site.
    pub fn telling_frame(&self) -> Option<usize> {
        telling(&self.frames)
    }
}

/// The same of a stack, innermost frame first.
pub(crate) fn telling(frames: &[Frame]) -> Option<usize> {
    let is_the_users =
        |file: &str| !file.is_empty() && !NOT_THE_USERS.iter().any(|part| file.contains(part));
    let of_the_user = frames.iter().position(|frame| frame.line != 0 && is_the_users(&frame.file));
    // Nodes of PyTorch's graphs, of which their stacks tell nothing else.
    let of_a_backward_pass = || frames.iter().position(|frame| frame.function.contains("Backward"));
    let innermost = || (!frames.is_empty()).then_some(0);
    of_the_user.or_else(of_a_backward_pass).or_else(innermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telling_of(frames: &[(&str, u32, &str)]) -> Option<usize> {
        let frame = |&(file, line, function): &(&str, u32, &str)| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        };
        telling(&frames.iter().map(frame).collect::<Vec<_>>())
    }

    #[test]
    fn the_users_own_frame_tells_most_and_the_start_of_a_thread_nothing() {
        let torch = ("/v/site-packages/torch/lib/libtorch_cuda.so", 0, "at::create_out");
        let backward = ("/v/site-packages/torch/lib/libtorch_cpu.so", 0, "MmBackward0::apply");
        let start = ("./nptl/pthread_create.c", 442, "start_thread");
        let clone = ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 81, "clone3");
        assert_eq!(telling_of(&[]), None);
        assert_eq!(telling_of(&[torch, ("/a/train.py", 12, "step"), start, clone]), Some(1));
        assert_eq!(telling_of(&[torch, backward, start, clone]), Some(1));
        assert_eq!(telling_of(&[torch, start, clone]), Some(0));
    }
}
