//! The licences of what an executable is linked from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde_json::Value;

const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Writes those of every crate that `package` depends on, one folder for each. Which licence a
/// crate declares is written even where it brings no text.
pub fn collect(metadata: &Value, package: &str, out: &Path) -> Result<()> {
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    for id in linked(metadata, package)? {
        let package = packages.get(id).with_context(|| format!("cargo says nothing of {id}"))?;
        // Those of the workspace are under its own licences.
        if package["source"].is_null() {
            continue;
        }
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        let folder = out.join(format!("{}-{}", text("name"), text("version")));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("DECLARED"), format!("{}\n{}\n", text("license"), text("repository")))?;
        let root = Path::new(text("manifest_path")).parent().context("a manifest lies in a folder")?;
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_uppercase();
            if NAMES.iter().any(|prefix| name.starts_with(prefix)) && entry.file_type()?.is_file() {
                fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

/// The ids of all packages that end up in the executable of one, itself included.
fn linked<'a>(metadata: &'a Value, package: &str) -> Result<BTreeSet<&'a str>> {
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = list(&metadata["packages"])
        .find(|candidate| candidate["name"] == package)
        .and_then(|package| package["id"].as_str())
        .with_context(|| format!("the workspace has no package {package}"))?;
    let (mut found, mut ahead) = (BTreeSet::new(), vec![root]);
    while let Some(id) = ahead.pop() {
        if found.insert(id) {
            let dependencies = nodes.get(id).into_iter().flat_map(|node| list(&node["deps"]));
            let linked = dependencies
                .filter(|dependency| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()));
            ahead.extend(linked.filter_map(|dependency| dependency["pkg"].as_str()));
        }
    }
    Ok(found)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_only_builds_or_tests_is_not_linked() {
        let to = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [{ "name": "a", "id": "a 1" }, { "name": "b", "id": "b 1" }],
            "resolve": { "nodes": [
                { "id": "a 1", "deps": [to("b 1", Value::Null), to("test 1", json!("dev"))] },
                { "id": "b 1", "deps": [to("c 1", Value::Null), to("build 1", json!("build"))] },
            ]},
        });
        let linked = linked(&metadata, "a").expect("a is there");
        assert_eq!(linked.into_iter().collect::<Vec<_>>(), ["a 1", "b 1", "c 1"]);
        assert!(super::linked(&metadata, "z").is_err());
    }
}
