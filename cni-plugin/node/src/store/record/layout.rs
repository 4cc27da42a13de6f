//! Layouts of a record: the newest, which is written, and those before, which are read.

use super::{Attached, Key, Owed, Record};
use braid_core::cni::Json;
use braid_core::name::IfName;
use braid_core::plan::step::Step;
use serde::Deserialize;
use std::path::PathBuf;
use std::rc::Rc;

/// The layout that is written. Layouts 1 and 2 held one attachment; their steps [`Step`] reads by
/// itself.
pub(super) const NEWEST: u32 = 3;

/// A record of any layout.
#[derive(Deserialize)]
pub(super) struct Any {
    layout: u32,
    key: Key,
    netns: Option<PathBuf>,
    #[serde(default)]
    netns_cookie: Option<u64>,
    path: Vec<PathBuf>,
    #[serde(default)]
    attachments: Vec<Attached>,
    #[serde(default)]
    owed: Option<Owed>,
    #[serde(default)]
    is_foreign: bool,
    #[serde(default)]
    boot: Option<String>,
    /// Up to layout 2, as the rest.
    #[serde(default)]
    args: String,
    #[serde(default)]
    conf: Option<Rc<Json>>,
    #[serde(default)]
    parts: Vec<Vec<Step>>,
    #[serde(default)]
    left: Option<Vec<usize>>,
}

impl From<Any> for Record {
    /// An unknown layout stays, for the reader to refuse.
    fn from(any: Any) -> Self {
        let Any {
            layout,
            key,
            netns,
            netns_cookie,
            path,
            mut attachments,
            owed,
            is_foreign,
            boot,
            args,
            conf,
            parts,
            left,
        } = any;
        if let (1 | 2, Some(conf), Ok(ifname)) = (layout, conf, IfName::parse(&key.owner.ifname)) {
            let (network, plugin) = (key.owner.network.clone(), key.plugin.clone());
            attachments = vec![Attached {
                network,
                ifname,
                plugin,
                object: None,
                args,
                conf,
                parts,
                result: None,
                claim: None,
                device_file: None,
                left,
            }];
        }
        let layout = if (1..NEWEST).contains(&layout) {
            NEWEST
        } else {
            layout
        };
        Self {
            layout,
            key,
            netns,
            netns_cookie,
            path,
            attachments,
            owed,
            is_foreign,
            boot,
        }
    }
}

impl Record {
    /// True if this build knows the layout.
    pub(super) fn is_known(&self) -> bool {
        self.layout == NEWEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::step::render;
    use braid_core::plan::undo::undo;

    #[test]
    fn a_record_of_the_first_layout_is_read_and_undone() {
        let record: Record = serde_json::from_str(include_str!("layout_1.json")).expect("a record");
        let [attached] = &record.attachments[..] else {
            panic!("one attachment: {record:?}")
        };
        assert_eq!(
            attached.parts.iter().map(Vec::len).collect::<Vec<_>>(),
            [17, 7, 3, 1, 2]
        );
        let steps: Vec<Step> = record.steps().cloned().collect();
        let undone = render(&undo(&steps));
        let of = |command: &str| undone.lines().filter(|line| line.contains(command)).count();
        assert_eq!(
            (
                of("ip link del"),
                of("nft delete element"),
                undone.lines().count()
            ),
            (2, 7, 9),
            "{undone}"
        );
    }

    #[test]
    fn a_record_of_the_second_layout_is_what_the_newest_says_of_one_attachment() {
        let key = r#"{"network":"n","plugin":"bridge","container_id":"c","ifname":"eth0"}"#;
        let own = r#""args":"a=b","conf":{"type":"bridge"},"parts":[[{"Wait":{"Dad":{"ns":"pod","name":"eth0"}}}]]"#;
        let second = format!(
            r#"{{"layout":2,"key":{key},"netns":"/n","netns_cookie":7,"path":["/p"],{own},"left":[0]}}"#
        );
        let newest = format!(
            r#"{{"layout":3,"key":{key},"netns":"/n","netns_cookie":7,"path":["/p"],"attachments":[
            {{"network":"n","ifname":"eth0","plugin":"bridge",{own},"left":[0]}}]}}"#
        );
        let [second, newest]: [Record; 2] =
            [second, newest].map(|text| serde_json::from_str(&text).expect("a record"));
        assert_eq!(second, newest);
        assert_eq!(
            newest,
            serde_json::from_str(&serde_json::to_string(&newest).expect("json")).expect("a record")
        );
    }
}
