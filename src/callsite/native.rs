//! Native stacks: return addresses, as the unwinder of the C runtime finds them.
//!
//! `_Unwind_Backtrace` of libgcc reads the unwind tables, which every object on x86-64 and AArch64
//! has, stripped or not; frame pointers are not needed. It passes signal frames and stops at code
//! without tables (generated code, hand-written assembly). It takes no lock except the loader's for
//! the list of objects, and since glibc 2.35 not even that. Frames of this library are left out;
//! the range of its addresses is known.
//!
//! **Walked once.** A walk costs a third of a microsecond a frame, and programs come back on the
//! same stacks. On x86-64 a call leaves its return address at a place that the unwinder reports. So
//! each thread keeps the latest stacks that it has walked as [`Chain`]s: the place and the address
//! of every frame, from our own outwards. If a frame of ours is at the chain's anchor and all
//! places hold the chain's addresses, this is the same stack.
//!
//! Why a place may be read: it is read only after all places further in have matched. A frame that
//! called from the same instruction has the same size, so the place is within the live stack. The
//! exception is a frame that uses `alloca`: one site is taken for another only if two such frames
//! differ by the same size in opposite directions and old addresses remain at the places.
//!
//! Stacks with signal frames, and those whose places do not hold the addresses, are not kept.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ops::Range;

use once_cell::sync::Lazy;

use crate::base::hash::spread;

/// The most frames of a stack, innermost first.
pub(super) const MOST_FRAMES: usize = 32;
/// The most frames of this library before them.
const MOST_OWN_FRAMES: usize = 32;

/// Whether a call leaves its return address directly below the frame address (CFA) of the unwinder.
const ARE_RETURNS_IN_PLACE: bool = cfg!(target_arch = "x86_64");
/// The number of sets of chains, chosen by the anchor, and of chains in a set.
const SETS: usize = 64;
const WAYS: usize = 4;

/// The addresses of this library; empty if it is linked into the program itself.
static OWN_CODE: Lazy<Range<usize>> = Lazy::new(own_code);

thread_local! {
    static CHAINS: RefCell<Vec<Set>> = const { RefCell::new(Vec::new()) };
}

/// Stacks with the same anchor, or with anchors that share a set.
#[derive(Default)]
struct Set {
    chains: [Option<Chain>; WAYS],
    next: usize,
}

/// A stack as it was walked.
struct Chain {
    /// The address of a local variable in `capture`.
    anchor: usize,
    /// Return addresses and the places that held them, innermost first.
    places: Box<[(usize, usize)]>,
    words: Box<[u64]>,
}

struct Walk<'a> {
    words: &'a mut [u64],
    count: usize,
    own_frames: usize,
    own_code: Range<usize>,
    places: [(usize, usize); MOST_FRAMES + MOST_OWN_FRAMES],
    place_count: usize,
    is_kept: bool,
}

/// Writes the return addresses of this thread's stack outside of this library to `words`, innermost
/// first; returns their number.
#[inline(never)]
pub(super) fn capture(words: &mut [u64]) -> usize {
    let anchor = 0_u8;
    let anchor = black_box(&raw const anchor) as usize;
    let known = CHAINS.try_with(|chains| {
        let chains = chains.try_borrow().ok()?;
        let mut of_place = chains.get(set_of(anchor))?.chains.iter().flatten();
        let chain = of_place.find(|chain| chain.anchor == anchor && chain.is_this_stack())?;
        let count = chain.words.len().min(words.len());
        words[..count].copy_from_slice(&chain.words[..count]);
        Some(count)
    });
    match known {
        Ok(Some(count)) => count,
        _ => walk(words, anchor),
    }
}

fn set_of(anchor: usize) -> usize {
    // Stacks are aligned to 16 bytes and differ by a few hundred.
    (spread(anchor as u64 >> 4) >> 32) as usize & (SETS - 1)
}

#[cold]
#[inline(never)]
fn walk(words: &mut [u64], anchor: usize) -> usize {
    let mut walk = Walk {
        words,
        count: 0,
        own_frames: 0,
        own_code: OWN_CODE.clone(),
        places: [(0, 0); MOST_FRAMES + MOST_OWN_FRAMES],
        place_count: 0,
        is_kept: ARE_RETURNS_IN_PLACE,
    };
    // SAFETY: `visit` gets the pointer it expects, during this call only.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    if walk.is_kept {
        // The innermost frames are those of this function, which does not run the next time.
        let places = walk.places[..walk.place_count].iter().copied();
        let chain = Chain {
            anchor,
            places: places.filter(|(place, _)| *place > anchor).collect(),
            words: walk.words[..walk.count].into(),
        };
        chain.keep();
    }
    walk.count
}

impl Chain {
    /// Returns true if each place holds its address.
    #[inline]
    fn is_this_stack(&self) -> bool {
        // SAFETY: the first place is in the frame around the anchor, which belongs to a function
        // that now runs on this thread. Each further place is in a frame outside of one that has
        // just matched. They are aligned words of this thread's own stack.
        let holds = |place: usize| unsafe { (place as *const usize).read_volatile() };
        self.places.iter().all(|(place, address)| holds(*place) == *address)
    }

    /// Stores the chain for the next time.
    fn keep(self) {
        let is_in_order = self.places.is_sorted_by(|(one, _), (next, _)| one < next);
        let is_aligned =
            self.places.iter().all(|(place, _)| place & (align_of::<usize>() - 1) == 0);
        // A chain that does not match the stack now never would.
        if self.places.is_empty() || !is_in_order || !is_aligned || !self.is_this_stack() {
            return;
        }
        let _ = CHAINS.try_with(|chains| {
            let Ok(mut chains) = chains.try_borrow_mut() else { return };
            if chains.is_empty() {
                chains.resize_with(SETS, Set::default);
            }
            if let Some(set) = chains.get_mut(set_of(self.anchor)) {
                set.next = (set.next + 1) % WAYS;
                set.chains[set.next] = Some(self);
            }
        });
    }
}

impl Walk<'_> {
    /// Visits a frame; returns true to continue.
    fn step(&mut self, return_address: usize) -> bool {
        if self.count == 0 && self.own_code.contains(&return_address) {
            self.own_frames += 1;
            return self.own_frames < MOST_OWN_FRAMES;
        }
        let Some(word) = self.words.get_mut(self.count) else {
            return false;
        };
        *word = return_address as u64;
        self.count += 1;
        self.count < self.words.len()
    }

    /// Notes the place of the frame's return address.
    fn note(&mut self, place: usize, address: usize) {
        match self.places.get_mut(self.place_count) {
            Some(entry) => *entry = (place, address),
            None => self.is_kept = false,
        }
        self.place_count += 1;
    }
}

const GO_ON: c_int = 0;
/// Any other number ends the walk.
const STOP: c_int = 5;

extern "C" fn visit(context: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `walk` passed, to a value that it does not use meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let mut is_signal_frame = 0;
    // SAFETY: the context of this frame, as the unwinder passed it, and a writable `int`.
    let (address, frame) =
        unsafe { (_Unwind_GetIPInfo(context, &mut is_signal_frame), _Unwind_GetCFA(context)) };
    if address == 0 {
        // The end of the stack is visited as a frame too.
        return STOP;
    }
    walk.is_kept &= is_signal_frame == 0;
    walk.note(frame.wrapping_sub(size_of::<usize>()), address);
    // Except in signal frames this is the address after the call; one less is within the call.
    let within = if is_signal_frame == 0 { address.saturating_sub(1) } else { address };
    if walk.step(within) { GO_ON } else { STOP }
}

unsafe extern "C" {
    /// Calls `visit` for each frame, innermost first, until it returns a value other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    /// The address of the frame's next instruction; writes whether a signal interrupted the frame
    /// there, instead of a call.
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before: *mut c_int) -> usize;
    /// The end of the frame's stack at its call of the next frame.
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The addresses of the object with this code, unless it is the program itself, whose other code is
/// the user's.
fn own_code() -> Range<usize> {
    struct Search {
        own: usize,
        found: Range<usize>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry, and the pointer from `own_code`.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader's string; that of the program is empty.
        let is_program = info.dlpi_name.is_null() || unsafe { *info.dlpi_name } == 0;
        if is_program || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the entry has this many headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let segment = start..start.wrapping_add(header.p_memsz as usize);
            if segment.contains(&search.own) {
                search.found = segment;
                return 1;
            }
        }
        0
    }
    let mut search = Search { own: own_code as fn() -> Range<usize> as usize, found: 0..0 };
    // SAFETY: `look` gets the pointer it expects, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
