use super::*;
use tempfile::TempDir;

const TOKEN: &str = "canary-3f9c1d";

/// Writes a kubeconfig with the user `user` and the lines `more` for its cluster.
fn kubeconfig(folder: &TempDir, user: &str, more: &str) -> Access {
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers:\n- name: u\n  user: {user}\n\
         clusters:\n- name: k\n  cluster:\n    server: https://api.example:6443\n{more}"
    );
    let path = folder.path().join("kubeconfig");
    fs::write(&path, text).unwrap();
    Access::new(path)
}

fn read(access: &Access) -> Result<Credentials, SourceError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(access.credentials(Duration::from_secs(5)))
}

fn why(access: &Access) -> String {
    match read(access) {
        Err(SourceError::Lasting { why }) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("read"),
    }
}

fn passing(access: &Access) -> String {
    match read(access) {
        Err(SourceError::Passing { why }) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("read"),
    }
}

#[test]
fn token_file_is_trimmed_and_preferred_to_an_inline_token() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let access = kubeconfig(&folder, "{token: other, tokenFile: token}", "");
    let credentials = read(&access).unwrap();
    assert_eq!(
        (credentials.secrets, credentials.server),
        (vec![TOKEN.to_owned()], "api.example:6443".to_owned())
    );
    fs::remove_file(folder.path().join("token")).unwrap();
    assert_eq!(read(&access).unwrap().secrets, ["other"]);
}

#[test]
fn missing_service_account_files_are_transient() {
    let folder = TempDir::new().unwrap();
    let of_user = kubeconfig(&folder, "{tokenFile: missing}", "");
    assert!(
        passing(&of_user).contains("missing: No such file"),
        "{}",
        passing(&of_user)
    );
    let of_cluster = kubeconfig(
        &folder,
        "{tokenFile: token}",
        "    certificate-authority: gone.crt\n",
    );
    assert!(
        passing(&of_cluster).contains("gone.crt"),
        "{}",
        passing(&of_cluster)
    );
    // Any other reason is permanent.
    fs::create_dir(folder.path().join("token")).unwrap();
    assert!(why(&kubeconfig(&folder, "{tokenFile: token}", "")).contains("Is a directory"));
}

#[test]
fn broken_kubeconfig_error_has_its_line_and_no_token() {
    let folder = TempDir::new().unwrap();
    for user in [
        format!("{{token: {TOKEN}]"),
        format!("[token, {TOKEN}]"),
        format!("{{token: {TOKEN}, tokenFile: {{}}}}"),
    ] {
        let text = why(&kubeconfig(&folder, &user, ""));
        assert!(
            text.contains("not a valid kubeconfig, line ") && !text.contains(TOKEN),
            "{text}"
        );
    }
}

#[test]
fn unsupported_credentials_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let exec =
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [/tmp/never]}}";
    assert!(
        why(&kubeconfig(&folder, exec, ""))
            .ends_with("exec plugins and auth-providers are not supported")
    );
    let proxied = kubeconfig(&folder, "{}", "    proxy-url: http://proxy.example:3128\n");
    assert!(why(&proxied).ends_with("proxy-url is not supported"));
    fs::write(folder.path().join("token"), "\n").unwrap();
    assert!(why(&kubeconfig(&folder, "{tokenFile: token}", "")).ends_with("token is empty"));
}
