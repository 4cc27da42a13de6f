//! The socket: one request per connection, only from root.
//!
//! A connection without a complete request costs at most [`MAX_LINE`] bytes. If there are too many
//! of them, the oldest is closed, so idle clients keep no call out.

use super::answer::Server;
use crate::private_socket;
use braid_node::source::agent::protocol::{ACKNOWLEDGEMENT, AgentRequest, MAX_LINE};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

/// Connections without a complete request.
const WAITING: usize = 64;
/// Requests at work. Further calls ask the API themselves.
const AT_WORK: usize = 128;
/// Longest time until a request is complete.
const COMPLETE_WITHIN: Duration = Duration::from_secs(5);
/// Longest time in which a client takes its answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// Pause after the kernel refused a connection, for example because all descriptors are in use.
const REFUSED: Duration = Duration::from_millis(100);
const ROOT: u32 = 0;
/// Initial size in bytes of the buffer for a request.
const BUFFER: usize = 512;

/// Listens at this path, in place of an earlier agent.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    private_socket::bind(path, |path| UnixListener::bind(path))
}

/// Accepts connections until the runtime ends.
pub(super) async fn accept(listener: UnixListener, server: Arc<Server>) {
    let waiting = Arc::new(Waiting::default());
    let at_work = Arc::new(Semaphore::new(AT_WORK));
    for number in 0.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(err) => {
                tracing::warn!(error = %err, "accept a call");
                sleep(REFUSED).await;
                continue;
            }
        };
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == ROOT) {
            continue;
        }
        let (server, at_work) = (Arc::clone(&server), Arc::clone(&at_work));
        let own = Arc::clone(&waiting);
        let task = tokio::spawn(async move {
            let request = timeout(COMPLETE_WITHIN, complete(stream)).await;
            own.remove(number);
            if let Ok(Some((stream, request))) = request
                && let Ok(_permit) = at_work.try_acquire()
            {
                serve(stream, request, server).await;
            }
        });
        waiting.add(number, task.abort_handle());
        // A burst of calls is read before the next one can close the oldest connection.
        yield_now().await;
    }
}

/// Connections without a complete request, the oldest first.
#[derive(Default)]
struct Waiting(Mutex<VecDeque<(u64, AbortHandle)>>);

impl Waiting {
    /// Adds a connection, and closes the oldest one if there are too many.
    fn add(&self, number: u64, task: AbortHandle) {
        let mut waiting = self.lock();
        if waiting.len() >= WAITING
            && let Some((_, oldest)) = waiting.pop_front()
        {
            oldest.abort();
        }
        waiting.push_back((number, task));
    }

    fn remove(&self, number: u64) {
        self.lock().retain(|(other, _)| *other != number);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, AbortHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the request of a connection; `None` if it is not one.
async fn complete(mut stream: UnixStream) -> Option<(UnixStream, AgentRequest)> {
    let request = request(&mut stream).await?;
    Some((stream, request))
}

/// Reads a line of at most [`MAX_LINE`] bytes. What follows it is not read.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> Option<AgentRequest> {
    let mut bytes = Vec::with_capacity(BUFFER);
    loop {
        let seen = bytes.len();
        let room = (MAX_LINE + 1).saturating_sub(seen) as u64;
        let read = stream.take(room).read_buf(&mut bytes).await.ok()?;
        if read == 0 {
            return None;
        }
        if let Some(end) = bytes[seen..].iter().position(|byte| *byte == b'\n') {
            return AgentRequest::parse(&bytes[..seen + end]);
        }
    }
}

/// Acknowledges a request and writes the answer. A client that does not take it loses its
/// connection.
async fn serve(mut stream: UnixStream, request: AgentRequest, server: Arc<Server>) {
    let acknowledged = timeout(TAKEN_WITHIN, stream.write_all(ACKNOWLEDGEMENT.as_bytes())).await;
    if matches!(acknowledged, Ok(Ok(()))) || request.is_report() {
        let answer = server.answer(request).await;
        let _ = timeout(TAKEN_WITHIN, stream.write_all(answer.as_bytes())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    /// Returns the parsed request of a client that writes these pieces and then closes.
    async fn read(pieces: Vec<Vec<u8>>) -> Option<AgentRequest> {
        let (mut client, mut stream) = duplex(1 << 10);
        let writer = tokio::spawn(async move {
            for piece in pieces {
                if client.write_all(&piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        let request = request(&mut stream).await;
        drop(stream);
        let _ = writer.await;
        request
    }

    #[tokio::test]
    async fn a_request_in_pieces_is_read_and_what_follows_is_not() {
        let line = b"objects ns/p 4f1c lan/a\n";
        let pieces = line.chunks(1).map(<[u8]>::to_vec).collect();
        assert!(read(pieces).await.is_some());
        assert!(read(vec![[&line[..], b"garbage"].concat()]).await.is_some());
    }

    #[tokio::test]
    async fn half_requests_garbage_and_long_lines_end_the_connection() {
        for pieces in [
            vec![],
            vec![b"objects ns/p".to_vec()],
            vec![b"\n".to_vec()],
            vec![b"\0\x01\xff\n".to_vec()],
            vec![vec![b'a'; 1 << 20]; 10],
            vec![b"networks ".to_vec(), vec![b'a'; MAX_LINE], b"\n".to_vec()],
        ] {
            assert_eq!(read(pieces).await, None);
        }
    }
}
