//! Where each leg alone would place the rows: what an answer tells of itself.

use super::Candidate;

/// Each row's place in each leg.
#[derive(Clone, Debug, Default)]
pub struct Places {
    lexical: Vec<Option<usize>>,
    vector: Vec<Option<usize>>,
    near: Vec<f64>,
    graph: Vec<bool>,
}

pub(super) fn places(rows: &[Candidate]) -> Places {
    let place = |scores: Vec<Option<f64>>| {
        let mut order: Vec<(usize, f64)> = scores
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some((i, (*s)?)))
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut places = vec![None; scores.len()];
        for (rank, (i, _)) in order.into_iter().enumerate() {
            places[i] = Some(rank + 1);
        }
        places
    };
    Places {
        lexical: place(
            rows.iter()
                .map(|r| (!r.matches.is_empty()).then(|| r.matches.iter().map(|(_, w)| w).sum()))
                .collect(),
        ),
        vector: place(rows.iter().map(|r| r.near.map(|n| n.field)).collect()),
        near: rows
            .iter()
            .map(|r| r.near.map_or(0.0, |n| n.field))
            .collect(),
        graph: rows.iter().map(|r| r.mentions).collect(),
    }
}

impl Places {
    pub fn lexical(&self, i: usize) -> Option<usize> {
        self.lexical[i]
    }

    pub fn vector(&self, i: usize) -> Option<usize> {
        self.vector[i]
    }

    pub(super) fn why(&self, i: usize) -> Vec<String> {
        let mut why = Vec::new();
        why.extend(self.lexical[i].map(|rank| format!("lexical #{rank}")));
        why.extend(self.vector[i].map(|rank| format!("vector #{rank} ({:.2})", self.near[i])));
        if self.graph[i] {
            why.push("graph: mentions what was named".into());
        }
        why
    }
}
