//! Configuration of plugin calls, in the node's conflist.

use super::chain::BRAID;
use crate::source::files;
use braid_core::cni::{Error, Injected, Json, NetConf, NetConfList};
use std::path::Path;

/// Returns the configuration of braid's plugin in the node's conflist; `None` if there is none.
pub fn read(conflist: &Path) -> Result<Option<NetConf>, Error> {
    let Some(file) = files::read(conflist)?.pop() else {
        return Ok(None);
    };
    let list = NetConfList::from_json(&Json::parse(&file.bytes, "conflist")?)?;
    let is_braid = |plugin: &Json| plugin.get("type").and_then(Json::as_str) == Some(BRAID);
    let Some(at) = list.plugins.iter().position(is_braid) else {
        return Ok(None);
    };
    list.plugin_conf(at, &Injected::default()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflist_of_others_or_none_at_all_is_no_network() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("00.conflist");
        assert!(matches!(read(&path), Ok(None)));
        let other = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"}]}"#;
        std::fs::write(&path, other).expect("written");
        assert!(matches!(read(&path), Ok(None)));
        std::fs::write(&path, other.replace("bridge", BRAID)).expect("written");
        let own = read(&path).expect("valid").expect("a network");
        assert_eq!((own.name.as_str(), own.plugin.as_str()), ("n", BRAID));
    }
}
