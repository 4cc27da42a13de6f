//! Programs on links that others use as well: one call at a time brings them there and takes them away.

use super::Error;
use crate::plan::shaping::Hook;
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::rtnl::tc;
use crate::sys::rtnl::tc::shared::{self, Preference};
use nix::errno::Errno;
use std::fs::{self, File};
use std::io;

/// Locked against others who do the same.
const LOCKED: &str = "/run/braid";
pub(super) const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

/// Holds off all others until it is closed.
pub(super) fn lock() -> Result<File, KernelError> {
    let lock = || File::open(LOCKED).and_then(|folder| folder.lock().map(|()| folder));
    let locked = match lock() {
        Err(err) if err.kind() == io::ErrorKind::NotFound => fs::create_dir_all(LOCKED).and_then(|()| lock()),
        locked => locked,
    };
    locked.map_err(|err| Error::io(format!("lock {LOCKED}"), &err).cause)
}

/// All links with a place where filters hang.
pub(super) fn all(socket: &mut Socket) -> Result<Vec<u32>, KernelError> {
    let queues = socket.dump(tc::GETQDISC, tc::dump_queues)?;
    Ok(queues.iter().filter_map(|queue| shared::parse_clsact(&queue.body)).collect())
}

/// The program that a link runs, by its id; none where it does not.
pub(super) fn runs(
    socket: &mut Socket,
    index: u32,
    (preference, hook): (Preference, Hook),
) -> Result<Option<u32>, KernelError> {
    let filters = missing(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, hook, out)))?;
    Ok(filters.iter().flatten().find_map(|filter| shared::parse(preference, &filter.body)))
}

/// Takes the programs from a link. Where nothing else hangs, they go with the place where they hang, in one request.
pub(super) fn detach(socket: &mut Socket, index: u32, preference: Preference) -> Result<(), KernelError> {
    let (mut own, mut is_shared) = (Vec::new(), false);
    for hook in HOOKS {
        let filters = missing(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, hook, out)))?;
        for filter in filters.iter().flatten().filter(|filter| shared::is_filter(&filter.body)) {
            match shared::parse(preference, &filter.body) {
                Some(_) => own.push(hook),
                None => is_shared = true,
            }
        }
    }
    if is_shared {
        own.into_iter().try_for_each(|hook| {
            let body = |out: &mut Vec<u8>| shared::detach((preference, hook), index, out);
            missing(socket.call(tc::DELTFILTER, 0, body)).map(drop)
        })
    } else if own.is_empty() {
        Ok(())
    } else {
        missing(socket.call(tc::DELQDISC, 0, |out| tc::clsact(index, out))).map(drop)
    }
}

/// `None` for what is not there. EINVAL: there is no clsact.
pub(super) fn missing<T>(result: Result<T, KernelError>) -> Result<Option<T>, KernelError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(err) if [Errno::ENOENT, Errno::ENODEV, Errno::EINVAL].contains(&err.errno) => Ok(None),
        Err(err) => Err(err),
    }
}
