//! Checks of the conflist's path. Runtimes must read the file, and choose it before all other
//! configurations of the folder.

use std::path::{Component, Path};

/// Suffix of files that runtimes read a list from. In any other file they expect a single plugin.
const END: &str = ".conflist";
/// Default file name.
pub const NAME: &str = "00-braid.conflist";

/// Refuses a path that is not absolute on the node, or a file that runtimes don't read a list from.
pub fn check_path(conflist: &Path) -> Result<(), String> {
    let failed = |why: &str| Err(format!("--conflist {}: {why}", conflist.display()));
    if !conflist.is_absolute()
        || conflist
            .components()
            .any(|part| part == Component::ParentDir)
    {
        return failed("it must be an absolute path on the node, without \"..\"");
    }
    match conflist.file_name().and_then(|name| name.to_str()) {
        Some(name) if name.ends_with(END) => Ok(()),
        Some(_) | None => failed("runtimes read lists only from .conflist files"),
    }
}

/// Requires a name that sorts before `first`, the first of the other configurations. Runtimes use
/// the configuration with the name that sorts first.
pub fn check_order(conflist: &Path, first: Option<&str>) -> Result<(), String> {
    let (Some(first), Some(name)) = (first, conflist.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(());
    };
    if name < first {
        return Ok(());
    }
    let hint = if NAME < first {
        format!(", such as {NAME}")
    } else {
        String::new()
    };
    let sentence =
        format!("runtimes use {first}, which sorts first; the name must sort before it{hint}");
    Err(format!("--conflist {}: {sentence}", conflist.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_runtimes_do_not_read_a_list_from_is_refused() {
        for (path, word) in [
            ("/etc/cni/net.d/00-braid.conflist", None),
            ("/etc/cni/net.d/.conflist", None),
            ("net.d/00-braid.conflist", Some("an absolute path")),
            (
                "/etc/cni/net.d/../00-braid.conflist",
                Some("without \"..\""),
            ),
            (
                "/etc/cni/net.d/00-braid.conf",
                Some("only from .conflist files"),
            ),
            (
                "/etc/cni/net.d/00-braid.json",
                Some("only from .conflist files"),
            ),
            (
                "/etc/cni/net.d/00-braid.txt",
                Some("only from .conflist files"),
            ),
            ("/etc/cni/net.d", Some("only from .conflist files")),
            ("/", Some("only from .conflist files")),
        ] {
            let checked = check_path(Path::new(path));
            match word {
                None => assert_eq!(checked, Ok(())),
                Some(word) => assert!(
                    checked.as_ref().is_err_and(|err| err.contains(word)),
                    "{path}: {checked:?}"
                ),
            }
        }
    }

    #[test]
    fn name_after_another_configuration_is_refused() {
        let check = |name: &str, first| check_order(&Path::new("/n").join(name), first);
        assert_eq!(check(NAME, None), Ok(()));
        assert_eq!(check(NAME, Some("00-multus.conf")), Ok(()));
        let expected = "--conflist /n/99-braid.conflist: runtimes use 10-flannel.conflist, which sorts first; the name must \
                        sort before it, such as 00-braid.conflist";
        assert_eq!(
            check("99-braid.conflist", Some("10-flannel.conflist")),
            Err(expected.to_owned())
        );
        let expected = "--conflist /n/00-braid.conflist: runtimes use 00-a.conf, which sorts first; the name must sort before it";
        assert_eq!(check(NAME, Some("00-a.conf")), Err(expected.to_owned()));
    }
}
