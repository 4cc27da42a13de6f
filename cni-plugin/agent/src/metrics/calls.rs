//! Reports of calls: datagrams from root, received by a thread that only waits for them. A kernel
//! keeps as few as ten of them, so a busy agent would lose some.

use super::handle::Metrics;
use crate::error::Error;
use crate::private_socket;
use braid_node::source::agent::report::{CallReport, MAX_BYTES, SOCKET};
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt,
};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::Duration;

const ROOT: u32 = 0;
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;
/// Pause after the kernel refused to receive.
const REFUSED: Duration = Duration::from_secs(1);

/// Starts the thread.
pub(crate) fn receive(metrics: Metrics) -> Result<(), Error> {
    let failed = |err| Error::new(format_args!("listen on {SOCKET}"), err);
    let socket =
        private_socket::bind(Path::new(SOCKET), |path| UnixDatagram::bind(path)).map_err(failed)?;
    setsockopt(&socket, sockopt::PassCred, &true).map_err(|err| failed(err.into()))?;
    let work = move || {
        loop {
            next(&socket, &metrics);
        }
    };
    let thread = thread::Builder::new().name("calls".to_owned());
    thread.stack_size(STACK).spawn(work).map_err(failed)?;
    Ok(())
}

/// Waits for a datagram, and counts the call if it is a report by root.
fn next(socket: &UnixDatagram, metrics: &Metrics) {
    let mut bytes = [0; MAX_BYTES];
    let mut space = cmsg_space!(UnixCredentials);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::empty(),
    );
    let Ok(received) = received else {
        thread::sleep(REFUSED);
        return;
    };
    let is_whole = !received.flags.contains(MsgFlags::MSG_TRUNC);
    let mut senders = received.cmsgs().into_iter().flatten();
    let is_by_root = senders.any(|message| {
        matches!(message, ControlMessageOwned::ScmCredentials(sender) if sender.uid() == ROOT)
    });
    let len = received.bytes;
    if is_whole
        && is_by_root
        && let Some(report) = CallReport::parse(&bytes[..len])
    {
        metrics.called(&report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::Command;

    #[test]
    fn reports_of_root_are_counted_and_garbage_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("calls.sock");
        let socket = private_socket::bind(&path, |path| UnixDatagram::bind(path)).expect("bound");
        setsockopt(&socket, sockopt::PassCred, &true).expect("set");
        let metrics = Metrics::default();
        let call = UnixDatagram::unbound().expect("a socket");
        let report = CallReport {
            command: Command::Add,
            plugin: "bridge",
            code: 11,
            duration: Duration::from_millis(4),
        };
        let long = [report.to_string().as_bytes(), &[b' '; MAX_BYTES]].concat();
        for datagram in [b"garbage".to_vec(), long, report.to_string().into_bytes()] {
            call.send_to(&datagram, &path).expect("sent");
            next(&socket, &metrics);
        }
        let text = metrics.text();
        let labels = r#"verb="ADD",type="bridge",result="error""#;
        for line in [
            &format!("braid_call_duration_seconds_count{{{labels}}} 1"),
            &format!("braid_call_duration_seconds_bucket{{{labels},le=\"0.003\"}} 0"),
            &format!("braid_call_duration_seconds_bucket{{{labels},le=\"0.005\"}} 1"),
            "braid_call_failures_total{code=\"11\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
