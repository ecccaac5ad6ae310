//! The recursion guard: is the thread in a call that this library has made?
//!
//! CUDA's runtime calls the driver by pointers that were taken over, so what this library passes
//! to the runtime comes back at the driver's level. Such a call passes, and is not counted again.
//!
//! The thread's depth is read in every call. In a shared library a thread-local variable costs a
//! function call, because the library may be loaded late. This one is loaded with the program, so
//! on x86-64 the variable has a place that the loader knows (the model *initial exec*), which costs
//! two loads. If a program loads the library itself, the C library has room for it still.

/// While this lives, calls of the thread pass.
pub(crate) struct Inside(());

/// Enters a function of CUDA's or of Genesis's.
#[inline]
pub(crate) fn enter() -> Inside {
    depth::set(depth::get() + 1);
    Inside(())
}

/// Returns true if the thread is in a call that this library has made.
#[inline]
pub(crate) fn is_inside() -> bool {
    depth::get() != 0
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        depth::set(depth::get() - 1);
    }
}

#[cfg(target_arch = "x86_64")]
mod depth {
    use std::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.genesis_preload_depth, \"awT\", @nobits",
        ".p2align 2",
        ".globl genesis_preload_depth",
        ".hidden genesis_preload_depth",
        ".type genesis_preload_depth, @object",
        ".size genesis_preload_depth, 4",
        "genesis_preload_depth:",
        ".zero 4",
        ".popsection",
    );

    #[inline]
    pub(super) fn get() -> u32 {
        let depth: u32;
        // SAFETY: loads the thread's variable above.
        unsafe {
            asm!(
                "mov {place}, qword ptr [rip + genesis_preload_depth@GOTTPOFF]",
                "mov {depth:e}, dword ptr fs:[{place}]",
                place = out(reg) _,
                depth = out(reg) depth,
                options(nostack, preserves_flags, readonly),
            );
        }
        depth
    }

    #[inline]
    pub(super) fn set(depth: u32) {
        // SAFETY: stores to the thread's variable above, which nothing else names.
        unsafe {
            asm!(
                "mov {place}, qword ptr [rip + genesis_preload_depth@GOTTPOFF]",
                "mov dword ptr fs:[{place}], {depth:e}",
                place = out(reg) _,
                depth = in(reg) depth,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod depth {
    use std::cell::Cell;

    thread_local! {
        // No destructor, because ending threads may still call.
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn get() -> u32 {
        DEPTH.get()
    }

    #[inline]
    pub(super) fn set(depth: u32) {
        DEPTH.set(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::{enter, is_inside};

    #[test]
    fn each_thread_has_its_own_depth() {
        assert!(!is_inside());
        let outer = enter();
        let inner = enter();
        drop(inner);
        assert!(is_inside());
        assert!(!std::thread::spawn(is_inside).join().unwrap());
        drop(outer);
        assert!(!is_inside());
    }
}
