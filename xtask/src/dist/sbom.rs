//! What the distributed programs are made of: a bill of materials in CycloneDX's JSON, from what
//! cargo says. Format: <https://cyclonedx.org/docs/1.5/json/>.
//!
//! It has what is compiled into the programs or runs while they are built, with licences and the
//! checksums of the lock file; not what only tests use. It has no date, so that it is the same
//! whenever it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::build::root;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev`, `build`, or nothing for what is compiled in.
    kind: Option<String>,
}

/// Writes it for these packages of the workspace.
///
/// # Errors
///
/// Cargo cannot be run, says something else than expected, or the file cannot be written.
pub(super) fn write(path: &Path, programs: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["metadata", "--format-version", "1", "--locked"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-musl"]);
    let output = cargo.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock: {error}"))?;
    let bill = bill(&metadata, &checksums(&lock), programs)?;
    std::fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| std::fs::write(path, format!("{bill:#}\n")))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let start = format!("{key} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    let entry = |block: &str| {
        Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

/// By which name another tool knows a package.
fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn component(package: &Package, sums: &BTreeMap<(String, String), String>, kind: &str) -> Value {
    let mut component = json!({
        "type": kind, "bom-ref": purl(package), "name": package.name, "version": package.version,
        "purl": purl(package),
    });
    if let Some(license) = &package.license {
        // The older way of writing a choice, which SPDX does not have.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(sum) = sums.get(&(package.name.clone(), package.version.clone())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if package.source.is_some() {
        let place = format!("https://crates.io/crates/{}/{}", package.name, package.version);
        component["externalReferences"] = json!([{ "type": "distribution", "url": place }]);
    }
    component
}

/// The bill of materials for these packages.
fn bill(
    metadata: &Metadata,
    sums: &BTreeMap<(String, String), String>,
    programs: &[&str],
) -> Result<Value, String> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut open = Vec::new();
    for program in programs {
        let own = |package: &&Package| package.name == *program && package.source.is_none();
        let package = metadata.packages.iter().find(own);
        open.push(package.ok_or(format!("there is no package {program}"))?.id.as_str());
    }
    let (mut seen, mut dependencies) = (BTreeSet::new(), Vec::new());
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.get(id).ok_or(format!("cargo says nothing of {id}"))?;
        let is_in = |dependency: &&Dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
        };
        let on: Vec<&str> =
            node.deps.iter().filter(is_in).map(|dependency| dependency.pkg.as_str()).collect();
        let names: BTreeSet<String> =
            on.iter().filter_map(|id| packages.get(id)).map(|package| purl(package)).collect();
        dependencies.push(json!({ "ref": purl(packages[id]), "dependsOn": names }));
        open.extend(on);
    }
    dependencies.sort_by_key(|one| one["ref"].as_str().unwrap_or_default().to_owned());
    let is_program = |id: &&&str| programs.contains(&packages[**id].name.as_str());
    let (mut main, parts): (Vec<&&str>, Vec<&&str>) = seen.iter().partition(is_program);
    // The first that is named is what the bill is of.
    main.sort_by_key(|id| programs.iter().position(|name| *name == packages[**id].name));
    let first = main.first().ok_or("there are no programs")?;
    let components: Vec<Value> = main[1..]
        .iter()
        .map(|id| component(packages[**id], sums, "application"))
        .chain(parts.iter().map(|id| component(packages[**id], sums, "library")))
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": component(packages[**first], sums, "application") },
        "components": components, "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_listed_and_what_tests_use_is_not() {
        let package = |name: &str, source: Option<&str>| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source});
        let metadata = json!({
            "packages": [package("own", None), package("first", None), package("used", Some("r")), package("built", Some("r")),
                package("tested", Some("r"))],
            "resolve": {"nodes": [
                {"id": "own", "deps": [{"pkg": "used", "dep_kinds": [{"kind": null}]},
                    {"pkg": "tested", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "used", "deps": [{"pkg": "built", "dep_kinds": [{"kind": "build"}]}]},
                {"id": "built", "deps": []}, {"id": "tested", "deps": []}, {"id": "first", "deps": []},
            ]},
        });
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"ab12\"\n";
        let bill = bill(&metadata, &checksums(lock), &["own"]).unwrap();
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|component| component["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["built", "used"]);
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/own@1.0.0");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "ab12");
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["dependencies"][1]["dependsOn"], json!(["pkg:cargo/used@1.0.0"]));
        assert!(super::bill(&metadata, &BTreeMap::new(), &["lost"]).is_err());
        let bill = super::bill(&metadata, &BTreeMap::new(), &["own", "first"]).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], "own", "and not the first by its name");
        assert_eq!(bill["components"][0]["type"], "application");
    }
}
