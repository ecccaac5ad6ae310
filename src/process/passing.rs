//! Messages between processes of one user, with file descriptors: Unix sockets without a file.
//!
//! A *door* has a name in the kernel's abstract space, which ends with the process. A *line* is a
//! connection; both of its processes run for the same user, or it is refused. A message has a fixed
//! size that both ends know, and at most [`MOST_FILES`] descriptors.
//!
//! A forked child closes its copies of both ([`Watched`]).
//!
//! **Signals** may interrupt any wait here, again and again: it goes on, and ends when it would have
//! ended. So sockets are asked without waiting, and `poll` waits for what is left of the time.

use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr;
use std::time::{Duration, Instant};

use super::watched::Watched;
use super::{uninterrupted, user_id};

/// The most descriptors in a message.
pub(crate) const MOST_FILES: usize = 64;
/// Room for their control message, in words.
const CONTROL_WORDS: usize = 64;
/// Where other processes find this one.
#[derive(Debug)]
pub(crate) struct Door {
    listener: UnixListener,
    _watched: Watched,
}

/// A connection to another process.
#[derive(Debug)]
pub(crate) struct Line {
    // Before the stream: a number that is closed may be another descriptor's.
    _watched: Watched,
    stream: UnixStream,
    /// How long a message may take.
    limits: Limits,
}

/// How long a message may take to be sent and to be received; `None`: for ever.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    send: Option<Duration>,
    receive: Option<Duration>,
}

impl Door {
    /// Opens a door of that name.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        let _watched = Watched::new(listener.as_raw_fd());
        Ok(Self { listener, _watched })
    }

    /// The next connection of a process of this user.
    pub(crate) fn accept(&self) -> io::Result<Line> {
        Line::new(self.listener.accept()?.0)
    }
}

impl Line {
    /// Connects to a door. `ConnectionRefused` if there is none of that name.
    pub(crate) fn connect(name: &str) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(name)?;
        Self::new(uninterrupted(|| UnixStream::connect_addr(&address))?)
    }

    fn new(stream: UnixStream) -> io::Result<Self> {
        if user_at(&stream)? != user_id() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let _watched = Watched::new(stream.as_raw_fd());
        Ok(Self { _watched, stream, limits: Limits::default() })
    }

    /// From now on a message that takes longer than `time` fails: to send, and if `both` to receive.
    pub(crate) fn limit(&mut self, time: Duration, both: bool) {
        self.limits = Limits { send: Some(time), receive: both.then_some(time) };
    }

    /// Returns true if the other process has closed the line, or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        uninterrupted(|| self.poll(0, 0)).is_ok_and(|told| told & libc::POLLHUP != 0)
    }

    /// Waits until the line is ready for `events`, or has ended. `TimedOut` at `deadline`.
    fn wait(&self, events: libc::c_short, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let milliseconds = match deadline {
                None => -1,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    left.as_millis().saturating_add(1).try_into().unwrap_or(libc::c_int::MAX)
                }
            };
            match self.poll(events, milliseconds) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                told => return told.map(drop),
            }
        }
    }

    /// Which of `events` the line is ready for, or that it has ended: at once, or within so many
    /// milliseconds (-1: any time).
    fn poll(&self, events: libc::c_short, milliseconds: libc::c_int) -> io::Result<libc::c_short> {
        let mut asked = libc::pollfd { fd: self.stream.as_raw_fd(), events, revents: 0 };
        // SAFETY: one entry, which is live.
        if unsafe { libc::poll(&raw mut asked, 1, milliseconds) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(asked.revents)
    }

    /// Sends one message with `files`, at most [`MOST_FILES`].
    pub(crate) fn send(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let deadline = self.limits.send.map(|time| Instant::now() + time);
        let mut sent = 0;
        while sent < message.len() {
            let files = if sent == 0 { files } else { &[] };
            match send_part(self.stream.as_raw_fd(), &message[sent..], files) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLOUT, deadline)?;
                }
                part => sent += part?,
            }
        }
        Ok(())
    }

    /// Receives one message of the size of `message`, and its files. `UnexpectedEof` once the other
    /// process has closed the line or ended.
    pub(crate) fn receive(&self, message: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
        let deadline = self.limits.receive.map(|time| Instant::now() + time);
        let (mut received, mut files) = (0, Vec::new());
        while received < message.len() {
            match receive_part(self.stream.as_raw_fd(), &mut message[received..], &mut files) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLIN, deadline)?;
                }
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                part => received += part?,
            }
        }
        Ok(files)
    }
}

/// The user of the process at the other end.
fn user_at(stream: &UnixStream) -> io::Result<u32> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is large enough for what this option writes, and all zeros are valid.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, and then written by the call.
    Ok(unsafe { credentials.assume_init() }.uid)
}

/// A message's header for `bytes` and `control`, which both outlive its use.
fn header(
    bytes: &mut libc::iovec,
    control: &mut [u64; CONTROL_WORDS],
    used: usize,
) -> libc::msghdr {
    // SAFETY: all zeros are a valid header: no name, no parts, no control message.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = bytes;
    header.msg_iovlen = 1;
    if used > 0 {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = used as _;
    }
    header
}

/// Sends what can be sent without a wait; `WouldBlock` if nothing can.
fn send_part(socket: RawFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    if files.len() > MOST_FILES {
        return Err(ErrorKind::InvalidInput.into());
    }
    let files_bytes = size_of_val(files.as_slice()) as libc::c_uint;
    // SAFETY: only computes a size.
    let space = unsafe { libc::CMSG_SPACE(files_bytes) } as usize;
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let used = if files.is_empty() { 0 } else { space };
    let header = header(&mut part, &mut control, used);
    if used > 0 {
        // SAFETY: the control buffer is aligned and has room for `space` bytes, so the first
        // control message and its data lie in it.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(files_bytes) as _;
            ptr::copy_nonoverlapping(
                files.as_ptr().cast(),
                libc::CMSG_DATA(first),
                files_bytes as usize,
            );
        }
    }
    uninterrupted(|| {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the header's parts are live; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(socket, &header, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    })
}

/// Receives what is there; `WouldBlock` if nothing is, and 0 once the line has ended.
fn receive_part(socket: RawFd, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let room = size_of_val(&control);
    let mut header = header(&mut part, &mut control, room);
    let received = uninterrupted(|| {
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header's parts are live and writable for the sizes given.
        let received = unsafe { libc::recvmsg(socket, &mut header, flags) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    })?;
    // SAFETY: the header is as the kernel left it, so its control messages lie in the buffer; the
    // descriptors in them were opened for this process and belong to nobody else.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let data: *const RawFd = libc::CMSG_DATA(message).cast();
                let data_bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..data_bytes / size_of::<RawFd>() {
                    files.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&header, message);
        }
    }
    Ok(received)
}
