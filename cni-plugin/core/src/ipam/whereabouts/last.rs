//! The last addresses of pods of a `StatefulSet`: a pod of the same name gets its last address again if it
//! is free.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Most last addresses of a node. They are in the node's annotation, and all annotations of an object
/// have 256 KiB.
const MOST: usize = 16;
/// Bytes of a hash of pod and interface.
const SHORT: usize = 4;

/// Last addresses by pod and interface, the newest at the end. As text: `key:offset`, separated by
/// commas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Last(Vec<(String, u128)>);

/// Returns the key of an interface of a pod; `None` if the pod's name does not end in an ordinal, as the
/// names in a `StatefulSet` do: `web-0`.
pub fn key(namespace: &str, pod: &str, ifname: &str) -> Option<String> {
    let (set, ordinal) = pod.rsplit_once('-')?;
    let is_ordinal = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    if set.is_empty() || !is_ordinal {
        return None;
    }
    let hash = Sha256::digest(format!("{namespace}/{pod}/{ifname}").as_bytes());
    Some(base16ct::lower::encode_string(&hash[..SHORT]))
}

impl Last {
    /// Returns the last address of a pod.
    pub fn of(&self, key: &str) -> Option<u128> {
        let found = self.0.iter().find(|(of, _)| of == key);
        found.map(|(_, offset)| *offset)
    }

    /// Returns all of them.
    pub fn offsets(&self) -> impl Iterator<Item = u128> {
        self.0.iter().map(|(_, offset)| *offset)
    }

    /// Sets the last address of a pod that is gone.
    pub fn set(&mut self, key: &str, offset: u128) {
        self.0.retain(|(of, at)| of != key && *at != offset);
        self.0.push((key.to_owned(), offset));
        let surplus = self.0.len().saturating_sub(MOST);
        self.0.drain(..surplus);
    }

    /// Forgets the last address of a pod that runs, and the pod that had this address.
    pub fn end(&mut self, key: &str, offset: u128) {
        self.0.retain(|(of, at)| of != key && *at != offset);
    }

    /// Adds the last addresses of another node.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Last {
    fn from(text: String) -> Self {
        let pairs = text.split(',').filter_map(|one| {
            let (key, offset) = one.split_once(':')?;
            Some((key.to_owned(), offset.parse().ok()?))
        });
        Self(pairs.collect())
    }
}

impl From<Last> for String {
    fn from(last: Last) -> Self {
        let pairs = last.0.iter().map(|(key, offset)| format!("{key}:{offset}"));
        pairs.collect::<Vec<String>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_stateful_sets_have_a_key() {
        let web = key("a", "web-0", "net1").unwrap();
        assert_eq!(web.len(), 2 * SHORT);
        assert_ne!(key("b", "web-0", "net1").unwrap(), web);
        for pod in ["web", "web-", "-1", "web-7d9f", "web-0a"] {
            assert_eq!(key("a", pod, "net1"), None, "{pod}");
        }
    }

    #[test]
    fn the_newest_are_kept_and_read_back() {
        let mut last = Last::default();
        for offset in 0..20 {
            last.set(&format!("k{offset}"), offset);
        }
        last.set("k10", 30);
        last.end("k11", 31);
        assert_eq!((last.of("k3"), last.of("k10")), (None, Some(30)));
        assert!(last.of("k11").is_none());
        assert_eq!(last.offsets().last(), Some(30));
        let text = String::from(last.clone());
        assert!(
            text.starts_with("k4:4,k5:5,") && text.ends_with(",k10:30"),
            "{text}"
        );
        assert_eq!(Last::from(text), last);
        assert!(Last::from("x,y:,:z".to_owned()).is_empty());
    }
}
