//! Messages about claims. They reach users as events of the pod and as conditions of the claim.

use crate::cni::Error;
use crate::cni::bounds::cut;
use crate::k8s::ObjectName;

/// Maximum length of a message in bytes.
pub const MAX_LEN: usize = 500;

/// Returns the error about a claim, shortened to [`MAX_LEN`].
pub fn about(claim: &ObjectName, error: Error) -> Error {
    let mut error = error.context(format_args!("claim {claim}"));
    error.msg = cut(&error.msg, MAX_LEN);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_a_claim_is_bounded() {
        let claim = ObjectName {
            namespace: "n".repeat(63),
            name: "c".repeat(253),
        };
        let error = about(&claim, Error::config("é".repeat(400) + " the cause"));
        assert!(error.msg.starts_with("claim nnn"), "{error}");
        assert!(error.msg.ends_with(" the cause"), "{error}");
        assert!(error.msg.len() <= MAX_LEN, "{}", error.msg.len());
    }
}
