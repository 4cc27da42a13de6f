//! Record layouts: the newest, which is written, and earlier ones, which are only read.

use super::{Attached, Key, Owed, Record};
use braid_core::cni::Json;
use braid_core::name::IfName;
use braid_core::plan::step::Step;
use serde::Deserialize;
use std::path::PathBuf;
use std::rc::Rc;

/// The layout that is written. Layouts 1 and 2 have one attachment. [`Step`] parses their steps.
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
    /// Fields of layouts 1 and 2, from here on.
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
    /// Keeps an unknown layout, which the reader refuses.
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
    /// True if this build supports the layout.
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
    fn layout_1_record_is_read_and_undone() {
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
        let count = |command: &str| undone.lines().filter(|line| line.contains(command)).count();
        assert_eq!(
            (
                count("ip link del"),
                count("nft delete element"),
                undone.lines().count()
            ),
            (2, 7, 9),
            "{undone}"
        );
    }

    #[test]
    fn layout_2_record_equals_a_newest_record_with_one_attachment() {
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
