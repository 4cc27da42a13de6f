//! Credentials with which plugin calls query the API server: a token of the agent's service account
//! that is bound to the Node, so that it outlives the agent's pod.
//!
//! ```text
//!  /run/braid/api/token, ca.crt            0600, replaced by rename
//!  /etc/cni/net.d/braid.d/kubeconfig       names both, and the server
//! ```

use crate::cluster::node::Node;
use crate::{Account, Error};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use braid_core::k8s::kubeconfig::{self, AUTHORITY, TOKEN};
use braid_node::sys::replace::replace;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Requested lifetime of a token in seconds. The server may grant less.
const LIFETIME_SECONDS: i64 = 24 * 60 * 60;
/// Mode of the files, which only root may read.
const PRIVATE: u32 = 0o600;
/// Longest time of one request.
const LIMIT: Duration = Duration::from_secs(10);

/// Paths of the files.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Folder of `token` and `ca.crt`.
    pub folder: PathBuf,
    /// Kubeconfig of calls.
    pub kubeconfig: PathBuf,
}

/// The token on disk.
#[derive(Debug)]
struct Held {
    /// UID of the Node that the token is bound to.
    node_uid: String,
    renew_at: Instant,
}

/// Keeps the credentials of calls valid.
#[derive(Debug)]
pub struct Credentials {
    paths: Paths,
    account: Account,
    server: String,
    authority: String,
    held: Option<Held>,
}

impl Credentials {
    /// Creates the keeper for the server of `config`. It writes nothing yet. Fails without the
    /// certificate of the server's authority, which calls need.
    pub fn new(paths: Paths, account: Account, config: &Config) -> Result<Self, Error> {
        let certificates = config.root_cert.as_deref().ok_or_else(|| {
            let why = "they have no certificate of the server's authority";
            Error::new("read the credentials of the API", why)
        })?;
        Ok(Self {
            paths,
            account,
            server: config
                .cluster_url
                .to_string()
                .trim_end_matches('/')
                .to_owned(),
            authority: pem(certificates),
            held: None,
        })
    }

    /// Returns the time when [`Credentials::renew`] is due next.
    pub fn due(&self) -> Option<Instant> {
        Some(self.held.as_ref()?.renew_at)
    }

    /// Requests a token if there is none for this Node, or if a third of the lifetime of the last
    /// one is over, and writes the files.
    pub async fn renew(&mut self, client: &Client, node: &Node) -> Result<(), Error> {
        let is_valid = self
            .held
            .as_ref()
            .is_some_and(|held| held.node_uid == node.uid && Instant::now() < held.renew_at);
        if is_valid {
            return Ok(());
        }
        let doing = format!("request a token of {}", self.account);
        let request = self.request(client, node);
        let granted = tokio::time::timeout(LIMIT, request)
            .await
            .map_err(|_timeout| Error::new(&doing, format_args!("no answer after {LIMIT:?}")))?
            .map_err(|err| Error::new(&doing, err))?;
        let status = granted
            .status
            .ok_or_else(|| Error::new(&doing, "the answer has no token"))?;
        let lifetime = granted.spec.expiration_seconds;
        self.write(&status.token)?;
        self.held = Some(Held {
            node_uid: node.uid.clone(),
            renew_at: Instant::now() + pause(lifetime, RandomState::new().hash_one(0)),
        });
        Ok(())
    }

    async fn request(&self, client: &Client, node: &Node) -> kube::Result<TokenRequest> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(node.name.clone()),
                    uid: Some(node.uid.clone()),
                }),
                expiration_seconds: Some(LIFETIME_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(client.clone(), &self.account.namespace);
        accounts
            .create_token_request(&self.account.name, &PostParams::default(), &request)
            .await
    }

    fn write(&self, token: &str) -> Result<(), Error> {
        let write = |path: &Path, text: &str| {
            replace(path, text, PRIVATE)
                .map_err(|err| Error::new(format_args!("write {}", path.display()), err))
        };
        let folder = &self.paths.folder;
        write(&folder.join(AUTHORITY), &self.authority)?;
        write(&folder.join(TOKEN), token)?;
        write(
            &self.paths.kubeconfig,
            &kubeconfig::text(&self.server, folder),
        )?;
        Ok(())
    }
}

/// Returns the time until a token with this lifetime in seconds is renewed: a third of it, less up
/// to a tenth of that, so that the agents of a cluster do not renew at the same time.
fn pause(lifetime: Option<i64>, random: u64) -> Duration {
    /// Shortest time between two requests.
    const SHORTEST: Duration = Duration::from_mins(1);
    let seconds = lifetime.and_then(|seconds| u64::try_from(seconds).ok());
    let third = Duration::from_secs(seconds.unwrap_or_default()) / 3;
    let jitter = third / 10 * u32::try_from(random % 100).unwrap_or_default() / 100;
    third.saturating_sub(jitter).max(SHORTEST)
}

/// Encodes certificates as PEM.
fn pem(certificates: &[Vec<u8>]) -> String {
    /// Characters of a line (RFC 7468, section 2).
    const LINE: usize = 64;
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = BASE64_STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(LINE) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_within_a_third_of_its_lifetime() {
        let day = Duration::from_hours(24);
        for random in [0, 50, 99, u64::MAX] {
            let pause = pause(Some(LIFETIME_SECONDS), random);
            assert!(pause <= day / 3 && pause >= day / 3 * 9 / 10, "{pause:?}");
        }
        for lifetime in [None, Some(-1), Some(30)] {
            assert_eq!(pause(lifetime, 7), Duration::from_mins(1));
        }
    }

    #[test]
    fn certificates_become_lines_of_64_characters() {
        let text = pem(&[vec![0; 49], vec![1]]);
        let zeros = "A".repeat(64);
        assert_eq!(
            text,
            format!(
                "-----BEGIN CERTIFICATE-----\n{zeros}\nAA==\n-----END CERTIFICATE-----\n\
                 -----BEGIN CERTIFICATE-----\nAQ==\n-----END CERTIFICATE-----\n"
            )
        );
    }
}
