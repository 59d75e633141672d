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
            lines <= 1_250,
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

/// The cells of every row of the README's tables, without their backticks' surroundings.
fn readme_rows() -> Vec<Vec<String>> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let rows = readme.lines().filter(|l| l.starts_with("| "));
    rows.map(|l| {
        l.trim_matches('|')
            .split(" | ")
            .map(str::to_owned)
            .collect()
    })
    .collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_readme_names_every_verb_for_agents_with_its_commands_and_no_other() {
    use prism::verb::{Is, VERBS};
    let rows = readme_rows();
    let told: Vec<(&str, Vec<String>)> = rows
        .iter()
        .filter(|r| r.len() == 3)
        .filter_map(|r| Some((*quoted(&r[0]).first()?, r)))
        .filter(|(verb, _)| verb.starts_with("prism_") || *verb == "semantic_recall")
        .map(|(verb, r)| {
            let commands = quoted(&r[1]).into_iter().map(str::to_owned).collect();
            (verb, commands)
        })
        .collect();
    for verb in VERBS.iter().filter(|v| v.is(Is::Tool)) {
        let door = prism::cli::DOORS
            .iter()
            .find(|(name, _)| *name == verb.name);
        let commands = door.map(|(_, commands)| *commands).unwrap_or_default();
        let commands: Vec<String> = commands.iter().map(|c| format!("prism {c}")).collect();
        assert!(
            told.contains(&(verb.name, commands.clone())),
            "the README's table does not say `{}` | {commands:?}",
            verb.name
        );
    }
    for (verb, _) in told {
        assert!(
            VERBS.iter().any(|v| v.name == verb && v.is(Is::Tool)),
            "the README names {verb}, which agents do not have"
        );
    }
}

#[test]
fn the_readme_names_every_command() {
    let rows = readme_rows();
    let told: Vec<&str> = rows.iter().flatten().flat_map(|c| quoted(c)).collect();
    for command in prism::cli::commands() {
        let told = told
            .iter()
            .filter_map(|t| t.strip_prefix("prism "))
            .any(|t| t.split(' ').next() == Some(&command));
        assert!(told, "the README's tables do not name `prism {command}`");
    }
}
