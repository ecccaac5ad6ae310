//! Letters: short messages between processes of one machine that need no connection.
//!
//! A *mailbox* has a name in the kernel's abstract space, which ends with the process. Nobody waits:
//! a letter to a process that has ended is an error at once, one to a full mailbox is lost, and who
//! expects an answer says for how long. Anybody on the machine can send a letter, so what one says is
//! to be checked.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use super::watched::Watched;

/// How long a letter to a full mailbox waits.
const PATIENCE: Duration = Duration::from_millis(1);

/// Where letters arrive.
#[derive(Debug)]
pub(crate) struct Mailbox {
    // Before the socket: a number that is closed may be another descriptor's.
    _watched: Watched,
    socket: UnixDatagram,
}

/// A letter's sender, for an answer.
#[derive(Debug)]
pub(crate) struct Sender(SocketAddr);

impl Mailbox {
    /// Opens a mailbox of that name.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let _watched = Watched::new(socket.as_raw_fd());
        Ok(Self { _watched, socket })
    }

    /// Sends a letter to the mailbox of that name. `ConnectionRefused` if there is none.
    pub(crate) fn send(&self, name: &str, letter: &[u8]) -> io::Result<()> {
        self.answer(&Sender(SocketAddr::from_abstract_name(name)?), letter)
    }

    /// Sends a letter to the sender of another one.
    pub(crate) fn answer(&self, sender: &Sender, letter: &[u8]) -> io::Result<()> {
        until(PATIENCE, |_| self.socket.send_to_addr(letter, &sender.0).map(drop))
    }

    /// The next letter, of the size of `letter`, that arrives within `time`. Others are lost.
    pub(crate) fn receive(&self, letter: &mut [u8], time: Duration) -> io::Result<Option<Sender>> {
        // What is too long for its place is cut short, and would seem to fit.
        let mut place = vec![0; letter.len() + 1];
        let received = until(time, |left| {
            self.socket.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
            self.socket.recv_from(&mut place)
        });
        match received {
            Ok((bytes, sender)) if bytes == letter.len() => {
                letter.copy_from_slice(&place[..bytes]);
                Ok(Some(Sender(sender)))
            }
            Ok(_) => Ok(None),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Makes a system call that waits, told how long it may, once more for each signal that interrupts it
/// within `time`.
fn until<T>(time: Duration, mut call: impl FnMut(Duration) -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + time;
    let mut left = time;
    loop {
        match call(left) {
            // Once more when the time is over, which may have passed before the call was made.
            Err(error) if error.kind() == ErrorKind::Interrupted && !left.is_zero() => {
                left = deadline.saturating_duration_since(Instant::now());
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_arrives_and_is_answered_and_nobody_waits() {
        let name = |which: &str| format!("genesis-test-{which}-{}", std::process::id());
        let (one, two) = (name("one"), name("two"));
        let here = Mailbox::open(&one).unwrap();
        let gone = here.send(&two, b"?").unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ConnectionRefused);
        let there = Mailbox::open(&two).unwrap();
        here.send(&two, b"too long").unwrap();
        here.send(&two, b"1234").unwrap();
        let (mut letter, short) = ([0; 4], Duration::from_millis(1));
        assert!(there.receive(&mut letter, short).unwrap().is_none());
        let sender = there.receive(&mut letter, short).unwrap().unwrap();
        assert_eq!(&letter, b"1234");
        there.answer(&sender, b"4321").unwrap();
        assert!(here.receive(&mut letter, Duration::from_secs(1)).unwrap().is_some());
        assert_eq!(&letter, b"4321");
        assert!(here.receive(&mut letter, Duration::ZERO).unwrap().is_none());
        let mut sent = 0;
        while here.send(&two, b"many").is_ok() {
            sent += 1;
            assert!(sent < 100_000, "a full mailbox takes letters");
        }
    }
}
