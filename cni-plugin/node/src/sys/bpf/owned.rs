//! Maps with an owner in each element: network, container id and interface in one text.

use super::object::Map;
use braid_ebpf_types::hostport::OWNER_LEN;
use nix::errno::Errno;

/// A map value that contains its owner: network, container id and interface of an attachment.
pub(crate) trait Owned: Copy {
    /// Returns the owner, padded with zeros, and its length in bytes.
    fn owner(&self) -> (&[u8; OWNER_LEN], u16);

    /// Returns the owner as text.
    fn owner_text(&self) -> String {
        let (owner, len) = self.owner();
        String::from_utf8_lossy(&owner[..usize::from(len).min(OWNER_LEN)]).into_owned()
    }
}

/// Converts an owner to the form of a map value.
pub(crate) fn owner_of(text: &str) -> ([u8; OWNER_LEN], u16) {
    let mut owner = [0; OWNER_LEN];
    let len = text.len().min(OWNER_LEN);
    owner[..len].copy_from_slice(&text.as_bytes()[..len]);
    (owner, u16::try_from(text.len()).unwrap_or_default())
}

impl<K: Copy, V: Owned> Map<K, V> {
    /// Deletes an element if it still belongs to `owner`.
    pub(crate) fn del_of(&self, key: &K, owner: &str) -> Result<(), Errno> {
        match self.get(key)? {
            Some(value) if value.owner_text() == owner => self.del(key),
            _ => Ok(()),
        }
    }

    /// Deletes all elements of an owner.
    pub(crate) fn del_all_of(&self, owner: &str) -> Result<(), Errno> {
        for key in self.keys()? {
            self.del_of(&key, owner)?;
        }
        Ok(())
    }

    /// Reads all values, provided that no other process changes the map meanwhile.
    pub(crate) fn values(&self) -> Result<Vec<V>, Errno> {
        let mut values = Vec::new();
        for key in self.keys()? {
            values.extend(self.get(&key)?);
        }
        Ok(values)
    }

    /// True if the map has no element.
    pub(crate) fn is_empty(&self) -> Result<bool, Errno> {
        Ok(self.next(None)?.is_none())
    }
}
