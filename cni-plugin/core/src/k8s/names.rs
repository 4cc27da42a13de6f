//! Names of Kubernetes objects (RFC 1123), checked before they become parts of paths and requests.

/// Maximum length of an object name in bytes.
const MAX_NAME: usize = 253;
/// Maximum length of a namespace name in bytes.
const MAX_LABEL: usize = 63;

/// True for a namespace name: one label of at most 63 bytes.
pub fn is_namespace(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_label(text)
}

/// True for an object name: labels separated by dots, at most 253 bytes.
pub fn is_object(text: &str) -> bool {
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

/// True if `text` matches `[a-z0-9]([-a-z0-9]*[a-z0-9])?`.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    // Conformance: N4
    #[test]
    fn names_are_dns_1123_labels() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        for (name, namespace, object) in [
            ("net-a", true, true),
            ("0", true, true),
            (&long, true, true),
            (&longer, false, true),
            ("a.b", false, true),
            ("a.b-c.3", false, true),
            ("Net_A", false, false),
            ("", false, false),
            (".", false, false),
            ("..", false, false),
            ("a..b", false, false),
            ("a.", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a/b", false, false),
            ("a\0", false, false),
            ("ä", false, false),
            (
                &format!("{longer}.{longer}.{longer}.{longer}"),
                false,
                false,
            ),
        ] {
            assert_eq!(
                (is_namespace(name), is_object(name)),
                (namespace, object),
                "{name:?}"
            );
        }
    }
}
