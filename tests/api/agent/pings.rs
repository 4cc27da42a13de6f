//! Packets on their way while something changes.

use braid_tests::Ns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, Stdio};

/// Pings from a namespace to an address, each with its own number, so that a lost one is known
/// whatever the machine's speed.
pub(super) struct Pings(Child);

impl Pings {
    /// Starts with a ping each `interval` seconds.
    pub(super) fn start(from: &Ns, to: &str, interval: &str) -> Self {
        let arguments = ["-q", "-i", interval, "-s", "400", "-W", "20", to];
        Self(from.enter(|| {
            let mut ping = Command::new("ping");
            ping.args(arguments).stdout(Stdio::piped());
            ping.spawn().expect("ping starts")
        }))
    }

    /// Ends. Fails if a ping or its answer was lost.
    #[track_caller]
    pub(super) fn end(self) {
        let pid = Pid::from_raw(self.0.id().try_into().expect("a pid"));
        kill(pid, Signal::SIGINT).expect("ping runs");
        let output = self.0.wait_with_output().expect("ping ends");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains(" 0% packet loss"), "{told}");
    }
}
