//! Native stacks: return addresses, as the unwinder of the C runtime finds them.
//!
//! `_Unwind_Backtrace` of libgcc reads the unwinding tables, which every object on x86-64 and
//! AArch64 has whether or not it is stripped; frame pointers are not needed. It passes signal
//! frames, ends where there are no tables (generated code, hand-written assembly) and takes no
//! lock but the loader's, for the list of objects, and since glibc 2.35 not even that. Frames of
//! this library are left out: the range of its own addresses is known.
//!
//! **Walked once.** That costs a third of a microsecond a frame, and programs come back on the
//! same stacks. On x86-64 a call leaves the address that it returns to at a place which the unwinder
//! tells, so each thread keeps the latest stacks it has walked as [`Chain`]s: the place and the
//! address of every frame, from our own outwards. If all of a chain's places hold its addresses
//! again, seen from a frame of ours that lies where it lay then, this is that stack. A place is
//! looked at only once all further in have agreed, and so is always in the living part of the
//! stack; a function's frame is as large as it was when it called from the same instruction,
//! but for one that makes room by `alloca`: two of those would have to make up for each other,
//! and leave old addresses where they were, for one site to be taken for the other. Stacks with
//! signal frames, and those in which the places do not hold the addresses, are not kept.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ops::Range;

use once_cell::sync::Lazy;

/// So many frames of a stack are told, from the innermost.
pub(super) const MOST_FRAMES: usize = 32;
/// How many of our own frames may come before them.
const MOST_OWN_FRAMES: usize = 32;

/// Whether a call leaves the address it returns to below what the unwinder calls the frame's
/// address.
const ARE_RETURNS_IN_PLACE: bool = cfg!(target_arch = "x86_64");
/// How many places of our own frame there are chains for, and how many chains for each.
const SETS: usize = 64;
const WAYS: usize = 4;

/// The addresses of this library; empty where it is part of the program itself.
static OWN_CODE: Lazy<Range<usize>> = Lazy::new(own_code);

thread_local! {
    static CHAINS: RefCell<Vec<Set>> = const { RefCell::new(Vec::new()) };
}

/// Stacks seen from the same place, or places that share a set.
#[derive(Default)]
struct Set {
    chains: [Option<Chain>; WAYS],
    next: usize,
}

/// A stack as it was walked.
struct Chain {
    /// Where a frame of ours was.
    anchor: usize,
    /// Where return addresses lay, and the addresses; from the innermost.
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

/// Writes the return addresses of this thread's stack to `words`, from the innermost outside of
/// this library; says how many there are.
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
    // Stacks are aligned to 16 bytes, and come at distances of a few hundred.
    (anchor >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & (SETS - 1)
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
    // SAFETY: `visit` gets back the pointer it expects, during this call only.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    if walk.is_kept {
        // The innermost frames are those of this function, which is not there next time.
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
    /// Whether each place holds its address.
    #[inline]
    fn is_this_stack(&self) -> bool {
        // SAFETY: the first place is in the frame around the anchor, which is that of a function
        // now running on this thread; each further one is in a frame outside of one that has just
        // been found to be the same. They are aligned words of this thread's own stack.
        let holds = |place: usize| unsafe { (place as *const usize).read_volatile() };
        self.places.iter().all(|(place, address)| holds(*place) == *address)
    }

    /// Has it found the next time.
    fn keep(self) {
        let is_in_order = self.places.is_sorted_by(|(one, _), (next, _)| one < next);
        let is_aligned =
            self.places.iter().all(|(place, _)| place & (align_of::<usize>() - 1) == 0);
        // Where it says other than the unwinder now, it would next time.
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
    /// Takes a frame in; says whether to go on.
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

    /// Notes where the frame's return address lies.
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
    // SAFETY: the pointer that `walk` passed, to a value that nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let mut is_signal_frame = 0;
    // SAFETY: the context of this frame, as the unwinder passed it, and a place for an `int`.
    let (address, frame) =
        unsafe { (_Unwind_GetIPInfo(context, &mut is_signal_frame), _Unwind_GetCFA(context)) };
    if address == 0 {
        // The end of the stack is told as a frame as well.
        return STOP;
    }
    walk.is_kept &= is_signal_frame == 0;
    walk.note(frame.wrapping_sub(size_of::<usize>()), address);
    // In all but signal frames the address is that after the call: the one before is within it.
    let within = if is_signal_frame == 0 { address.saturating_sub(1) } else { address };
    if walk.step(within) { GO_ON } else { STOP }
}

unsafe extern "C" {
    /// Calls the function for each frame, from the innermost, until it returns other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    /// The address that the frame's next instruction is at, and whether that is where a signal
    /// came instead of behind a call.
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before: *mut c_int) -> usize;
    /// Where the frame's stack ended when it called the next.
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// Where the object with this very code lies, unless it is the program itself, in which other
/// code is the user's.
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
        // SAFETY: the loader passes a valid entry, and the pointer that `own_code` gave it.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader's string; the program's is empty.
        let is_program = info.dlpi_name.is_null() || unsafe { *info.dlpi_name } == 0;
        if is_program || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as many headers as the entry says.
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
    // SAFETY: `look` gets back the pointer it expects, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
