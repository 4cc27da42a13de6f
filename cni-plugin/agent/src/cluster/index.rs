//! All nodes by name, updated by the watch.

use super::node::{Node, NodeObject};
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Nodes of the cluster, as far as they are known.
#[derive(Debug, Default)]
pub struct Index {
    nodes: BTreeMap<String, Node>,
    /// Nodes of a list that is still arriving. They replace the others at its end.
    arriving: Option<BTreeMap<String, Node>>,
    is_complete: bool,
}

impl Index {
    /// Updates the nodes. Returns true if one differs in a field that the agent uses.
    pub fn update(&mut self, event: &Event<NodeObject>) -> bool {
        match event {
            Event::Init => {
                self.reset();
                false
            }
            Event::InitApply(object) => {
                self.collect(object);
                false
            }
            Event::InitDone => self.finish(),
            Event::Apply(object) => self.apply(object),
            Event::Delete(object) => self.delete(object),
        }
    }

    /// Begins a new list.
    pub fn reset(&mut self) {
        self.arriving = Some(BTreeMap::new());
    }

    /// Adds a node of the list begun by [`Index::reset`].
    pub fn collect(&mut self, object: &NodeObject) {
        if let Some(node) = Node::of(object) {
            let arriving = self.arriving.get_or_insert_default();
            arriving.insert(node.name.clone(), node);
        }
    }

    /// Ends the list. Returns true if a node differs.
    pub fn finish(&mut self) -> bool {
        let arriving = self.arriving.take().unwrap_or_default();
        let is_changed = !self.is_complete || arriving != self.nodes;
        self.nodes = arriving;
        self.is_complete = true;
        is_changed
    }

    /// Adds or replaces a node. Returns true if it differs in a field that the agent uses.
    pub fn apply(&mut self, object: &NodeObject) -> bool {
        let Some(node) = Node::of(object) else {
            return false;
        };
        match self.nodes.entry(node.name.clone()) {
            Entry::Occupied(known) if *known.get() == node => false,
            Entry::Occupied(mut known) => {
                known.insert(node);
                true
            }
            Entry::Vacant(unknown) => {
                unknown.insert(node);
                true
            }
        }
    }

    /// Removes a node. Returns true if it was known.
    pub fn delete(&mut self, object: &NodeObject) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.nodes.remove(name).is_some()
    }

    /// True after the first complete list.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns a node by name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, range: &str) -> NodeObject {
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name},
            "spec": {"podCIDRs": [range]},
        }))
        .expect("an object")
    }

    fn names(index: &Index) -> Vec<&str> {
        index.nodes().map(|node| node.name.as_str()).collect()
    }

    #[test]
    fn a_new_list_replaces_the_nodes_only_at_its_end() {
        let mut index = Index::default();
        index.reset();
        index.collect(&object("a", "10.0.1.0/24"));
        index.collect(&object("b", "10.0.2.0/24"));
        assert!(!index.is_complete() && names(&index).is_empty());
        assert!(index.finish() && index.is_complete());
        index.reset();
        index.collect(&object("b", "10.0.2.0/24"));
        assert_eq!(names(&index), ["a", "b"]);
        assert!(index.finish());
        assert_eq!(names(&index), ["b"]);
    }

    #[test]
    fn an_empty_first_list_is_a_change_and_an_equal_second_list_is_not() {
        let mut index = Index::default();
        index.reset();
        assert!(index.finish());
        index.reset();
        assert!(!index.finish());
    }

    #[test]
    fn only_changed_fields_count_as_a_change() {
        let mut index = Index::default();
        assert!(index.apply(&object("a", "10.0.1.0/24")));
        assert!(!index.apply(&object("a", "10.0.1.0/24")));
        assert!(index.apply(&object("a", "10.0.7.0/24")));
        assert!(index.delete(&object("a", "10.0.7.0/24")));
        assert!(!index.delete(&object("a", "10.0.7.0/24")));
    }
}
