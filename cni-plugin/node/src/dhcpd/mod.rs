//! The daemon of the `dhcp` IPAM: one event loop for all leases.
//!
//! ```text
//!  socket ─► connection ─ Allocate, Release ─► lease: session ─► packets on its link
//!  link, time ──────────────────────────────►        │
//!                                 stored in files ◄──┴──► responses, addresses of the link
//! ```
//!
//! A bound lease has no socket and no thread: it is a value, a file and a timer. So the daemon
//! keeps no container's namespace alive.

mod change;
mod connection;
mod lease;
mod requests;
mod timers;

use crate::ipam::dhcp::link;
use crate::ipam::dhcp::store::Store;
use crate::log::Log;
use crate::sys::activation;
use crate::sys::events::{self, END, Events, TIME};
use braid_core::ipam::dhcp::timing::Limits;
use connection::Connection;
use lease::{ServedLease, Socket};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use timers::Timers;

/// Settings of the daemon.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Path of the socket on the host, as plugins name it.
    pub socket: PathBuf,
    /// The file for the daemon's process id.
    pub pidfile: Option<PathBuf>,
    /// Path of the host's root folder in this process, put before the paths of the socket and of
    /// network namespaces.
    pub host_prefix: String,
    /// True if servers should broadcast their responses.
    pub broadcast: bool,
    /// Timeouts of the DHCP clients.
    pub limits: Limits,
    /// The log for the node's operator.
    pub log: Log,
}

impl Settings {
    /// Returns the path at which this process reaches `path` of the host.
    fn reach(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("{}{}", self.host_prefix, path.display()))
    }
}

/// Epoll data of the listening socket. The lowest two bits of other epoll data are the kind of the
/// socket, and the remaining bits are an id.
const LISTENER: u64 = 0;
const CONNECTION: u64 = 1;

/// Runs the daemon until SIGTERM or SIGINT. Leases stay in their files.
pub fn run(settings: Settings) -> io::Result<()> {
    let fail =
        |doing: String| move |err: io::Error| io::Error::new(err.kind(), format!("{doing}: {err}"));
    let socket = settings.reach(&settings.socket);
    let store = Store::of(&socket);
    let events = Events::open()?;
    events::raise_descriptors()?;
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    made.map_err(fail(format!("create folder {}", folder.display())))?;
    // The process that holds the lock is the only daemon. A call that releases a lease without a
    // daemon holds the lock for a moment.
    let lock = store.lock().map_err(fail(format!(
        "lock the leases in {}",
        store.dir().display()
    )))?;
    if let Some(pidfile) = &settings.pidfile {
        fs::write(pidfile, std::process::id().to_string())
            .map_err(fail(format!("write pidfile {}", pidfile.display())))?;
    }
    let handed_over = activation::listener()?;
    let is_own = handed_over.is_none();
    let listener = handed_over
        .map_or_else(|| listen(&socket), Ok)
        .map_err(fail(format!("listen on {}", socket.display())))?;
    listener.set_nonblocking(true)?;
    events.add(&listener, LISTENER)?;
    let pidfile = settings.pidfile.clone();
    let mut daemon = Daemon::new(settings, store, events, lock);
    daemon.resume();
    let ended = daemon.serve(&listener);
    if is_own {
        let _ = fs::remove_file(&socket);
    }
    if let Some(pidfile) = pidfile {
        let _ = fs::remove_file(pidfile);
    }
    ended
}

/// Listens on the socket, and replaces a socket file that no process serves.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(socket) {
        Err(err)
            if err.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(socket).is_err() =>
        {
            fs::remove_file(socket)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    }
}

/// The daemon's state.
struct Daemon {
    settings: Settings,
    store: Store,
    events: Events,
    _lock: File,
    connections: BTreeMap<u64, Connection>,
    leases: BTreeMap<u64, ServedLease>,
    /// Ids of the leases, by the owner's text.
    owners: BTreeMap<String, u64>,
    timers: Timers,
    /// The id last given to a connection or a lease.
    last: u64,
    rng: Box<dyn FnMut() -> u64>,
    boot_id: String,
}

impl Daemon {
    fn new(settings: Settings, store: Store, events: Events, lock: File) -> Self {
        Self {
            settings,
            store,
            events,
            _lock: lock,
            connections: BTreeMap::new(),
            leases: BTreeMap::new(),
            owners: BTreeMap::new(),
            timers: Timers::default(),
            last: 0,
            rng: Box::new(link::rng()),
            boot_id: crate::ipam::dhcp::store::boot_id(),
        }
    }

    fn serve(&mut self, listener: &UnixListener) -> io::Result<()> {
        loop {
            self.events
                .set(self.timers.first().unwrap_or(Duration::MAX))?;
            for word in self.events.wait()? {
                match word {
                    END => return Ok(()),
                    TIME => {}
                    LISTENER => self.accept(listener),
                    _ if word & 3 == CONNECTION => self.read_connection(word >> 2),
                    _ => {
                        if let Some(socket) = Socket::of_kind(word & 3) {
                            self.hear(word >> 2, socket);
                        }
                    }
                }
            }
            // Due timers run after each batch of events, however much there was to read: T1 and T2
            // must not wait.
            while let Some(id) = self.timers.due(events::now()) {
                self.tick(id);
            }
        }
    }

    fn accept(&mut self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            if let Err(err) = self.add_connection(stream) {
                self.settings
                    .log
                    .line(format_args!("accept a connection: {err}"));
            }
        }
    }

    fn add_connection(&mut self, stream: UnixStream) -> io::Result<()> {
        self.last += 1;
        stream.set_nonblocking(true)?;
        self.events.add(&stream, self.last << 2 | CONNECTION)?;
        self.connections.insert(self.last, Connection::new(stream));
        Ok(())
    }

    fn read_connection(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        match connection.read() {
            Ok(calls) => {
                let is_over = connection.is_over;
                for call in calls {
                    self.call(id, &call);
                }
                if is_over {
                    self.connections.remove(&id);
                }
            }
            Err(err) => {
                self.settings.log.line(format_args!("connection: {err}"));
                self.connections.remove(&id);
            }
        }
    }

    /// Continues the leases of the previous daemon.
    fn resume(&mut self) {
        for stored in self.store.list() {
            let whole = stored.owner.whole();
            let session =
                stored.session(self.settings.broadcast, self.settings.limits, &mut self.rng);
            match (session, stored.place()) {
                // A link that cannot be looked up now is looked up again when the lease is due.
                (Some(session), Some(_)) => {
                    let lease = ServedLease::resumed(stored, session, self.settings.log.clone());
                    self.insert(lease);
                }
                (session, _) => {
                    let why = if session.is_none() {
                        "its configuration is no longer valid"
                    } else {
                        "its link is gone"
                    };
                    self.settings
                        .log
                        .line(format_args!("{whole}: can't resume the lease: {why}"));
                    let _ = self.store.remove(&stored.owner);
                }
            }
        }
        if !self.leases.is_empty() {
            let count = self.leases.len();
            self.settings
                .log
                .line(format_args!("resumed {count} leases"));
        }
    }
}
