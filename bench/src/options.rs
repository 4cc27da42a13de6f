//! Options of all measurements: directories of plugins, and the networks to attach to.

use crate::conflist::Conflist;
use crate::floor::FLOOR;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Options of all measurements.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// A directory of plugins and its name in the report; repeat to compare
    #[arg(long, value_name = "NAME=DIR", required = true)]
    pub(crate) plugins: Vec<Named>,
    /// A network to attach to; repeat for several. `NAME=FILE` after a comma gives one directory a
    /// separate list
    #[arg(long, value_name = "FILE[,NAME=FILE]…", required = true)]
    pub(crate) conflist: Vec<Network>,
    /// Directories to compare with; for each figure the best of them counts. By default the first
    /// directory
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    baseline: Vec<String>,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A directory of plugins with its list.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    pub(crate) dir: PathBuf,
    pub(crate) conflist: Conflist,
}

/// `NAME=VALUE`; the value is a path by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named<T = PathBuf> {
    pub(crate) name: String,
    pub(crate) value: T,
}

/// Conflists for one network: the common file, and the files of directories that have a separate
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    common: PathBuf,
    own: Vec<Named>,
}

impl Network {
    /// Returns the file for the plugins called `name`.
    pub(crate) fn file(&self, name: &str) -> &Path {
        self.own
            .iter()
            .find(|own| own.name == name)
            .map_or(&self.common, |own| &own.value)
    }

    /// Returns the network's name in reports: the common file's name without its extension.
    pub(crate) fn label(&self) -> String {
        self.common
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

impl Common {
    /// Refuses conflists and baselines of unknown directories.
    pub(crate) fn check(&self) -> Result<()> {
        let own = self
            .conflist
            .iter()
            .flat_map(|network| &network.own)
            .map(|own| &own.name);
        self.check_names(own.chain(&self.baseline))
    }

    /// Fails if a name does not belong to one of the directories.
    pub(crate) fn check_names<'a>(
        &self,
        mut names: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        match names.find(|name| self.plugins.iter().all(|plugins| plugins.name != **name)) {
            Some(unknown) => bail!("\"{unknown}\" is none of the --plugins"),
            None => Ok(()),
        }
    }

    /// Returns the names of the directories to compare with.
    pub(crate) fn baselines(&self) -> Vec<String> {
        let first = self.plugins.first().filter(|_| self.baseline.is_empty());
        self.baseline
            .iter()
            .chain(first.map(|first| &first.name))
            .cloned()
            .collect()
    }

    /// Returns all plugin directories, each with its conflist for one network.
    pub(crate) fn contenders<'a>(&'a self, network: &Network) -> Result<Vec<Contender<'a>>> {
        let contender = |Named { name, value: path }: &'a Named| {
            let dir = path
                .canonicalize()
                .with_context(|| format!("plugins {name}: {}", path.display()))?;
            Ok(Contender {
                name,
                dir,
                conflist: Conflist::read(network.file(name))?,
            })
        };
        self.plugins.iter().map(contender).collect()
    }
}

/// Returns the value of a directory.
pub(crate) fn named<'a, T>(values: &'a [Named<T>], name: &str) -> Option<&'a T> {
    let found = values.iter().find(|named| named.name == name);
    found.map(|named| &named.value)
}

/// Returns the name that a value has on the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

impl<T> FromStr for Named<T>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text
            .split_once('=')
            .with_context(|| format!("\"{text}\" is not NAME=VALUE"))?;
        if name.is_empty() || name == FLOOR {
            bail!("\"{name}\" can't be a name here");
        }
        Ok(Named {
            name: name.to_owned(),
            value: value
                .parse()
                .with_context(|| format!("\"{value}\" of \"{name}\""))?,
        })
    }
}

impl FromStr for Network {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let common = parts.next().unwrap_or_default().into();
        Ok(Network {
            common,
            own: parts.map(Named::from_str).collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_a_conflist_of_its_own() {
        let network: Network = "dir/chain.conflist,braid=one.conflist".parse().unwrap();
        assert_eq!(network.file("ref"), Path::new("dir/chain.conflist"));
        assert_eq!(network.file("braid"), Path::new("one.conflist"));
        assert_eq!(network.label(), "chain");
    }

    #[test]
    fn plugins_need_a_name_that_is_not_the_floor() {
        let refused = |text: &str| Named::<PathBuf>::from_str(text).unwrap_err().to_string();
        assert_eq!(
            refused("/opt/cni/bin"),
            "\"/opt/cni/bin\" is not NAME=VALUE"
        );
        assert_eq!(
            refused("floor=/opt/cni/bin"),
            "\"floor\" can't be a name here"
        );
    }
}
