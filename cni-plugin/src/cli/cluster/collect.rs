//! Answers of all agents, a few at the same time, with progress.

use super::agents::Node;
use super::kubectl::{self, Answer, Kubectl};
use crate::entry::signal;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

/// Most kubectl processes at the same time.
const AT_ONCE: usize = 16;

/// Runs the program with the arguments `words` in the container of each running agent. Returns the
/// answers in the order of `nodes`, or the reason why there is none.
pub(super) fn answers(
    kubectl: &Kubectl,
    nodes: &[Node],
    words: &[&str],
) -> Vec<Result<Answer, String>> {
    let next = AtomicUsize::new(0);
    let mut answers = vec![Err(String::new()); nodes.len()];
    let mut progress = Progress::new(nodes.len());
    thread::scope(|scope| {
        let (send, receive) = channel();
        for _ in 0..AT_ONCE.min(nodes.len()) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((at, node)) = take(next, nodes) {
                    // The receiver outlives this thread.
                    let _ = send.send((at, answer(kubectl, node, words)));
                }
            });
        }
        drop(send);
        for (done, (at, answer)) in receive.into_iter().enumerate() {
            answers[at] = answer;
            progress.set(done + 1);
        }
    });
    progress.end();
    answers
}

/// Returns the next node with its position; `None` after a signal.
fn take<'a>(next: &AtomicUsize, nodes: &'a [Node]) -> Option<(usize, &'a Node)> {
    if signal::noted().is_some() {
        return None;
    }
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, nodes.get(at)?))
}

fn answer(kubectl: &Kubectl, node: &Node, words: &[&str]) -> Result<Answer, String> {
    let command = kubectl.exec(node.running()?.place(), &[], words);
    kubectl::run(command, kubectl.limit())
}

/// A line on standard error, if that is a terminal.
pub(super) struct Progress {
    is_shown: bool,
    done: usize,
    all: usize,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        let is_shown = stderr().is_terminal();
        let progress = Self {
            is_shown,
            done: 0,
            all,
        };
        progress.show();
        progress
    }

    /// Shows the number of nodes that are done.
    pub(super) fn set(&mut self, done: usize) {
        if done != self.done {
            self.done = done;
            self.show();
        }
    }

    fn show(&self) {
        let (done, all) = (self.done, self.all);
        self.write(&format!("\r{done} of {all} nodes"));
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        self.write("\r\x1b[K");
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            // The line is only for people who wait.
            let _ = stderr().write_all(text.as_bytes());
        }
    }
}
