//! Credentials with which plugin calls query the API server: a token of the agent's service account
//! that is bound to the Node, so that it outlives the agent's pod.
//!
//! ```text
//!  /run/braid/api/token, ca.crt            0600, replaced by rename
//!  /etc/cni/net.d/braid.d/kubeconfig       names both, and the server
//! ```
//!
//! Each comparison writes the files again if one differs. It also sends one request with the token,
//! at most every 30 seconds: only the API server knows that a token is void, for example because the
//! service account was created again. `/version` needs no right, so any answer but 401 is fine. The
//! request delays nothing; the next comparison uses its answer.

use crate::api;
use crate::cluster::node::Node;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::options::{Account, Paths};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use braid_core::k8s::kubeconfig::{self, AUTHORITY, TOKEN};
use braid_node::sys::replace::replace;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Requested lifetime of a token in seconds. The server may grant less.
const LIFETIME_SECONDS: i64 = 24 * 60 * 60;
/// Mode of the files, which only root may read.
const PRIVATE: u32 = 0o600;
/// Longest time of one request.
const LIMIT: Duration = Duration::from_secs(10);
/// Shortest time between two tries of the token.
const TRY: Duration = Duration::from_secs(30);

/// The token on disk.
struct Held {
    token: String,
    /// UID of the Node that the token is bound to.
    node_uid: String,
    renew_at: Instant,
    /// Time when it is void, unless the server says so earlier.
    void_at: Instant,
    try_at: Instant,
    /// A try that is not judged yet: true if the server refused the token.
    trying: Option<JoinHandle<bool>>,
}

impl Held {
    /// True if the server refused the token in the last try. Begins the next try if it is due.
    async fn is_refused(&mut self, config: &Config) -> bool {
        if let Some(trying) = self.trying.take_if(|trying| trying.is_finished())
            && trying.await.is_ok_and(|is_refused| is_refused)
        {
            tracing::warn!("the API server refuses the token of calls");
            return true;
        }
        if self.trying.is_none() && self.try_at <= Instant::now() {
            self.try_at = Instant::now() + TRY;
            let mut config = config.clone();
            config.auth_info = AuthInfo {
                token: Some(self.token.clone().into()),
                ..AuthInfo::default()
            };
            self.trying = Some(tokio::spawn(is_refused(config)));
        }
        false
    }
}

/// Sends a request with the token of `config`. True if the server answers that the token is void. A
/// server that is away says nothing about it.
async fn is_refused(config: Config) -> bool {
    // A token that is void is no failure of a request.
    let Ok(client) = api::client(config, &Metrics::default()) else {
        return false;
    };
    let answer = client.apiserver_version().await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 401)
}

/// Keeps the credentials of calls valid.
pub struct Credentials {
    paths: Paths,
    account: Account,
    /// Address of the server, and limits.
    config: Config,
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
            config: config.clone(),
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
        let held = self.held.as_ref()?;
        let tried = held.trying.as_ref().map(|_| Instant::now() + LIMIT);
        Some(tried.map_or(held.renew_at, |tried| held.renew_at.min(tried)))
    }

    /// Writes the files. Requests a token first if there is none for this Node, if a third of the
    /// lifetime of the last one is over, or if the server refuses it. If the request fails, the last
    /// token is used while it is valid.
    pub async fn renew(&mut self, client: &Client, node: &Node) -> Result<(), Error> {
        if let Some(held) = &mut self.held
            && (held.node_uid != node.uid || held.is_refused(&self.config).await)
        {
            self.held = None;
        }
        let now = Instant::now();
        if self.held.as_ref().is_none_or(|held| held.renew_at <= now) {
            match (self.granted(client, node).await, &self.held) {
                (Ok(held), _) => self.held = Some(held),
                (Err(err), Some(held)) if now < held.void_at => {
                    tracing::warn!(error = %err, "the last token stays in use");
                }
                (Err(err), _) => return Err(err),
            }
        }
        match &self.held {
            Some(held) => self.write(&held.token),
            None => Ok(()),
        }
    }

    /// Requests a token.
    async fn granted(&self, client: &Client, node: &Node) -> Result<Held, Error> {
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
        let now = Instant::now();
        Ok(Held {
            token: status.token,
            node_uid: node.uid.clone(),
            renew_at: now + pause(lifetime, RandomState::new().hash_one(0)),
            void_at: now + duration(lifetime),
            try_at: now + TRY,
            trying: None,
        })
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
    let third = duration(lifetime) / 3;
    let jitter = third / 10 * u32::try_from(random % 100).unwrap_or_default() / 100;
    third.saturating_sub(jitter).max(SHORTEST)
}

fn duration(seconds: Option<i64>) -> Duration {
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
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
