//! JSON Patch as the API server applies it.

use serde_json::Value;

/// Applies a patch; `None` if a test fails or a place is missing. Then nothing is changed.
pub(super) fn apply(object: &Value, patch: &Value) -> Option<Value> {
    let mut object = object.clone();
    for operation in patch.as_array()? {
        let path = operation["path"].as_str()?;
        let value = &operation["value"];
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect();
        let (last, parents) = parts.split_last()?;
        let mut parent = &mut object;
        for part in parents {
            parent = parent.get_mut(part)?;
        }
        let parent = parent.as_object_mut()?;
        match operation["op"].as_str()? {
            "test" => {
                let found = parent.get(last).unwrap_or(&Value::Null);
                (found == value).then_some(())?;
            }
            "add" => {
                parent.insert(last.clone(), value.clone());
            }
            "remove" => {
                parent.remove(last)?;
            }
            _ => return None,
        }
    }
    Some(object)
}
