//! A proxy that makes connections to the API server faulty.

use crate::server::Server;
use braid_testbed::relay::relay;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::Acceptor;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Number of bytes after the handshake. If the server has sent this many, it has begun its answer,
/// because TLS session tickets take only 300 bytes.
const ANSWERED: usize = 1000;

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// One in this many connections of [`Fault::Flaky`] fails.
const RARE: usize = 16;
/// Time after which a connection of [`Fault::Flaky`] is cut.
const LIFE: Duration = Duration::from_secs(3);

/// Fault that the proxy applies to a connection.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// Closes the connection immediately.
    Cut,
    /// Lets the server process the request, but closes the connection before the answer arrives.
    LoseAnswer,
    /// Accepts the connection but never answers.
    Silence,
    /// Delays each direction by this time, and the opening of the connection by a round trip.
    Delay(Duration),
    /// Like [`Fault::Delay`]. One in [`RARE`] connections is also cut, before its request or instead of
    /// its answer, or answered with 409 or 503. The others are cut after [`LIFE`].
    Flaky(Duration),
    /// Answers the request with this status, a header and a body. `{authorization}` in the body is
    /// replaced by the request's `authorization` header.
    Answer(u16, &'static str, &'static str),
    /// Forwards requests without HTTP/2, but holds those that start with this text until the client
    /// closes the connection.
    Hold(&'static str),
}

impl Fault {
    /// Returns the fault of the connection with this number.
    fn of(&self, number: usize) -> Self {
        let kinds = [
            Self::Cut,
            Self::LoseAnswer,
            Self::Answer(409, "", ""),
            Self::Answer(503, "", ""),
        ];
        match self {
            Self::Flaky(_) if number % RARE == RARE - 1 => {
                kinds[number / RARE % kinds.len()].clone()
            }
            other => other.clone(),
        }
    }
}

pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    listening: Option<JoinHandle<()>>,
}

struct State {
    server: &'static Server,
    faults: Mutex<VecDeque<Fault>>,
    then: Fault,
    connections: AtomicUsize,
    is_over: AtomicBool,
    /// Number of requests that were held.
    held: Mutex<usize>,
    when_held: Condvar,
}

impl Proxy {
    /// Starts a proxy that listens in this thread's network namespace. It applies one of `faults`
    /// to each of the first connections, and `then` to all later ones.
    pub(crate) fn new(server: &'static Server, faults: Vec<Fault>, then: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let faults = Mutex::new(faults.into());
        let (connections, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let state = Arc::new(State {
            server,
            faults,
            then,
            connections,
            is_over,
            held: Mutex::new(0),
            when_held: Condvar::new(),
        });
        let shared = Arc::clone(&state);
        let listening = std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (client, state) = (client.expect("a connection"), Arc::clone(&shared));
                let number = state.connections.fetch_add(1, Ordering::SeqCst);
                let fault = state
                    .faults
                    .lock()
                    .expect("faults")
                    .pop_front()
                    .unwrap_or_else(|| state.then.clone());
                std::thread::spawn(move || state.serve(client, &fault.of(number)));
            }
        });
        Self {
            address,
            state,
            listening: Some(listening),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the number of connections that the proxy has accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits until this many requests have been held. Fails after a minute.
    pub(crate) fn await_held(&self, number: usize) {
        let held = self.state.held.lock().expect("a number");
        let limit = Duration::from_mins(1);
        let waited = self
            .state
            .when_held
            .wait_timeout_while(held, limit, |held| *held < number);
        let (held, _) = waited.expect("a number");
        assert!(*held >= number, "no request was held");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let ended = self.listening.take().map(JoinHandle::join);
        assert!(
            ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking(),
            "the proxy failed"
        );
    }
}

impl State {
    fn serve(&self, client: TcpStream, fault: &Fault) {
        match fault {
            Fault::None => {
                relay(client, self.server.connect(), Duration::ZERO).expect("sockets twice");
            }
            Fault::Delay(way) => {
                std::thread::sleep(*way * 2);
                relay(client, self.server.connect(), *way).expect("sockets twice");
            }
            Fault::Flaky(way) => {
                std::thread::sleep(*way * 2);
                let server = self.server.connect();
                let ends = [&client, &server].map(|end| end.try_clone().expect("a socket twice"));
                std::thread::spawn(move || {
                    std::thread::sleep(LIFE);
                    for end in ends {
                        let _ = end.shutdown(Shutdown::Both);
                    }
                });
                relay(client, server, *way).expect("sockets twice");
            }
            Fault::Cut => drop(client),
            Fault::Silence => {
                let mut client = client;
                while client.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
            }
            Fault::LoseAnswer => lose_answer(client, self.server.connect()),
            Fault::Answer(status, header, body) => {
                // The client closes the connection if it rejects the certificate, which is fine.
                let _ = self
                    .accept(client, fault)
                    .and_then(|stream| answer(stream, *status, header, body));
            }
            Fault::Hold(start) => {
                // A client that is killed closes the connection at any time.
                let _ = self
                    .accept(client, fault)
                    .and_then(|stream| self.forward_unless(stream, start));
            }
        }
    }

    /// Reads one request. Holds it if it starts with `start`, and forwards it otherwise. The
    /// connection ends with the answer, so the client opens another one for its next request.
    fn forward_unless(&self, mut stream: Stream, start: &str) -> std::io::Result<()> {
        let mut request = head(&mut stream)?;
        let Some(end) = end_of_head(&request) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&request[..end]).into_owned();
        if text.starts_with(start) {
            *self.held.lock().expect("a number") += 1;
            self.when_held.notify_all();
            while stream.read(&mut [0; 4096])? > 0 {}
            return Ok(());
        }
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse().expect("a length"))
        });
        let whole = end + length.unwrap_or(0);
        while request.len() < whole {
            let mut some = [0; 4096];
            let len = stream.read(&mut some)?;
            if len == 0 {
                return Ok(());
            }
            request.extend_from_slice(&some[..len]);
        }
        // Before the empty line.
        let close = b"Connection: close\r\n".iter().copied();
        request.splice(end - 2..end - 2, close);
        let mut server = self.server.client(&["-quiet"], Stdio::piped());
        let mut stdin = server.stdin.take().expect("its input");
        stdin.write_all(&request).expect("it reads");
        let answer = server.wait_with_output()?.stdout;
        drop(stdin);
        stream.write_all(&answer)?;
        stream.conn.send_close_notify();
        stream.flush()
    }

    /// Accepts the TLS connection in place of the server, without HTTP/2. If the client offers
    /// HTTP/2, the next connection gets `fault` too. A client that offers only HTTP/2 may need this
    /// second connection.
    fn accept(&self, mut client: TcpStream, fault: &Fault) -> std::io::Result<Stream> {
        let [certificate, key] = &self.server.identity;
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .map(|one| one.expect("a certificate"));
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let config =
            ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
        let config = config
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        let mut config = config
            .with_single_cert(chain.collect(), key)
            .expect("a pair");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            acceptor.read_tls(&mut client)?;
            if let Some(accepted) = acceptor
                .accept()
                .map_err(|(err, _)| std::io::Error::other(err))?
            {
                break accepted;
            }
        };
        if accepted
            .client_hello()
            .alpn()
            .is_some_and(|mut names| names.any(|name| name == b"h2"))
        {
            self.faults
                .lock()
                .expect("faults")
                .push_front(fault.clone());
        }
        match accepted.into_connection(config.into()) {
            Ok(connection) => Ok(StreamOwned::new(connection, client)),
            Err((err, mut alert)) => {
                alert.write_all(&mut client)?;
                Err(std::io::Error::other(err))
            }
        }
    }
}

/// Reads from the start of a request to the end of its head, and maybe more. Empty if the client
/// closes the connection before.
fn head(stream: &mut Stream) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    while end_of_head(&request).is_none() {
        let mut some = [0; 4096];
        let len = stream.read(&mut some)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        request.extend_from_slice(&some[..len]);
    }
    Ok(request)
}

/// Returns the length of the head of a request, with the empty line.
fn end_of_head(request: &[u8]) -> Option<usize> {
    let at = request.windows(4).position(|end| end == b"\r\n\r\n");
    at.map(|at| at + 4)
}

/// Reads one request and answers it.
fn answer(mut stream: Stream, status: u16, header: &str, body: &str) -> std::io::Result<()> {
    let request = head(&mut stream)?;
    if request.is_empty() {
        return Ok(());
    }
    let request = String::from_utf8_lossy(&request);
    let sent = request
        .lines()
        .find_map(|line| line.strip_prefix("authorization: "))
        .unwrap_or_default();
    let body = body.replace("{authorization}", sent);
    let head = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\n{header}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()?;
    // If bytes of the request's body stayed unread, closing would send a reset, which overtakes the
    // answer.
    stream.sock.shutdown(Shutdown::Write)?;
    while stream.sock.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

/// Forwards the handshake and the request, and closes both connections when the server answers.
fn lose_answer(client: TcpStream, server: TcpStream) {
    let (mut from_client, mut to_server) = (
        client.try_clone().expect("twice"),
        server.try_clone().expect("twice"),
    );
    let flights = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&flights);
    let asking = std::thread::spawn(move || {
        let mut some = vec![0; 64 * 1024];
        while let Ok(len @ 1..) = from_client.read(&mut some) {
            seen.fetch_add(1, Ordering::SeqCst);
            if to_server.write_all(&some[..len]).is_err() {
                return;
            }
        }
    });
    let (mut from_server, mut to_client) = (server, client);
    let (mut some, mut withheld) = (vec![0; 64 * 1024], 0);
    while withheld < ANSWERED {
        match from_server.read(&mut some) {
            // The client's first data is its hello. Its next data is the end of the handshake and
            // the request.
            Ok(len @ 1..) if flights.load(Ordering::SeqCst) > 1 => withheld += len,
            Ok(len @ 1..) => to_client
                .write_all(&some[..len])
                .expect("the client is there"),
            Ok(0) | Err(_) => break,
        }
    }
    for stream in [from_server, to_client] {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let _ = asking.join();
}
