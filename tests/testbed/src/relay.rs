//! A relay of a TCP connection that delays data, like a distant server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Relays data in both directions until both directions have ended. All data arrives later by the
/// delay `way`.
pub fn relay(client: TcpStream, server: TcpStream, way: Duration) -> std::io::Result<()> {
    // Otherwise a small piece waits until the one before is acknowledged, for up to 40 ms.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (back, forth) = (server.try_clone()?, client.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pass(back, forth, way));
        pass(client, server, way)
    })
}

/// Relays data from `from` to `to` until `from` ends. All data arrives later by the delay `way`.
fn pass(mut from: TcpStream, mut to: TcpStream, way: Duration) -> std::io::Result<()> {
    let (piece, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    let mut target = to.try_clone()?;
    let arriving = std::thread::spawn(move || {
        for (due, piece) in pieces {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if target.write_all(&piece).is_err() {
                return;
            }
        }
    });
    let mut some = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut some) {
        let _ = piece.send((Instant::now() + way, some[..len].to_vec()));
    }
    drop(piece);
    let _ = arriving.join();
    let _ = to.flush();
    let _ = to.shutdown(Shutdown::Write);
    Ok(())
}
