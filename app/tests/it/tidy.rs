//! What the compiler does not check: the map is true, nothing is forgotten.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in ["core/src", "app/src", "app/tests"] {
        sources(&root().join(dir), &mut found);
    }
    found
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    for file in all_sources() {
        assert!(
            fs::read_to_string(&file).unwrap().starts_with("//! "),
            "{}",
            file.display()
        );
    }
}

#[test]
fn files_stay_small_and_no_drawer_is_opened() {
    for file in all_sources() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= 1_200,
            "{} has {lines} lines; look for a seam",
            file.display()
        );
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            ![
                "util", "utils", "common", "helpers", "misc", "manager", "service"
            ]
            .contains(&name.as_str()),
            "{name} is a drawer"
        );
    }
}

#[test]
fn no_test_file_is_forgotten() {
    let main = fs::read_to_string(root().join("app/tests/it/main.rs")).unwrap();
    for entry in fs::read_dir(root().join("app/tests/it")).unwrap().flatten() {
        let name = entry
            .path()
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert!(
            ["main", "snapshots"].contains(&name.as_str())
                || main.contains(&format!("mod {name};")),
            "{name} is not in main.rs"
        );
    }
}

#[test]
fn the_map_names_what_exists_and_all_of_it() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for word in map
        .split('`')
        .filter(|w| w.ends_with(".rs") || w.ends_with(".sql"))
    {
        assert!(
            root().join(word).exists(),
            "ARCHITECTURE.md names {word}, which is not there"
        );
    }
    for dir in ["core/src", "app/src"] {
        for entry in fs::read_dir(root().join(dir))
            .unwrap()
            .flatten()
            .filter(|e| e.path().is_file())
        {
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            assert!(map.contains(&path), "ARCHITECTURE.md does not name {path}");
        }
    }
}

#[test]
fn the_readme_lists_every_verb_for_agents() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for verb in prism::verb::VERBS
        .iter()
        .filter(|v| v.is(prism::verb::Is::Tool))
    {
        assert!(
            readme.contains(verb.name),
            "{} is not in the README's table",
            verb.name
        );
    }
}
