//! `braid lint`: faults of NetworkAttachmentDefinitions and annotations, found before they are in a
//! cluster.

mod pod_claims;

use super::manifests::{File, FilePosition, Lines, Placed, RESOURCE_CLAIMS, Unreadable};
use super::output::{self, Format};
use super::{FAILURE, Outcome};
use braid_core::cni::{FaultPlace, Json};
use braid_core::k8s::nad::Definition;
use braid_core::k8s::selection::Selection;
use braid_core::k8s::{DEFAULT_NETWORK, NETWORKS, Nad, Pod, annotation};
use braid_core::lint::device_claims::{self, Known};
use braid_core::lint::{self, Finding, Level};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Namespace for the default-network annotation of a pod, if the annotation names none.
const SYSTEM: &str = "kube-system";

/// Check manifests of networks, pods and device claims; exit status 1 if a pod would not start
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Manifests in YAML or JSON; `-` for standard input
    #[arg(short, long = "file", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A finding and its position in a file.
#[derive(Debug, Serialize)]
struct LintReport {
    file: String,
    line: usize,
    /// Column of a syntax error, from 1.
    column: Option<usize>,
    level: String,
    /// Kind and name of the object; `None` if the file can't be read.
    object: Option<String>,
    /// Key; empty if the finding is about the whole object.
    key: String,
    value: String,
    message: String,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let mut shown = Vec::new();
    let mut files = Vec::new();
    for path in &arguments.files {
        match File::read(path) {
            Ok(file) => files.push(file),
            Err(err) => shown.push(unreadable(err)),
        }
    }
    shown.extend(of_files(&files));
    let is_wrong = shown
        .iter()
        .any(|one| one.level == Level::Error.to_string());
    let printed = output::print(&match arguments.output {
        Format::Table => shown.iter().map(text).collect(),
        Format::Json => output::json(&shown)?,
    });
    Ok(if is_wrong { FAILURE } else { printed })
}

fn unreadable(Unreadable { path, line, why }: Unreadable) -> LintReport {
    let finding = Finding {
        level: Level::Error,
        place: FaultPlace::Path(Vec::new()),
        key: String::new(),
        value: String::new(),
        what: why,
    };
    shown(&path, None, FilePosition::of_line(line), finding)
}

fn shown(
    path: &Path,
    object: Option<String>,
    position: FilePosition,
    finding: Finding,
) -> LintReport {
    let FilePosition { line, column } = position;
    let Finding {
        level,
        key,
        value,
        what,
        ..
    } = finding;
    LintReport {
        file: path.display().to_string(),
        line,
        column,
        level: level.to_string(),
        object,
        key,
        value,
        message: what,
    }
}

/// Formats a finding as `file:line: level: key: value: message`, without empty parts. A syntax error
/// has `file:line:column:`.
fn text(one: &LintReport) -> String {
    let mut words = vec![one.key.as_str(), one.value.as_str(), one.message.as_str()];
    words.retain(|word| !word.is_empty());
    let place = match one.column {
        Some(column) => format!("{}:{}:{column}", one.file, one.line),
        None => format!("{}:{}", one.file, one.line),
    };
    format!("{place}: {}: {}\n", one.level, words.join(": "))
}

/// Returns the findings in the order of files and lines. Pods and claims are checked against the
/// objects in all files.
fn of_files(files: &[File]) -> Vec<LintReport> {
    let (mut nads, mut objects) = (Vec::new(), Vec::new());
    for file in files {
        nads.extend(file.nads.iter().map(|placed| &placed.object));
        for document in &file.devices {
            objects.extend_from_slice(document.objects());
        }
    }
    let classes: Vec<&Json> = objects
        .iter()
        .filter(|json| device_claims::is_class(json))
        .collect();
    let known = Known {
        classes: &classes,
        nads: &nads,
    };
    let mut all = Vec::new();
    for file in files {
        let mut found = Vec::new();
        for placed in &file.nads {
            found.extend(of_nad(file, placed));
        }
        for placed in &file.pods {
            found.extend(of_pod(file, placed, &nads));
            let claims = pod_claims::of_pod(&placed.object, &objects);
            found.extend(claims.map(|finding| {
                let position = FilePosition::of_line(placed.place(RESOURCE_CLAIMS));
                let object = Some(format!("pod {}", placed.object.name));
                shown(&file.path, object, position, finding)
            }));
        }
        found.extend(of_devices(file, known));
        found.sort_by_key(|one: &LintReport| one.line);
        all.extend(found);
    }
    all
}

fn of_nad(file: &File, placed: &Placed<Nad>) -> Vec<LintReport> {
    let nad = &placed.object;
    let lines = Lines::of(&nad.config);
    let report = |finding: Finding| {
        let is_metadata =
            finding.key == "metadata.name" || nad.annotations.contains_key(&finding.key);
        let position = if is_metadata {
            FilePosition::of_line(placed.place(&finding.key))
        } else {
            let first = placed.place("spec.config");
            position(file, first, &nad.config, &lines, &finding.place)
        };
        shown(
            &file.path,
            Some(format!("network-attachment-definition {}", nad.name)),
            position,
            finding,
        )
    };
    lint::nad(nad).into_iter().map(report).collect()
}

/// Returns the findings about claims and classes of devices.
fn of_devices(file: &File, known: Known<'_>) -> Vec<LintReport> {
    let mut all = Vec::new();
    for document in &file.devices {
        for (object, finding) in device_claims::objects(&document.json, known) {
            let position = FilePosition::of_line(document.lines.line(&finding.place));
            all.push(shown(&file.path, Some(object), position, finding));
        }
    }
    all
}

/// Converts a place in `text` to a position in the file. `first` is the line at which `text` begins
/// in the file. Only the position of a syntax error has a column.
fn position(
    file: &File,
    first: usize,
    text: &str,
    lines: &Lines,
    place: &FaultPlace,
) -> FilePosition {
    match place {
        FaultPlace::Position { line, column } => file.position(first, text, *line, *column),
        FaultPlace::Path(_) => FilePosition::of_line(file.line(first, text, lines.line(place))),
    }
}

fn of_pod(file: &File, placed: &Placed<Pod>, nads: &[&Nad]) -> Vec<LintReport> {
    let pod = &placed.object;
    let mut all = Vec::new();
    for (key, namespace) in [
        (NETWORKS, pod.name.namespace.as_str()),
        (DEFAULT_NETWORK, SYSTEM),
    ] {
        let Some(text) = pod.annotations.get(key) else {
            continue;
        };
        let mut findings = if key == NETWORKS {
            lint::networks(text, namespace)
        } else {
            lint::default_network(text, namespace)
        };
        if let Ok(selections) = annotation::networks(text, namespace) {
            for selection in &selections {
                findings.extend(of_network(text, selection, nads));
            }
        }
        let lines = Lines::of(text);
        for finding in findings {
            let position = position(file, placed.place(key), text, &lines, &finding.place);
            let object = Some(format!("pod {}", pod.name));
            all.push(shown(&file.path, object, position, finding));
        }
    }
    all
}

/// Returns a finding for each key of `selection` that the selected network can't serve. If the
/// files contain networks, but not the selected network, the missing network is a finding.
fn of_network(text: &str, selection: &Selection, nads: &[&Nad]) -> Vec<Finding> {
    let Some(nad) = nads.iter().find(|nad| nad.name == selection.object) else {
        if nads.is_empty() {
            return Vec::new();
        }
        let what = format!("network {} is not in these files", selection.object);
        return vec![lint::of_item(selection, Level::Warning, what)];
    };
    if let Ok(json) = Json::parse(nad.config.as_bytes(), "spec.config")
        && let Ok(definition) = Definition::parse(json, &nad.name.name)
    {
        return lint::capabilities(text, selection, &definition);
    }
    // The network has a finding itself, or its configuration is a file of the node.
    Vec::new()
}

#[cfg(test)]
mod tests;
