//! Plugins of type `flannel` in a chain. Each is replaced by two items: the plugin that flanneld's
//! file describes, and an item that saves the configuration generated for that plugin to a file.
//!
//! The generated configuration is added to the call's configuration, and so to the record. So DEL
//! does not need flanneld's file.

use super::item::{Item, Reading};
use braid_core::cni::{Error, Json, NetConf};
use braid_core::plugins::meta::flannel::{
    self, FLANNEL, data_file, delegate, delegate_for_release, subnet_file,
};
use std::fs::{self, File};
use std::io::{self, Read};
use std::rc::Rc;

/// Key of the generated configurations in the call's configuration. Its value is an object; the
/// keys are the indices of the `flannel` plugins in the list.
const MADE: &str = "braid.flannel";
/// Maximum number of bytes read from a file.
const MAX_BYTES: u64 = 1 << 20;

/// Items that replace one plugin of type `flannel`.
pub(super) struct Made {
    pub(super) items: Vec<Item>,
    /// Reason why no ADD can succeed now.
    pub(super) unready: Option<Error>,
}

/// The configuration of a call, and how to read it.
pub(super) struct Reader<'a> {
    /// The call's configuration. Generated configurations are added to it.
    pub(super) whole: &'a mut NetConf,
    /// `CNI_ARGS`.
    pub(super) args: &'a str,
    /// Strictness.
    pub(super) reading: Reading,
    /// Id of the container if it is already attached. In this case, the generated configuration is
    /// read from the file in which ADD saved it.
    pub(super) container_id: Option<&'a str>,
}

/// Marks a configuration as read from a record. If the record has no generated configuration for a
/// `flannel` plugin, ADD ran that plugin as another program.
pub(super) fn is_of_record(conf: &mut Json) {
    if !conf.has(MADE) {
        conf.set(MADE, Json::object_of([]));
    }
}

/// Returns a configuration without the mark of [`is_of_record`].
pub(super) fn unmarked(conf: &Json) -> Json {
    let mut conf = conf.clone();
    if conf.get(MADE) == Some(&Json::object_of([])) {
        conf.remove(MADE);
    }
    conf
}

impl Reader<'_> {
    /// Returns the items that replace the plugin at `at`; `None` if its type is not `flannel`.
    pub(super) fn items(&mut self, at: usize, conf: &NetConf) -> Result<Option<Made>, Error> {
        if conf.plugin != FLANNEL {
            return Ok(None);
        }
        let known = self.whole.json.object(MADE)?;
        let made = known.and_then(|known| known.get(&at.to_string()));
        let is_others = made.is_none() && known.is_some_and(|known| known.fields().is_empty());
        if is_others {
            return Ok(Some(Made {
                items: vec![Item::foreign(conf.clone(), at)],
                unready: None,
            }));
        }
        let made = made
            .cloned()
            .or_else(|| self.told(conf))
            .map_or_else(|| delegate_now(conf), Ok);
        let (made, unready) = match (made, delegate_for_release(conf)) {
            (Ok(made), _) => (made, None),
            (Err(err), Ok(known)) => (known, Some(err)),
            // No ADD can have succeeded with this configuration.
            (Err(_), Err(_)) if self.reading == Reading::ForRelease => {
                return Ok(Some(Made {
                    items: Vec::new(),
                    unready: None,
                }));
            }
            (Err(_), Err(wrong)) => return Err(wrong),
        };
        let reading = if unready.is_some() {
            Reading::ForRelease
        } else {
            self.reading
        };
        if unready.is_none() {
            self.keep(at, &made);
        }
        let worker = Item::parse(NetConf::from_json(made.clone())?, self.args, reading)?;
        let file = Item::parse(flannel::with_made(conf, &made), self.args, reading)?;
        Ok(Some(Made {
            items: vec![worker.made(), file.made()],
            unready,
        }))
    }

    /// Reads the generated configuration that was saved when the container was attached; `None` if
    /// there is none.
    fn told(&self, conf: &NetConf) -> Option<Json> {
        let path = data_file(conf, self.container_id?).ok()?;
        let json = Json::parse(read(&path).ok()?.as_bytes(), &path).ok()?;
        NetConf::from_json(json.clone())
            .is_ok_and(|conf| !conf.plugin.is_empty())
            .then_some(json)
    }

    fn keep(&mut self, at: usize, made: &Json) {
        let mut known = self
            .whole
            .json
            .get(MADE)
            .cloned()
            .unwrap_or_else(|| Json::object_of([]));
        known.set(&at.to_string(), made.clone());
        Rc::make_mut(&mut self.whole.json).set(MADE, known);
    }
}

/// Generates the configuration from flanneld's current file.
fn delegate_now(conf: &NetConf) -> Result<Json, Error> {
    let path = subnet_file(conf)?;
    let text = read(&path)
        .map_err(|err| Error::because(format!("flannel: read {path}: {err}"), is_passing(&err)))?;
    delegate(conf, &path, &text)
}

/// True if the file is missing. This is temporary, as flanneld writes the file when it starts.
fn is_passing(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound
}

/// Reads a regular file. The configuration names the path, so it may also be a pipe or a device.
fn read(path: &str) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}
