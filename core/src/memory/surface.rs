//! Surfaces the operator sees: work on them should say what changed for the eye.

use crate::Problem;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
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

/// Warns about visible surfaces that were touched without a word on what the operator sees.
pub fn missing_effect(
    touched: &[String],
    effect: Option<&str>,
    surfaces: &[String],
) -> Result<Option<Warning>, Problem> {
    if effect.is_some_and(|e| !e.trim().is_empty()) {
        return Ok(None);
    }
    let globs = globs(surfaces)?;
    let paths: Vec<String> = touched
        .iter()
        .filter(|path| globs.is_match(path.trim_start_matches("./")))
        .take(20)
        .cloned()
        .collect();
    if paths.is_empty() {
        return Ok(None);
    }
    Ok(Some(Warning {
        kind: "missing_operator_visible_effect".into(),
        paths,
        remediation: "Say in operator_visible_effect what the operator sees now that they did not see before, in their words; checkpoint again with it.".into(),
    }))
}

fn globs(surfaces: &[String]) -> Result<GlobSet, Problem> {
    let mut builder = GlobSetBuilder::new();
    let defaults: Vec<String> = DEFAULT.iter().map(|s| (*s).to_owned()).collect();
    for pattern in if surfaces.is_empty() {
        &defaults
    } else {
        surfaces
    } {
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|e| Problem::field("surfaces", format!("{pattern:?} is not a glob: {e}")))?;
        builder.add(glob);
    }
    builder.build().map_err(|e| Problem::field("surfaces", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(paths: &[&str], effect: Option<&str>, surfaces: &[&str]) -> Vec<String> {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        missing_effect(&own(paths), effect, &own(surfaces))
            .unwrap()
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
    fn a_project_may_name_its_own_surfaces_and_a_bad_glob_is_said() {
        assert_eq!(
            warned(&["ui/x.rs", "bin/coder.sh"], None, &["ui/**"]),
            ["ui/x.rs"]
        );
        assert!(missing_effect(&["a".into()], None, &["{".into()]).is_err());
    }
}
