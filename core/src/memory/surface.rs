//! Surfaces the operator sees: work on them should say what changed for the eye.

use crate::limits::{SURFACE_GLOB_CHARS_MAX, SURFACE_GLOBS_MAX};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The paths watched unless a project says otherwise.
pub const DEFAULT: [&str; 8] = [
    "bin/coder.{sh,ps1}",
    "**/statusline*",
    "cli/src/{statusline,index}.ts",
    "mcp-node/src/{strategies,surfaces}/**",
    "mcp-node/src/bootstrap/channel_bridge.ts",
    "mcp-node/src/signalCache.ts",
    "dashboard/**",
    "**/*.{tsx,css,html}",
];

/// Something worth a second look; never a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    pub kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    pub remediation: String,
}

/// A project's visible surfaces, read once.
pub struct Surfaces {
    globs: GlobSet,
    /// What is wrong with the list; what is right in it counts all the same.
    pub warnings: Vec<Warning>,
}

impl Surfaces {
    /// No list means the default one.
    pub fn of(patterns: &[String]) -> Self {
        let (mut builder, mut bad) = (GlobSetBuilder::new(), Vec::new());
        let mut add = |pattern: &str| match glob(pattern) {
            Some(glob) => drop(builder.add(glob)),
            None => bad.push(crate::text::clip(pattern, 100)),
        };
        if patterns.is_empty() {
            DEFAULT.iter().for_each(|pattern| add(pattern));
        } else {
            patterns
                .iter()
                .take(SURFACE_GLOBS_MAX)
                .for_each(|pattern| add(pattern));
        }
        let mut warnings = Vec::new();
        if !bad.is_empty() {
            warnings.push(Warning {
                kind: "bad_surface_glob".into(),
                paths: bad,
                remediation: "These are no globs and were passed over: mend them in `surfaces` of \
                              .prism/project.toml."
                    .into(),
            });
        }
        if patterns.len() > SURFACE_GLOBS_MAX {
            warnings.push(Warning {
                kind: "too_many_surface_globs".into(),
                paths: Vec::new(),
                remediation: format!(
                    "`surfaces` of .prism/project.toml has {} globs and the first \
                     {SURFACE_GLOBS_MAX} count: join some of them.",
                    patterns.len()
                ),
            });
        }
        let globs = builder.build().unwrap_or_else(|_| {
            warnings.push(Warning {
                kind: "bad_surface_glob".into(),
                paths: Vec::new(),
                remediation: "The globs in `surfaces` of .prism/project.toml are too large \
                              together, so none counts: shorten them."
                    .into(),
            });
            GlobSet::empty()
        });
        Self { globs, warnings }
    }

    /// Whether the operator sees the effect of this file. Where a whole path is all there is, any
    /// end of it may be the project's name for the file.
    pub fn holds(&self, path: &str) -> bool {
        let path = path.trim_start_matches("./").replace('\\', "/");
        if !is_whole(&path) {
            return self.globs.is_match(&path);
        }
        path.match_indices('/')
            .any(|(at, _)| self.globs.is_match(&path[at + 1..]))
    }

    /// Warns about visible surfaces that were touched without a word on what the operator sees.
    pub fn missing_effect(&self, touched: &[String], effect: Option<&str>) -> Option<Warning> {
        if effect.is_some_and(|e| !e.trim().is_empty()) {
            return None;
        }
        let seen = touched.iter().filter(|path| self.holds(path));
        let paths: Vec<String> = seen.take(PATHS_NAMED).cloned().collect();
        (!paths.is_empty()).then(|| Warning {
            kind: "missing_operator_visible_effect".into(),
            paths,
            remediation: "Say in operator_visible_effect what the operator sees now that they did \
                          not see before, in their words; checkpoint again with it."
                .into(),
        })
    }
}

/// Paths that one warning names.
const PATHS_NAMED: usize = 20;

fn glob(pattern: &str) -> Option<Glob> {
    if pattern.chars().count() > SURFACE_GLOB_CHARS_MAX {
        return None;
    }
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .ok()
}

/// Whether a path begins at the root of its disk.
pub fn is_whole(path: &str) -> bool {
    path.starts_with(['/', '\\']) || path.get(1..3).is_some_and(|p| p == ":\\" || p == ":/")
}

/// A file as the project names it: relative to the folder that holds the project. What lies
/// elsewhere keeps its whole path.
pub fn relative_to(root: &str, path: &str) -> String {
    let inside = path
        .strip_prefix(root.trim_end_matches(['/', '\\']))
        .and_then(|rest| rest.strip_prefix(['/', '\\']));
    inside.unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    fn warned(paths: &[&str], effect: Option<&str>, surfaces: &[&str]) -> Vec<String> {
        Surfaces::of(&own(surfaces))
            .missing_effect(&own(paths), effect)
            .map(|w| w.paths)
            .unwrap_or_default()
    }

    #[test]
    fn watched_surfaces_without_an_effect_are_named() {
        for path in [
            "bin/coder.sh",
            "bin/coder.ps1",
            "bin/statusline-claude-code.sh",
            "cli/src/index.ts",
            "mcp-node/src/strategies/a/b.ts",
            "dashboard/web/x.rs",
            "src/App.tsx",
            "./deep/x.css",
        ] {
            assert_eq!(warned(&[path], None, &[]), [path], "{path}");
            assert!(warned(&[path], Some("the bell stays"), &[]).is_empty());
            assert_eq!(warned(&[path], Some("  "), &[]), [path]);
        }
        for path in [
            "backend/app.rs",
            "bin/coder.py",
            "cli/src/other.ts",
            "docs/x.md",
        ] {
            assert!(warned(&[path], None, &[]).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_project_may_name_its_own_surfaces_and_a_bad_glob_is_said_and_passed_over() {
        assert_eq!(
            warned(&["ui/x.rs", "bin/coder.sh"], None, &["ui/**", "{"]),
            ["ui/x.rs"]
        );
        let long = "x".repeat(SURFACE_GLOB_CHARS_MAX + 1);
        let surfaces = Surfaces::of(&own(&["ui/**", "{", &long]));
        assert_eq!(surfaces.warnings.len(), 1);
        assert_eq!(surfaces.warnings[0].kind, "bad_surface_glob");
        assert_eq!(surfaces.warnings[0].paths[0], "{");
        assert_eq!(surfaces.warnings[0].paths.len(), 2);
    }

    #[test]
    fn the_first_globs_of_too_long_a_list_count_and_the_rest_is_said() {
        let mut many: Vec<String> = (0..SURFACE_GLOBS_MAX).map(|n| format!("d{n}/**")).collect();
        assert!(Surfaces::of(&many).warnings.is_empty());
        many.push("late/**".into());
        let surfaces = Surfaces::of(&many);
        assert_eq!(surfaces.warnings[0].kind, "too_many_surface_globs");
        assert!(surfaces.warnings[0].remediation.contains("201"));
        assert!(surfaces.holds("d199/x") && !surfaces.holds("late/x"));
    }

    #[test]
    fn a_file_is_named_from_the_root_of_its_project() {
        for (root, path, named) in [
            ("/r", "/r/bin/coder.sh", "bin/coder.sh"),
            ("/r/", "/r/bin/coder.sh", "bin/coder.sh"),
            ("/r", "/rest/bin/coder.sh", "/rest/bin/coder.sh"),
            ("/r", "bin/coder.sh", "bin/coder.sh"),
            ("C:\\r", "C:\\r\\a.css", "a.css"),
        ] {
            assert_eq!(relative_to(root, path), named);
        }
        assert!(is_whole("/a") && is_whole("C:\\a") && !is_whole("a/b") && !is_whole("./a"));
        assert_eq!(
            warned(&["/home/x/repo/bin/coder.sh", "/home/x/bin"], None, &[]),
            ["/home/x/repo/bin/coder.sh"]
        );
    }
}
