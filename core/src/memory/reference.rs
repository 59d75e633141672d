//! What a row points at, as people write it: `delta:2901d7ce`, `spec:SPEC-060`.

use super::entity::Entity;
use crate::Problem;
use crate::id::Quoted;
use crate::signal::names;

names! {
    RefKind { Delta = "delta", Signal = "signal", Spec = "spec", Commit = "commit" }
}

/// A reference before it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Delta(Quoted),
    Signal(Quoted),
    /// Free: a spec may live outside Prism.
    Spec(String),
    /// Free: Prism does not read repositories.
    Commit(String),
}

impl Reference {
    pub fn parse(field: &str, text: &str) -> Result<Self, Problem> {
        let wrong = || {
            Problem::field(
                field,
                format!(
                    "{:?} is not a reference: write delta:<id>, signal:<id>, spec:<name> or commit:<sha>",
                    crate::text::clip(text, 60)
                ),
            )
        };
        let (kind, rest) = text.trim().split_once(':').ok_or_else(wrong)?;
        let rest = rest.trim();
        if rest.is_empty() || rest.chars().count() > 200 {
            return Err(wrong());
        }
        match RefKind::from_name(&kind.trim().to_ascii_lowercase()) {
            Some(RefKind::Delta) => Quoted::parse(field, rest).map(Self::Delta),
            Some(RefKind::Signal) => Quoted::parse(field, rest).map(Self::Signal),
            Some(RefKind::Spec) => Ok(Self::Spec(rest.to_owned())),
            Some(RefKind::Commit) => Ok(Self::Commit(rest.to_ascii_lowercase())),
            None => Err(wrong()),
        }
    }

    /// A piece or a superseded row: a reference, or a bare id of a delta.
    pub fn parse_loose(field: &str, text: &str) -> Result<Self, Problem> {
        if text.contains(':') {
            Self::parse(field, text)
        } else {
            Quoted::parse(field, text).map(Self::Delta)
        }
    }

    /// The thing it names, where that is known by its name and not by an id.
    pub fn entity(&self) -> Option<Entity> {
        match self {
            Self::Spec(name) => Some(Entity::spec(name)),
            Self::Commit(sha) => Some(Entity::commit(sha)),
            Self::Delta(_) | Self::Signal(_) => None,
        }
    }

    /// The other way people write it, so that words find it either way.
    pub fn also_written(&self) -> String {
        match self.entity() {
            Some(entity) => format!("{} {}", entity.kind, entity.name),
            None => String::new(),
        }
    }

    pub const fn kind(&self) -> RefKind {
        match self {
            Self::Delta(_) => RefKind::Delta,
            Self::Signal(_) => RefKind::Signal,
            Self::Spec(_) => RefKind::Spec,
            Self::Commit(_) => RefKind::Commit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_its_kind_and_an_id_may_be_a_prefix() {
        assert_eq!(
            Reference::parse("r", "delta:2901d7ce").unwrap().kind(),
            RefKind::Delta
        );
        assert_eq!(
            Reference::parse("r", "spec:SPEC-060").unwrap(),
            Reference::Spec("SPEC-060".into())
        );
        assert_eq!(
            Reference::parse("r", "Commit: ABC123").unwrap(),
            Reference::Commit("abc123".into())
        );
        for bad in ["2901d7ce", "delta:", "delta:xyz", "delta:123", "file:x", ""] {
            assert!(Reference::parse("r", bad).is_err(), "{bad}");
        }
        assert_eq!(
            Reference::parse_loose("r", "2901d7ce").unwrap().kind(),
            RefKind::Delta
        );
    }
}
