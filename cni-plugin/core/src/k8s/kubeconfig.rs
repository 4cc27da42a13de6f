//! The kubeconfig with which plugin calls query the API server. It has no secret: it names the files
//! of the token and of the certificate, which are read at each call.

use serde_json::json;
use std::path::Path;

/// Token of the service account.
pub const TOKEN: &str = "token";
/// Certificate of the API server's authority, PEM.
pub const AUTHORITY: &str = "ca.crt";

/// Returns the text for a server URL and the folder with [`TOKEN`] and [`AUTHORITY`].
pub fn text(server: &str, folder: &Path) -> String {
    let cluster = json!({"server": server, "certificate-authority": folder.join(AUTHORITY)});
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "own", "cluster": cluster}],
        "users": [{"name": "braid", "user": {"tokenFile": folder.join(TOKEN)}}],
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "braid"}}],
        "current-context": "own",
    });
    format!("{kubeconfig:#}\n")
}

/// Returns the URL of the API server in a pod, from the variables that the kubelet sets; `None`
/// outside a pod.
pub fn server_of_pod(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = variable("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty())?;
    let port = variable("KUBERNETES_SERVICE_PORT").filter(|port| !port.is_empty())?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    Some(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_a_pod_has_host_and_port_of_the_variables() {
        let server = |host: &str, port: &str| {
            server_of_pod(|key| match key {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
                _ => None,
            })
        };
        let urls = ["https://10.96.0.1:443", "https://[fd00::1]:443"].map(str::to_owned);
        assert_eq!(server("10.96.0.1", "443").as_ref(), Some(&urls[0]));
        assert_eq!(server("fd00::1", "443").as_ref(), Some(&urls[1]));
        assert_eq!(server("", "443"), None);
        assert_eq!(server_of_pod(|_| None), None);
    }
}
