//! Credentials for the API server, from a kubeconfig.

use braid_core::k8s::source::SourceError;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use nix::errno::Errno;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Placeholder URL for "no proxy". Without it, kube would use the proxy in the container runtime's
/// environment, which is for pulling images.
const NO_PROXY: &str = "http://none.invalid";

/// Address and credentials of the API server: a kubeconfig with a token, a token file, or a client
/// certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    kubeconfig: PathBuf,
}

/// Configuration and secrets of a client for the API server.
pub(super) struct Credentials {
    pub(super) config: Config,
    /// `<host>:<port>`, for errors.
    pub(super) server: String,
    /// Namespace of the context, if it names one.
    pub(super) namespace: Option<String>,
    /// Token and password. They are removed from every text that is shown.
    pub(super) secrets: Vec<String>,
}

impl Access {
    /// Access by a kubeconfig.
    pub fn new(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig }
    }

    /// Reads the credentials. `attempt` is the timeout for connecting to the server.
    pub(super) async fn credentials(&self, attempt: Duration) -> Result<Credentials, SourceError> {
        let read = Kubeconfig::read_from(&self.kubeconfig);
        let mut kubeconfig = read.map_err(|err| self.unusable(&err))?;
        for named in &mut kubeconfig.clusters {
            if let Some(cluster) = &mut named.cluster
                && cluster.proxy_url.as_deref().is_none_or(str::is_empty)
            {
                cluster.proxy_url = Some(NO_PROXY.to_owned());
            }
        }
        let options = KubeConfigOptions::default();
        let namespace = namespace(&kubeconfig);
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(|err| self.unusable(&err))?;
        if config
            .proxy_url
            .take()
            .is_some_and(|url| url.host() != Some("none.invalid"))
        {
            return Err(self.refused(&"proxy-url is not supported"));
        }
        if config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some() {
            return Err(self.refused(&"exec plugins and auth-providers are not supported"));
        }
        self.read_token(&mut config.auth_info)?;
        config.connect_timeout = Some(attempt);
        // The session retries instead, within its deadline.
        config.default_retry = false;
        let agent = concat!("braid/", env!("CARGO_PKG_VERSION"));
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_static(agent),
        ));
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let server = format!("{}:{port}", config.cluster_url.host().unwrap_or_default());
        Ok(Credentials {
            server,
            namespace,
            secrets: secrets(&config.auth_info),
            config,
        })
    }

    /// Replaces the path of the token file by the file's content. kube would keep the trailing
    /// newline, which is invalid in a header, and would prefer an inline token. As in kubectl, an
    /// inline token is used only if the file cannot be read.
    fn read_token(&self, who: &mut AuthInfo) -> Result<(), SourceError> {
        let path = who.token_file.take().unwrap_or_default();
        if path.is_empty() {
            return Ok(());
        }
        match fs::read_to_string(&path) {
            Ok(token) if token.trim().is_empty() => {
                Err(self.refused(&format!("token file {path} is empty")))
            }
            Ok(token) => {
                who.token = Some(token.trim().to_owned().into());
                Ok(())
            }
            Err(_) if who.token.is_some() => Ok(()),
            Err(err) => Err(self.unread(&format!("read token file {path}: {err}"), &err)),
        }
    }

    /// Returns the error for a file that cannot be read. A missing file is a transient error: the
    /// kubelet deletes the files of a service account with their pod, and creates them again for
    /// the next pod. A lack of descriptors or memory is transient too.
    fn unread(&self, why: &str, err: &io::Error) -> SourceError {
        if err.kind() == io::ErrorKind::NotFound || is_scarce(err) {
            return SourceError::Passing {
                why: format!("{}: {why}", self.place()),
            };
        }
        self.refused(&why)
    }

    /// Returns the error for unusable credentials.
    pub(super) fn refused(&self, why: &impl Display) -> SourceError {
        SourceError::Lasting {
            why: format!("{}: {why}", self.place()),
        }
    }

    fn unusable(&self, err: &KubeconfigError) -> SourceError {
        if let KubeconfigError::LoadCertificateAuthority(LoadDataError::ReadFile(cause, _)) = err {
            return self.unread(&err.to_string(), cause);
        }
        if let KubeconfigError::ReadConfig(cause, _) = err
            && is_scarce(cause)
        {
            return self.unread(&err.to_string(), cause);
        }
        let KubeconfigError::Parse(err) = err else {
            return self.refused(err);
        };
        // The parser's error text quotes the neighbouring lines, which may have tokens.
        match err.location() {
            Some(place) => self.refused(&format!("not a valid kubeconfig, line {}", place.line())),
            None => self.refused(&"not a valid kubeconfig"),
        }
    }

    fn place(&self) -> String {
        format!("kubeconfig {}", self.kubeconfig.display())
    }
}

/// True if the kernel was out of descriptors or memory, which is transient.
fn is_scarce(err: &io::Error) -> bool {
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM]
        .iter()
        .any(|errno| err.raw_os_error() == Some(*errno as i32))
}

/// Returns the token and password, which a server could echo in a message. They are read from the
/// Returns the namespace of the current context; `None` if it names none.
fn namespace(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == *current)?;
    let namespace = context.context.as_ref()?.namespace.clone()?;
    (!namespace.is_empty()).then_some(namespace)
}

/// serialized form of `who`, the only form that reveals them.
fn secrets(who: &AuthInfo) -> Vec<String> {
    let written = serde_json::to_value(who).unwrap_or_default();
    let mut secrets = Vec::new();
    for key in ["token", "password"] {
        let secret = written[key].as_str().unwrap_or_default();
        if !secret.is_empty() {
            secrets.push(secret.to_owned());
        }
    }
    secrets
}

#[cfg(test)]
mod tests;
