//! Network configurations in files on the node. Plugins of a list can also be in separate files, in
//! a folder beside the list's file (CNI 1.1).
//!
//! ```text
//!  /etc/cni/net.d/10-flannel.conflist   {"name": "cbr0", "plugins": […]}   ─┐
//!  /etc/cni/net.d/cbr0/*.conf           {"type": "tuning", …}              ─┴─► one list, the files last, by name
//! ```

use super::nad::Definition;
use super::text_at;
use crate::cni::bounds::{listed, shortened};
use crate::cni::netconf::is_identifier;
use crate::cni::netconf_list::only_inlined;
use crate::cni::{Error, Json, NetConf, Version};

/// A file in a folder of network configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFile {
    /// File name without the folder.
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A network found in a file. Further plugins may be in a folder beside the file.
#[derive(Debug)]
pub struct OnDisk<'f> {
    json: Json,
    /// Name of the network if its configuration has none.
    name: &'f str,
    file: &'f str,
}

impl OnDisk<'_> {
    /// Returns the name of the folder with further plugins of the list. The folder is beside the
    /// file and named after the network. `None` for a single plugin, for a list with
    /// `loadOnlyInlinedPlugins`, and for a network name that is unsafe in a path.
    pub fn folder(&self) -> Result<Option<&str>, Error> {
        if rank(self.file) != Some(LIST)
            || only_inlined(&self.json).map_err(|err| err.context(self.file))?
        {
            return Ok(None);
        }
        match self.json.str_or("name", "") {
            Ok(name) if is_identifier(name) => Ok(Some(name)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Returns the network's definition with the plugins in `folder` appended.
    pub fn definition(mut self, folder: &[DiskFile]) -> Result<Definition, Error> {
        let context = |error: Error| error.context(self.file);
        let mut plugins = plugins_of(folder).map_err(context)?;
        if !plugins.is_empty() {
            let mut all = self
                .json
                .each("plugins", |plugin| Ok(plugin.clone()))
                .map_err(context)?;
            all.append(&mut plugins);
            self.json.set("plugins", all);
        }
        Definition::parse(self.json, self.name).map_err(context)
    }
}

/// Finds the network with this name among the files of a folder. Searches lists before single
/// plugins, each in file name order. Skips a file that can't be parsed, because it may belong to
/// another network.
pub fn of_disk<'f>(name: &'f str, files: &'f [DiskFile]) -> Result<OnDisk<'f>, Error> {
    let mut unreadable = Vec::new();
    for file in in_order(files) {
        match Json::parse(&file.bytes, &file.name) {
            Ok(json) if has_name(&json, name) => {
                return Ok(OnDisk {
                    json,
                    name,
                    file: &file.name,
                });
            }
            Ok(_) => {}
            Err(error) => unreadable.push(error.msg),
        }
    }
    let but = if unreadable.is_empty() {
        String::new()
    } else {
        format!("; not read: {}", listed(unreadable))
    };
    Err(Error::config(format!(
        "no configuration is named {:?}, in {} files{but}",
        shortened(name),
        files.len()
    )))
}

/// Returns the network in the first configuration file of a folder, in file name order. `name` is
/// used if the network has no name.
pub fn first_of_folder<'f>(name: &'f str, files: &'f [DiskFile]) -> Result<OnDisk<'f>, Error> {
    let known = files.iter().filter(|file| rank(&file.name).is_some());
    let first = known.min_by(|a, b| a.name.cmp(&b.name)).ok_or_else(|| {
        Error::config(format!(
            "{}: no .conf, .conflist or .json file",
            shortened(name)
        ))
    })?;
    of_file(name, first)
}

/// Returns the network in one file. `name` is used if the network has no name.
pub fn of_file<'f>(name: &'f str, file: &'f DiskFile) -> Result<OnDisk<'f>, Error> {
    Ok(OnDisk {
        json: Json::parse(&file.bytes, &file.name)?,
        name,
        file: &file.name,
    })
}

/// Returns all plugins of a folder as one network, in file name order; `None` if the folder has no
/// plugins.
pub fn chain_of_folder(
    name: &str,
    version: Version,
    files: &[DiskFile],
) -> Result<Option<Definition>, Error> {
    let plugins = plugins_of(files)?;
    if plugins.is_empty() {
        return Ok(None);
    }
    let list = [
        ("name", name.into()),
        ("cniVersion", version.as_str().into()),
        ("plugins", plugins.into()),
    ];
    let definition = Definition::parse(Json::object_of(list), name)?;
    Ok(Some(definition))
}

/// True if the runtime itself runs the plugins of `folder` after `call`. This needs a list in
/// `files` that has the folder's name, contains the called plugin and does not set
/// `loadOnlyInlinedPlugins`. A runtime with an older libcni never runs plugins from a folder.
pub fn is_run_by_runtime(folder: &str, call: &NetConf, files: &[DiskFile]) -> bool {
    let is_own = |file: &DiskFile| {
        if rank(&file.name) != Some(LIST) {
            return false;
        }
        let Ok(json) = Json::parse(&file.bytes, &file.name) else {
            return false;
        };
        let has_call = |plugin: &Json| text_at(plugin, "type") == Some(&call.plugin);
        let plugins = if let Some(Json::Array(all)) = json.get("plugins") {
            all.as_slice()
        } else {
            &[]
        };
        has_name(&json, folder)
            && plugins.iter().any(has_call)
            && !only_inlined(&json).unwrap_or_default()
    };
    call.name == folder && files.iter().any(is_own)
}

/// Returns the plugins in the `.conf` files, in file name order. Fails if a plugin has no `type`.
fn plugins_of(files: &[DiskFile]) -> Result<Vec<Json>, Error> {
    let mut sorted: Vec<&DiskFile> = files
        .iter()
        .filter(|file| file.name.ends_with(PLUGIN))
        .collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut plugins = Vec::with_capacity(sorted.len());
    for file in sorted {
        let json = Json::parse(&file.bytes, &file.name)?;
        if text_at(&json, "type").is_none_or(str::is_empty) {
            return Err(Error::config(format!(
                "{}: not a plugin: \"type\" is missing",
                file.name
            )));
        }
        plugins.push(json);
    }
    Ok(plugins)
}

fn has_name(json: &Json, name: &str) -> bool {
    text_at(json, "name") == Some(name)
}

/// Returns the configuration files in search order: lists, then single plugins, each by name.
fn in_order(files: &[DiskFile]) -> Vec<&DiskFile> {
    let mut ranked: Vec<(u8, &DiskFile)> = files
        .iter()
        .filter_map(|file| Some((rank(&file.name)?, file)))
        .collect();
    ranked.sort_by(|(a, first), (b, second)| a.cmp(b).then_with(|| first.name.cmp(&second.name)));
    ranked.into_iter().map(|(_, file)| file).collect()
}

/// Suffix of a file with one plugin of a list.
pub const PLUGIN: &str = ".conf";
/// Rank of a list file in the search order. Single plugins have rank 1.
const LIST: u8 = 0;

fn rank(file: &str) -> Option<u8> {
    match file.rsplit_once('.')?.1 {
        "conflist" => Some(LIST),
        "conf" | "json" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> DiskFile {
        DiskFile {
            name: name.to_owned(),
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn types(definition: &Definition) -> String {
        definition.types().collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_folder_gives_its_first_network_or_a_chain_of_all() {
        let all = [
            file("20-b.conf", r#"{"type":"b"}"#),
            file("10-a.conflist", r#"{"plugins":[{"type":"a"}]}"#),
            file("00-readme.txt", "x"),
        ];
        let first = first_of_folder("pods", &all)
            .unwrap()
            .definition(&[])
            .unwrap();
        assert_eq!((first.name(), types(&first).as_str()), ("pods", "a"));
        assert!(first_of_folder("pods", &all[2..]).is_err());
        let chain = [
            file("2.conf", r#"{"type":"b"}"#),
            file("1.conf", r#"{"type":"a","x":1}"#),
            file("0.json", "{"),
        ];
        let chain = chain_of_folder("aux", Version::V1_0_0, &chain)
            .unwrap()
            .unwrap();
        assert_eq!(
            (chain.name(), chain.version(), types(&chain).as_str()),
            ("aux", Version::V1_0_0, "a,b")
        );
        assert!(
            chain_of_folder("aux", Version::V1_0_0, &all[1..])
                .unwrap()
                .is_none()
        );
        assert!(chain_of_folder("aux", Version::V1_0_0, &[file("1.conf", "{")]).is_err());
    }

    #[test]
    fn plugins_of_the_folder_follow_the_list_by_file_name() {
        let list = |rest: &str| {
            file(
                "10-x.conflist",
                &format!(r#"{{"name":"x","cniVersion":"1.1.0"{rest}}}"#),
            )
        };
        let folder = [
            file("20.conf", r#"{"type":"c","name":"own"}"#),
            file("10.conf", r#"{"type":"b"}"#),
        ];
        for (rest, expected) in [
            (r#","plugins":[{"type":"a"}]"#, Ok(Some("a,b,c"))),
            (
                r#","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":false"#,
                Ok(Some("a,b,c")),
            ),
            (
                r#","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":"TRUE""#,
                Ok(None),
            ),
            (r#","plugins":[]"#, Ok(Some("b,c"))),
            ("", Ok(Some("b,c"))),
            (
                r#","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":5"#,
                Err(()),
            ),
        ] {
            let list = list(rest);
            let found = of_file("x", &list).unwrap();
            let has_folder = found
                .folder()
                .map(|folder| folder == Some("x"))
                .map_err(drop);
            assert_eq!(has_folder, expected.map(|types| types.is_some()), "{rest}");
            if let Ok(Some(expected)) = expected {
                assert_eq!(
                    types(&found.definition(&folder).unwrap()),
                    expected,
                    "{rest}"
                );
            }
        }
        let without = list("");
        assert!(
            of_file("x", &without).unwrap().definition(&[]).is_err(),
            "no plugin at all"
        );
    }

    #[test]
    fn invalid_file_of_the_folder_fails_the_network() {
        let list = file("x.conflist", r#"{"name":"x","plugins":[{"type":"a"}]}"#);
        for text in [
            "{",
            "[]",
            "5",
            "{}",
            r#"{"type":""}"#,
            r#"{"plugins":[{"type":"b"}]}"#,
        ] {
            let error = of_file("x", &list)
                .unwrap()
                .definition(&[file("1.conf", text)])
                .unwrap_err();
            assert!(
                error.msg.starts_with("x.conflist: 1.conf: "),
                "{text}: {error}"
            );
        }
        for text in [r#"{"type":"../a"}"#, r#"{"type":"braid"}"#] {
            assert!(
                of_file("x", &list)
                    .unwrap()
                    .definition(&[file("1.conf", text)])
                    .is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn folder_name_is_never_another_path() {
        let text = |name: &str| {
            format!(
                r#"{{"name":{},"plugins":[{{"type":"a"}}]}}"#,
                Json::from(name)
            )
        };
        for name in ["..", ".", "a/b", "../x", "/etc", "", "a\0", "-a"] {
            let list = file("x.conflist", &text(name));
            assert_eq!(of_file("x", &list).unwrap().folder(), Ok(None), "{name:?}");
        }
        let single = file("x.conf", &text("x"));
        assert_eq!(of_file("x", &single).unwrap().folder(), Ok(None), "no list");
    }

    #[test]
    fn a_runtime_runs_the_folder_of_its_own_list_unless_that_has_all_plugins() {
        let call = |name: &str| {
            NetConf::parse(
                format!(r#"{{"name":"{name}","cniVersion":"1.1.0","type":"braid"}}"#).as_bytes(),
            )
            .unwrap()
        };
        let list = |name: &str, more: &str| {
            format!(r#"{{"name":"{name}","plugins":[{{"type":"braid"}}]{more}}}"#)
        };
        for (file_name, text, is_run) in [
            ("00.conflist", list("x", ""), true),
            (
                "00.conflist",
                list("x", r#","loadOnlyInlinedPlugins":true"#),
                false,
            ),
            ("00.conflist", list("y", ""), false),
            (
                "00.conf",
                r#"{"name":"x","type":"braid"}"#.to_owned(),
                false,
            ),
            (
                "00.conflist",
                r#"{"name":"x","plugins":[{"type":"flannel"}]}"#.to_owned(),
                false,
            ),
            ("00.conflist", "{".to_owned(), false),
        ] {
            let files = [
                file("10-x.conflist", r#"{"name":"x","plugins":[{"type":"a"}]}"#),
                file(file_name, &text),
            ];
            assert_eq!(is_run_by_runtime("x", &call("x"), &files), is_run, "{text}");
            assert!(!is_run_by_runtime("x", &call("pods"), &files), "{text}");
        }
    }
}
