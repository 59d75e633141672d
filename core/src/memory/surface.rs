//! Surfaces the operator sees: work on them should say what changed for the eye.

use crate::limits::{
    LIST_ITEMS_MAX, PATH_CHARS_MAX, PATH_ENDS_MAX, SURFACE_GLOB_CHARS_MAX, SURFACE_GLOBS_CHARS_MAX,
    SURFACE_GLOBS_MAX,
};
use crate::text::{clip, json_len};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

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

/// To read globs takes longer than most of what is asked of them: those of everybody are read once.
static DEFAULT_GLOBS: LazyLock<Arc<GlobSet>> = LazyLock::new(|| {
    let mut builder = GlobSetBuilder::new();
    for glob in DEFAULT.iter().filter_map(|pattern| glob(pattern)) {
        builder.add(glob);
    }
    Arc::new(builder.build().unwrap_or_else(|_| GlobSet::empty()))
});

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
    globs: Arc<GlobSet>,
    /// What is wrong with the list; what is right in it counts all the same.
    pub warnings: Vec<Warning>,
}

impl Surfaces {
    /// No list means the default one.
    pub fn of(patterns: &[String]) -> Self {
        if patterns.is_empty() {
            return Self {
                globs: DEFAULT_GLOBS.clone(),
                warnings: Vec::new(),
            };
        }
        let counted = how_many_count(patterns);
        let (mut builder, mut bad) = (GlobSetBuilder::new(), Vec::new());
        let mut add = |pattern: &str| match glob(pattern) {
            Some(glob) => drop(builder.add(glob)),
            None => bad.push(clip(pattern, NAMED_CHARS)),
        };
        patterns[..counted].iter().for_each(|pattern| add(pattern));
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
        if counted < patterns.len() {
            warnings.push(too_many_globs(patterns.len(), counted));
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
        Self {
            globs: Arc::new(globs),
            warnings,
        }
    }

    /// Whether the operator sees the effect of this file. Where a whole path is all there is, any
    /// end of it may be the project's name for the file. What is too long for a path is none.
    pub fn holds(&self, path: &str) -> bool {
        if is_too_long(path) {
            return false;
        }
        let path = path.trim_start_matches("./").replace('\\', "/");
        if !is_whole(&path) {
            return self.globs.is_match(&path);
        }
        path.rmatch_indices('/')
            .take(PATH_ENDS_MAX)
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
/// Characters that a warning shows of what is too long.
const NAMED_CHARS: usize = 100;

fn too_many_globs(given: usize, kept: usize) -> Warning {
    Warning {
        kind: "too_many_surface_globs".into(),
        paths: Vec::new(),
        remediation: format!(
            "`surfaces` of .prism/project.toml has {given} globs and the first {kept} count (at \
             most {SURFACE_GLOBS_MAX}, with {SURFACE_GLOBS_CHARS_MAX} characters together): join \
             some of them."
        ),
    }
}

/// How many globs from the beginning of a list are looked at. One that is too long for a glob
/// never is, so it takes no room.
fn how_many_count(patterns: &[String]) -> usize {
    let mut taken = 0;
    let over = patterns.iter().take(SURFACE_GLOBS_MAX).position(|pattern| {
        let chars = pattern.chars().take(SURFACE_GLOB_CHARS_MAX + 1).count();
        taken += if chars > SURFACE_GLOB_CHARS_MAX {
            0
        } else {
            chars
        };
        taken > SURFACE_GLOBS_CHARS_MAX
    });
    over.unwrap_or_else(|| patterns.len().min(SURFACE_GLOBS_MAX))
}

/// The first globs of a project's list: so many that they travel in so many bytes of JSON.
pub fn first_globs(mut globs: Vec<String>, bytes: usize) -> (Vec<String>, Option<Warning>) {
    let given = globs.len();
    globs.truncate(SURFACE_GLOBS_MAX);
    // One that is too long is passed over and said by whoever reads the list.
    for glob in &mut globs {
        if let Some((end, _)) = glob.char_indices().nth(SURFACE_GLOB_CHARS_MAX + 1) {
            glob.truncate(end);
        }
    }
    globs.truncate(how_many_fit(&globs, bytes));
    let warning = (globs.len() < given).then(|| too_many_globs(given, globs.len()));
    (globs, warning)
}

/// The files that a checkpoint names: so many, none with too long a path, all within so many bytes
/// of JSON. What is left out is said.
pub fn first_files(mut files: Vec<String>, bytes: usize) -> (Vec<String>, Option<Warning>) {
    let given = files.len();
    let mut too_long = Vec::new();
    files.retain(|path| {
        let keep = !is_too_long(path);
        if !keep && too_long.len() < PATHS_NAMED {
            too_long.push(clip(path, NAMED_CHARS));
        }
        keep
    });
    files.truncate(LIST_ITEMS_MAX);
    files.truncate(how_many_fit(&files, bytes));
    let warning = (files.len() < given).then(|| Warning {
        kind: "touched_files_cut".into(),
        paths: too_long,
        remediation: format!(
            "{} of {given} touched files are kept: a checkpoint names {LIST_ITEMS_MAX} at the \
             most, each with at most {PATH_CHARS_MAX} characters, as far as they fit into its \
             request. Name the ones that matter in touched_files.",
            files.len()
        ),
    });
    (files, warning)
}

fn how_many_fit(items: &[String], bytes: usize) -> usize {
    let mut taken = 0;
    let over = items.iter().position(|item| {
        // With quotes and a comma.
        taken += json_len(item) + 3;
        taken > bytes
    });
    over.unwrap_or(items.len())
}

fn is_too_long(path: &str) -> bool {
    path.chars().nth(PATH_CHARS_MAX).is_some()
}

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
        let long = format!("{}/**", "x".repeat(SURFACE_GLOB_CHARS_MAX - 3));
        let counted = SURFACE_GLOBS_CHARS_MAX / SURFACE_GLOB_CHARS_MAX;
        let mut long = vec![long; counted];
        assert!(Surfaces::of(&long).warnings.is_empty());
        long.push("late/**".into());
        let surfaces = Surfaces::of(&long);
        assert_eq!(surfaces.warnings[0].kind, "too_many_surface_globs");
        assert!(!surfaces.holds("late/x"));
    }

    #[test]
    fn a_long_path_is_no_surface_and_of_a_deep_one_the_last_ends_are_tried() {
        let surfaces = Surfaces::of(&own(&["ui/**/x", "**/y"]));
        let deep = |n: usize, end: &str| format!("/{}{end}", "a/".repeat(n));
        let last = PATH_ENDS_MAX - 2;
        assert!(surfaces.holds(&format!("/a/ui/{}x", "b/".repeat(last))));
        assert!(!surfaces.holds(&format!("/a/ui/{}x", "b/".repeat(last + 1))));
        let within = (PATH_CHARS_MAX - 2) / 2;
        assert!(surfaces.holds(&deep(within, "y")));
        assert!(!surfaces.holds(&deep(within + 1, "y")));
        assert!(!surfaces.holds(&deep(100_000, "y")));
    }

    #[test]
    fn what_of_a_list_travels_is_its_beginning_and_the_rest_is_said() {
        let globs: Vec<String> = (0..20_000).map(|n| format!("d{n}/**")).collect();
        let (kept, warning) = first_globs(globs.clone(), usize::MAX);
        assert_eq!(kept, globs[..SURFACE_GLOBS_MAX]);
        let warning = warning.unwrap();
        assert_eq!(warning.kind, "too_many_surface_globs");
        assert!(warning.remediation.contains("20000") && warning.remediation.contains("200"));
        assert_eq!(first_globs(globs[..9].to_vec(), 999).1, None);
        let long = vec!["x".repeat(3 * SURFACE_GLOB_CHARS_MAX)];
        assert_eq!(
            first_globs(long, usize::MAX).0[0].len(),
            SURFACE_GLOB_CHARS_MAX + 1
        );

        let files: Vec<String> = (0..501)
            .map(|n| format!("{n:03}/{}", "é".repeat(600)))
            .collect();
        let (kept, warning) = first_files(files.clone(), usize::MAX);
        assert_eq!((kept.len(), warning.unwrap().paths.len()), (500, 0));
        let (kept, _) = first_files(files, 10_000);
        assert!(serde_json::to_string(&kept).unwrap().len() <= 10_001);
        assert_eq!(kept.len(), 8);
        let (kept, warning) = first_files(vec!["a".into(), "x".repeat(PATH_CHARS_MAX + 1)], 99);
        let warning = warning.unwrap();
        assert_eq!(
            (kept, warning.kind.as_str()),
            (own(&["a"]), "touched_files_cut")
        );
        assert_eq!(warning.paths[0].chars().count(), NAMED_CHARS);
        assert!(warning.remediation.contains("1 of 2") && warning.remediation.contains("1024"));
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
