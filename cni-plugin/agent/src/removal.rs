//! Deletion of everything that the agent made on a node.

use crate::error::Error;
use crate::health::{self, Readiness};
use crate::network::conflist::{self, BRIDGE, Present, ROUTES_FILE};
use crate::network::fabric::Fabric;
use crate::network::flannel;
use crate::options::Options;
use braid_core::k8s::kubeconfig::{AUTHORITY, TOKEN};
use braid_node::effect::{cluster_forward, cluster_masquerade};
use braid_node::erase;
use braid_node::ipam::whereabouts::store::{self, FOLDER};
use braid_node::source::agent::protocol::SOCKET;
use braid_node::source::agent::{SILENT, report};
use braid_node::source::network_cache;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Pause between two looks for attached containers.
const PAUSE: Duration = Duration::from_secs(2);

/// Deletes conflist, credentials, routes, rules and masquerading. Then reports readiness, and waits
/// for SIGTERM, so that the pods of a `DaemonSet` can do it. Meanwhile it deletes the state of calls and
/// the bridge of pods once no container is attached, and journals once they have no address. The API is
/// not necessary.
///
/// Sysctls stay, because other programs may rely on them by now.
pub(crate) async fn run(options: &Options) -> Result<(), Error> {
    let mut term = signal(SignalKind::terminate())
        .map_err(|err| Error::new("prepare for the signal SIGTERM", err))?;
    let (readiness, seen) = tokio::sync::watch::channel(Readiness {
        reason: Some("not removed yet".to_owned()),
        remarks: Vec::new(),
    });
    health::serve(options.health_address, seen).await?;
    let conflist = &options.conflist;
    let present = Present::read(conflist)
        .map_err(|err| Error::new(format_args!("read {}", conflist.display()), err))?;
    // Runtimes use no network that is about to lose its routes.
    if present.list().is_some_and(|list| conflist::is_own(&list)) {
        delete(conflist)?;
    }
    let credentials = &options.credentials;
    delete(&credentials.kubeconfig)?;
    // The folder of the conflist is the runtime's.
    let folder = credentials.kubeconfig.parent();
    if let Some(folder) = folder.filter(|folder| Some(*folder) != conflist.parent()) {
        delete_empty(folder)?;
    }
    for name in [TOKEN, AUTHORITY] {
        delete(&credentials.folder.join(name))?;
    }
    delete_empty(&credentials.folder)?;
    let mut fabric = Fabric::open()?;
    fabric.clear().await?;
    cluster_masquerade::delete().map_err(|err| Error::new("stop masquerading pods", err))?;
    cluster_forward::delete().map_err(|err| Error::new("stop accepting pods", err))?;
    delete_all(Path::new(network_cache::FOLDER))?;
    for path in [ROUTES_FILE, SOCKET, report::SOCKET, SILENT, flannel::KEPT] {
        delete(Path::new(path))?;
    }
    let mut is_empty = erase_state_of_calls(&fabric).await?;
    if !is_empty {
        tracing::warn!("records of running containers stay until their DEL, which needs them");
    }
    readiness.send_replace(Readiness::default());
    while !is_empty {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            () = tokio::time::sleep(PAUSE) => is_empty = erase_state_of_calls(&fabric).await?,
        }
    }
    tracing::info!("removed");
    term.recv().await;
    Ok(())
}

/// Returns false if a container is attached.
async fn erase_state_of_calls(fabric: &Fabric) -> Result<bool, Error> {
    let is_empty = erase::state_of_calls()
        .map_err(|err| Error::new("delete the state of plugin calls", err))?;
    let journals = Path::new(FOLDER);
    let pools = store::pools_in_use(journals)
        .map_err(|err| Error::new("read the journals of cluster-wide addresses", err))?;
    if pools.is_empty() {
        delete_all(journals)?;
    } else if is_empty {
        let pools = pools.join(", ");
        tracing::warn!(pools, "addresses of this node are not given back");
    }
    if is_empty {
        fabric.delete_unused_bridge(BRIDGE).await?;
    }
    Ok(is_empty)
}

/// Deletes a folder that has no files of others.
fn delete_empty(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir(folder) {
        Err(err)
            if !matches!(
                err.kind(),
                ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Err(Error::new(format_args!("delete {}", folder.display()), err))
        }
        _ => Ok(()),
    }
}

fn delete_all(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(Error::new(format_args!("delete {}", folder.display()), err))
        }
        _ => Ok(()),
    }
}

fn delete(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(Error::new(format_args!("delete {}", path.display()), err))
        }
        _ => Ok(()),
    }
}
