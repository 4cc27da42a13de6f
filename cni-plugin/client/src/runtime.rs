//! A tokio runtime on the calling thread, without tokio's panics.
//!
//! tokio panics if the kernel refuses to create a socket pair (for tokio's signal driver, which
//! kube links) or a thread of tokio's pool. Such a refusal is transient: a limit on descriptors or
//! tasks was reached. So this module returns it as an error.

use nix::errno::Errno;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Starts a runtime. The error text names the failed operation and the kernel's error.
pub(crate) fn start() -> Result<Runtime, String> {
    let failed = |doing: &str, err: &io::Error| format!("start tokio: {doing}: {}", reason(err));
    // tokio needs six descriptors: it opens four, and then a socket pair, once per process.
    let mut probe = Vec::new();
    for _ in 0..3 {
        probe.push(UnixStream::pair().map_err(|err| failed("socketpair", &err))?);
    }
    drop(probe);
    let started = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    started.map_err(|err| failed("epoll_create1, eventfd or dup", &err))
}

/// Resolves a host name on a temporary thread.
pub(crate) async fn look_up(host: String) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = oneshot::channel();
    let asked = host.clone();
    let work = move || drop(tell.send((asked.as_str(), 0).to_socket_addrs().map(Vec::from_iter)));
    let refused =
        |err: io::Error| io::Error::new(err.kind(), format!("start a thread: {}", reason(&err)));
    std::thread::Builder::new().spawn(work).map_err(refused)?;
    let found = told
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the lookup ended without a result")));
    found.map_err(|err| io::Error::new(err.kind(), format!("look up {host}: {err}")))
}

/// Returns the text of the error's errno, or of the error itself if it has none.
fn reason(err: &io::Error) -> String {
    err.raw_os_error().map_or_else(
        || err.to_string(),
        |errno| Errno::from_raw(errno).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_is_resolved_and_an_unknown_one_is_named_in_the_error() {
        let runtime = start().expect("a runtime");
        let found = runtime
            .block_on(look_up("127.0.0.7".to_owned()))
            .expect("an address");
        assert_eq!(found, ["127.0.0.7:0".parse().expect("an address")]);
        let err = runtime
            .block_on(look_up("not a name".to_owned()))
            .expect_err("no such name");
        assert!(err.to_string().starts_with("look up not a name: "), "{err}");
    }
}
