//! Manifest files: the objects that a pod's networks depend on, and the lines of their texts.

mod any_value;
mod device_claims;
mod document;
mod lines;

use braid_core::cni::{Error, Json};
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod, text_at};
use braid_node::source::manifests::Objects;
use device_claims::DeviceDocument;
pub(super) use device_claims::RESOURCE_CLAIMS;
use document::Document;
pub(super) use lines::Lines;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of a file in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A parsed file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    lines: Vec<String>,
    pub(super) pods: Vec<Placed<Pod>>,
    pub(super) nads: Vec<Placed<Nad>>,
    claims: Vec<IpamClaim>,
    /// All documents, if any has claims or classes of devices, or a pod with claims.
    pub(super) devices: Vec<DeviceDocument>,
}

/// An object from a file. `places` maps a key to the line of its value; the key `""` has the line
/// for all other keys.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub(super) object: T,
    places: BTreeMap<String, usize>,
}

/// Position in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub(super) line: usize,
    /// Column of a syntax error; `None` for other faults.
    pub(super) column: Option<usize>,
}

impl FilePosition {
    pub(super) fn of_line(line: usize) -> Self {
        Self { line, column: None }
    }
}

/// Error while reading a file, with the line.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) line: usize,
    pub(super) why: String,
}

impl From<Unreadable> for Error {
    fn from(Unreadable { path, line, why }: Unreadable) -> Self {
        Self::config(format!("{}:{line}: {why}", path.display()))
    }
}

impl File {
    /// Reads all documents of a file; `-` is standard input. Keeps pods, networks and claims, and
    /// skips objects of other kinds.
    pub(super) fn read(path: &Path) -> Result<Self, Unreadable> {
        let mut text = String::new();
        let mut read = |from: &mut dyn Read| from.take(MAX_BYTES).read_to_string(&mut text);
        let done = if path == Path::new("-") {
            read(&mut std::io::stdin().lock())
        } else {
            match std::fs::File::open(path) {
                Ok(mut file) => read(&mut file),
                Err(err) => Err(err),
            }
        };
        done.map_err(|err| Unreadable {
            path: path.to_owned(),
            line: 1,
            why: err.to_string(),
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Unreadable> {
        let unreadable = |(line, why)| Unreadable {
            path: path.to_owned(),
            line,
            why,
        };
        let documents = Document::all(text).map_err(unreadable)?;
        let mut file = Self {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            pods: Vec::new(),
            nads: Vec::new(),
            claims: Vec::new(),
            devices: DeviceDocument::all(text).map_err(unreadable)?,
        };
        for document in documents {
            file.add(document);
        }
        Ok(file)
    }

    fn add(&mut self, document: Document) {
        match document.kind.as_str() {
            "NetworkAttachmentDefinition" => self.nads.push(document.nad()),
            "IPAMClaim" => self.claims.push(document.claim()),
            _ if document.items.is_empty() => self.pods.extend(document.pod()),
            _ => {
                for item in document.items {
                    self.add(item);
                }
            }
        }
    }

    /// Converts line `inner` of a text to a line of the file. Both lines count from 1. The text
    /// begins at the line `first` of the file. A text in quotes has a single line in the file, so
    /// the result is `first`.
    pub(super) fn line(&self, first: usize, text: &str, inner: usize) -> usize {
        let blank = text.bytes().take_while(|byte| *byte == b'\n').count();
        let line = (first + inner).saturating_sub(blank + 1);
        let inner = text.lines().nth(inner.saturating_sub(1));
        match (self.text_of_line(line), inner) {
            (Some(written), Some(inner)) if written.trim() == inner.trim() => line,
            _ => first,
        }
    }

    /// Returns the text of a line, from 1.
    fn text_of_line(&self, line: usize) -> Option<&str> {
        let index = line.checked_sub(1)?;
        Some(self.lines.get(index)?)
    }

    /// Converts a position in a text to a position in the file. Lines and columns count from 1. A
    /// position after the end counts as the last line of the text and loses its column. The column
    /// is also `None` if `column` is 0, or if the line is written differently in the file.
    pub(super) fn position(
        &self,
        first: usize,
        text: &str,
        line: usize,
        column: usize,
    ) -> FilePosition {
        let last = text.trim_end().lines().count().max(1);
        if line > last {
            return FilePosition::of_line(self.line(first, text, last));
        }
        let at = self.line(first, text, line);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let inner = text.lines().nth(line.saturating_sub(1));
        match (self.text_of_line(at), inner) {
            (Some(written), Some(inner)) if column > 0 && written.trim() == inner.trim() => {
                let column = (column + indent(written)).saturating_sub(indent(inner));
                FilePosition {
                    line: at,
                    column: Some(column),
                }
            }
            _ => FilePosition::of_line(at),
        }
    }
}

impl<T> Placed<T> {
    /// Returns the line at which the text under `key` begins.
    pub(super) fn place(&self, key: &str) -> usize {
        self.places
            .get(key)
            .or_else(|| self.places.get(""))
            .copied()
            .unwrap_or(1)
    }
}

/// Returns the objects of these files for a simulated cluster, without resource claims. If any pod has
/// some, also returns all objects of its file.
pub(super) fn read(paths: &[PathBuf]) -> Result<(Objects, Vec<Json>), Error> {
    let (mut objects, mut all) = (Objects::default(), Vec::new());
    for path in paths {
        let File {
            pods,
            nads,
            claims,
            devices,
            ..
        } = File::read(path)?;
        for document in &devices {
            all.extend_from_slice(document.objects());
        }
        for placed in pods {
            objects.pods.push(placed.object);
        }
        for placed in nads {
            objects.nads.push(placed.object);
        }
        objects.claims.extend(claims);
    }
    Ok((objects, all))
}

/// True if an object has this name. An object without a namespace is in the default one.
pub(super) fn is_named(object: &Json, name: &ObjectName) -> bool {
    let metadata = object.get("metadata").unwrap_or(&Json::Null);
    let text = |key: &str| text_at(metadata, key).filter(|text| !text.is_empty());
    let namespace = text("namespace").unwrap_or(document::DEFAULT);
    namespace == name.namespace && text("name") == Some(&name.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# a comment
kind: Pod
metadata:
  name: web
  annotations:
    one: |

      [
        second
      ]
    two: 'a, b'
    three: "x\ny"
spec: {containers: [{name: c, image: i}]}
---
---
apiVersion: v1
kind: List
items:
- kind: NetworkAttachmentDefinition
  metadata: {name: blue, namespace: ns}
  spec: {config: '{"type":"ptp"}'}
- kind: IPAMClaim
  metadata: {name: c, uid: u}
  spec: {network: n, interface: net1}
- {kind: ConfigMap, metadata: {name: other}, data: {x: y}}
- kind: CronJob
  metadata: {name: nightly, namespace: ns}
  spec: {jobTemplate: {spec: {template: {metadata: {annotations: {one: a}}}}}}
"#;

    fn read(text: &str) -> File {
        File::parse(Path::new("f"), text).expect("manifests")
    }

    #[test]
    fn documents_lists_and_templates_are_objects() {
        let file = read(TEXT);
        let names: Vec<String> = file
            .pods
            .iter()
            .map(|pod| pod.object.name.to_string())
            .collect();
        assert_eq!(names, ["default/web", "ns/nightly"]);
        assert_eq!(file.nads[0].object.name.to_string(), "ns/blue");
        assert_eq!(
            (
                file.claims[0].name.to_string(),
                file.claims[0].network.as_str()
            ),
            ("default/c".to_owned(), "n")
        );
        let json = read(
            "{\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"x\", \"annotations\": null}}",
        );
        assert_eq!(json.pods[0].object.name.to_string(), "default/x");
    }

    #[test]
    fn line_of_a_text_is_a_line_of_the_file() {
        let file = read(TEXT);
        let pod = &file.pods[0];
        let line =
            |key: &str, inner| file.line(pod.place(key), &pod.object.annotations[key], inner);
        assert_eq!(
            [
                line("one", 2),
                line("one", 3),
                line("two", 1),
                line("three", 2)
            ],
            [8, 9, 11, 12]
        );
        assert_eq!(
            (
                file.nads[0].place("spec.config"),
                pod.place("metadata.name"),
                pod.place("other")
            ),
            (21, 4, 4)
        );
    }

    #[test]
    fn error_of_an_unreadable_file_has_the_line() {
        for (text, line) in [
            ("kind: Pod\nmetadata: [", 2),
            ("kind: Pod\nmetadata:\n  annotations: 5\n", 3),
        ] {
            let err = File::parse(Path::new("f"), text).expect_err(text);
            assert!(err.line == line && !err.why.contains('\n'), "{err:?}");
        }
        assert_eq!(
            File::read(Path::new("/nowhere")).expect_err("no file").line,
            1
        );
    }
}
