//! Questions and answers between processes that share a device: 64 bytes each.
//!
//! ```text
//!   0         8        16        24        40        48       56
//!   │"GNSQ",1 │ number │ key     │ uuid    │ asker   │ bytes  │ missing     a question
//!   │"GNSA",1 │ number │ door    │ bytes   │                                an answer
//! ```
//!
//! The key is in the asked process's entry, which only its user can read. The number is the
//! question's, and an answer's proof that it is one.

/// The name of the mailbox of the process that is asked by that number.
pub(super) fn door(number: u64) -> String {
    format!("genesis-door-{number:016x}")
}

/// The size of a letter.
pub(super) const BYTES: usize = 64;
const QUESTION: u64 = u64::from_le_bytes(*b"GNSQ\x01\0\0\0");
const ANSWER: u64 = u64::from_le_bytes(*b"GNSA\x01\0\0\0");

/// Asks a process to give back memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) key: u64,
    pub(super) uuid: [u8; 16],
    /// The door of the process that is short of memory.
    pub(super) asker: u64,
    /// What the asked process is to give back.
    pub(super) bytes: u64,
    /// What the asker needs from all together.
    pub(super) missing_bytes: u64,
}

/// A question about nothing.
pub(super) const NO_QUESTION: Question =
    Question { number: 0, key: 0, uuid: [0; 16], asker: 0, bytes: 0, missing_bytes: 0 };

/// What a process gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) number: u64,
    /// The door of the process that was asked.
    pub(super) door: u64,
    pub(super) bytes: u64,
}

impl Question {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let uuid = |at: usize| word(&self.uuid, at);
        words([
            QUESTION,
            self.number,
            self.key,
            uuid(0),
            uuid(1),
            self.asker,
            self.bytes,
            self.missing_bytes,
        ])
    }

    /// `None` for any other letter.
    pub(super) fn decode(letter: &[u8; BYTES]) -> Option<Self> {
        let at = |index: usize| word(letter, index);
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&letter[24..40]);
        let (asker, bytes, missing_bytes) = (at(5), at(6), at(7));
        let question = Self { number: at(1), key: at(2), uuid, asker, bytes, missing_bytes };
        (at(0) == QUESTION).then_some(question)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        words([ANSWER, self.number, self.door, self.bytes, 0, 0, 0, 0])
    }

    /// `None` for any other letter.
    pub(super) fn decode(letter: &[u8; BYTES]) -> Option<Self> {
        let at = |index: usize| word(letter, index);
        (at(0) == ANSWER).then_some(Self { number: at(1), door: at(2), bytes: at(3) })
    }
}

fn words(words: [u64; BYTES / 8]) -> [u8; BYTES] {
    let mut letter = [0; BYTES];
    for (place, word) in letter.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    letter
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes[8 * index..][..8].try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_back_and_none_is_taken_for_another() {
        let uuid = *b"0123456789abcdef";
        let (bytes, missing_bytes) = (u64::MAX, 4);
        let question = Question { number: 1, key: 2, uuid, asker: 3, bytes, missing_bytes };
        let answer = Answer { number: 1, door: 2, bytes: 3 };
        let (asked, answered) = (question.encode(), answer.encode());
        assert_eq!(Question::decode(&asked), Some(question));
        assert_eq!(Answer::decode(&answered), Some(answer));
        assert_eq!((Question::decode(&answered), Answer::decode(&asked)), (None, None));
        assert_eq!(Question::decode(&[0; BYTES]), None);
    }
}
