//! Programs in the agents' containers that run as long as this one: a line of output is an event.

use super::agents::Node;
use super::kubectl::{self, Kubectl, MOST_BYTES, one_line};
use braid_node::sys::outputs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Interval in which a wait ends without an event.
const POLL: Duration = Duration::from_millis(50);
/// Most events that wait until they are shown.
const WAITING: usize = 64;
/// Time that a program has to end after its input ended.
const GRACE: Duration = Duration::from_secs(2);

/// Event of a program.
#[derive(Debug)]
pub(super) enum Event {
    Line(String),
    /// The program ended, with these words of kubectl.
    End(String),
}

/// The programs of all nodes. They end with this value.
pub(super) struct Streams {
    children: Vec<Child>,
    /// A program ends when its input ends, also if this process is killed.
    inputs: Vec<Option<ChildStdin>>,
    events: Receiver<(usize, Event)>,
}

impl Streams {
    /// Starts the program with the arguments `words` in the container of each running agent.
    pub(super) fn start(kubectl: &Kubectl, nodes: &[Node], words: &[&str]) -> Self {
        let (send, events) = sync_channel(WAITING);
        let mut streams = Self {
            children: Vec::new(),
            inputs: Vec::new(),
            events,
        };
        for (at, node) in nodes.iter().enumerate() {
            let Ok(agent) = node.running() else {
                continue;
            };
            let mut command = kubectl.exec(agent.place(), &["--stdin"], words);
            command.stdin(Stdio::piped());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            match kubectl::spawn(&mut command) {
                Ok(mut child) => {
                    streams.inputs.push(child.stdin.take());
                    follow(at, &mut child, send.clone());
                    streams.children.push(child);
                }
                // The events are not received yet, so another thread waits.
                Err(words) => {
                    let send = send.clone();
                    thread::spawn(move || send.send((at, Event::End(words))));
                }
            }
        }
        streams
    }

    /// Waits a moment for the next event of a node, which is named by its position.
    pub(super) fn next(&mut self) -> Option<(usize, Event)> {
        self.events.recv_timeout(POLL).ok()
    }
}

impl Drop for Streams {
    /// Ends the programs, then kubectl.
    fn drop(&mut self) {
        self.inputs.clear();
        let end = Instant::now() + GRACE;
        for child in &mut self.children {
            // kubectl may have ended already, or does not end.
            let _ = outputs::await_end(child, end);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends the lines of a program from a thread.
fn follow(at: usize, child: &mut Child, send: SyncSender<(usize, Event)>) {
    let stderr = kubectl::reader(child.stderr.take());
    let stdout = child.stdout.take();
    thread::spawn(move || {
        lines(at, stdout, &send);
        let words = one_line(&stderr.recv().unwrap_or_default());
        let words = if words.is_empty() {
            "the program ended".to_owned()
        } else {
            words
        };
        // The receiver may be gone.
        let _ = send.send((at, Event::End(words)));
    });
}

fn lines(at: usize, stdout: Option<ChildStdout>, send: &SyncSender<(usize, Event)>) {
    let Some(stdout) = stdout else { return };
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        let read = stdout.by_ref().take(MOST_BYTES).read_line(&mut line);
        // A line without its end was interrupted, or is too long.
        if read.is_err() || !line.ends_with('\n') {
            return;
        }
        if send.send((at, Event::Line(line))).is_err() {
            return;
        }
    }
}
