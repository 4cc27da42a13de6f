//! Service account tokens that are made with openssl.

use crate::server::Server;
use braid_tests::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns a token for the account of `server.token` that expired long ago.
pub(crate) fn expired(server: &Server) -> String {
    let payload = server.token.split('.').nth(1).expect("a token's payload");
    let mut claims: Value = serde_json::from_slice(&decode(payload)).expect("claims");
    claims["iat"] = json!(1_700_000_000);
    claims["nbf"] = json!(1_700_000_000);
    claims["exp"] = json!(1_700_003_600);
    // The token's header names the key, and only the claims differ.
    let header = server.token.split('.').next().expect("a token's header");
    let signed = format!(
        "{header}.{}",
        encode(claims.to_string().as_bytes(), "base64url")
    );
    fs::write("/run/sa.key", &server.token_key).expect("a key");
    let signature = openssl(
        &["dgst", "-sha256", "-sign", "/run/sa.key"],
        signed.as_bytes(),
    );
    format!("{signed}.{}", encode(&raw(&signature), "base64url"))
}

/// Converts an ECDSA signature from ASN.1 to its two numbers, with 32 bytes for each.
fn raw(signature: &[u8]) -> Vec<u8> {
    let number = |at: usize| {
        let len = usize::from(signature[at + 1]);
        let digits = &signature[at + 2..at + 2 + len];
        let digits = &digits[digits.len().saturating_sub(32)..];
        (
            [vec![0; 32 - digits.len()], digits.to_vec()].concat(),
            at + 2 + len,
        )
    };
    let (r, at) = number(2);
    [r, number(at).0].concat()
}

/// Encodes bytes as base64. With the form `base64url`, uses the alphabet of base64url and no
/// padding.
pub(crate) fn encode(bytes: &[u8], form: &str) -> String {
    let text = String::from_utf8(openssl(&["base64", "-A"], bytes)).expect("base64 is text");
    match form {
        "base64url" => text
            .trim_end_matches('=')
            .replace('+', "-")
            .replace('/', "_"),
        _ => text,
    }
}

fn decode(base64url: &str) -> Vec<u8> {
    let text = base64url.replace('-', "+").replace('_', "/");
    let padding = "=".repeat(text.len().next_multiple_of(4) - text.len());
    openssl(&["base64", "-d", "-A"], (text + &padding).as_bytes())
}

fn openssl(args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    let child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("openssl starts");
    child
        .stdin
        .take()
        .expect("its input")
        .write_all(input)
        .expect("it reads");
    let output = child.wait_with_output().expect("openssl ends");
    assert!(output.status.success(), "openssl {args:?} failed");
    output.stdout
}
