//! Threads that replay the same recorded program, each on streams of its own, and take turns.
//!
//! A seed decides how long turns are, so that what is held and what is called is the same everywhere.
//! How far each thread has come differs from pass to pass, as if they ran at once; nothing contends.

use std::sync::mpsc::{Receiver, Sender, channel};

use genesis::base::StreamHandle;
use genesis_replay::program::{Call, Kind, Program};

use super::replay::perform;
use super::{Random, Rig};

/// How many threads there are, and how their turns are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub threads: usize,
    pub seed: u64,
    /// About the most calls of a turn; at least 1.
    pub longest: u64,
}

/// A thread that is told where a turn begins and how many calls it has, and tells when it is done.
type Thread = (Sender<(usize, usize)>, Receiver<()>);

/// One thread's part of a program.
struct Part {
    calls: Vec<Call>,
    pointers: Vec<u64>,
    /// Its streams' handles begin here.
    first_stream: usize,
}

impl Part {
    /// Makes `count` calls from the one numbered `start`.
    fn play(&mut self, rig: &Rig, start: usize, count: usize) {
        for call in &self.calls[start..start + count] {
            let stream = StreamHandle(self.first_stream + usize::from(call.stream) * 0x100);
            perform(&rig.heap, call, stream, &mut self.pointers[call.slot as usize]).unwrap();
        }
    }
}

/// Replays `passes` passes of the program in each thread on `rig`, all but its calls that give
/// memory back. After each pass `each_pass` is called.
pub fn take_turns(
    rig: &Rig,
    program: &Program,
    turns: Turns,
    passes: usize,
    mut each_pass: impl FnMut(),
) {
    let calls = program.calls.iter().chain(&program.leftovers);
    let calls: Vec<Call> = calls.filter(|call| call.kind != Kind::EmptyCache).copied().collect();
    let mut random = Random(turns.seed);
    std::thread::scope(|scope| {
        let start = |thread| {
            let mut part = Part {
                calls: calls.clone(),
                pointers: vec![0; program.slot_count],
                first_stream: 0xA000 + thread * 0x10000,
            };
            let (tell, told) = channel();
            let (answer, answers) = channel();
            let rig = rig.clone();
            scope.spawn(move || {
                for (start, count) in told {
                    part.play(&rig, start, count);
                    answer.send(()).unwrap();
                }
            });
            (tell, answers)
        };
        let crew: Vec<Thread> = (0..turns.threads).map(start).collect();
        for _ in 0..passes {
            let rates: Vec<u64> = crew.iter().map(|_| 900 + random.below(200)).collect();
            let mut done = vec![0; crew.len()];
            while done.iter().any(|&done| done < calls.len()) {
                for (((tell, answers), rate), done) in crew.iter().zip(&rates).zip(&mut done) {
                    let turn = (rate * (1 + random.below(turns.longest)) / 1000) as usize;
                    let count = turn.min(calls.len() - *done);
                    tell.send((*done, count)).unwrap();
                    answers.recv().unwrap();
                    *done += count;
                }
            }
            each_pass();
        }
    });
}
