//! Exact words: a question that repeats the distinctive words of one row, among rows of nearly the
//! same text, asked of Prism and of plain FTS5.

use super::super::memory::{Generator, fill_with};
use super::super::{PID, Report, p50_p99};
use super::plain::Words;
use super::{K, Server, ms, server, synthetic};
use crate::home::Home;
use anyhow::Result;
use prism_core::api::memory::Recalled;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

const QUESTIONS: usize = 100;

/// What rows are told of. Each of these stands in many rows; together they mean one.
const SERVICES: &str = "billing checkout ledger catalog search mailer gateway scheduler importer exporter thumbnailer invoicing payroll inventory shipping pricing sessions webhook audit backup replication analytics dashboard onboarding";
const PLACES: &str = "Frankfurt Dublin Oregon Mumbai Sydney Tokyo Montreal Ohio Stockholm Warsaw Lisbon Nairobi Santiago Osaka Jakarta Zurich Milan Denver Atlanta Toronto";
const PARTS: &str = "cache queue lock index pool socket cursor lease buffer shard replica journal snapshot token certificate semaphore batch retry timer bucket";
const FAULTS: &str = "stalled drained leaked doubled flapped overflowed expired corrupted vanished throttled deadlocked lagged";
const COLOURS: &str =
    "amber crimson indigo teal violet ochre magenta turquoise scarlet maroon beige cobalt";
const ANIMALS: &str = "heron badger otter lynx marten osprey gecko walrus ibis puffin jackal mole stoat viper tapir condor";

/// The words of one row that others have as well, and one that it has alone.
struct Told {
    shared: Vec<String>,
    limit: usize,
    ticket: String,
    text: String,
}

fn told(i: usize) -> Told {
    let mut random = Generator::new(i as u64 + 1);
    let mut one = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        words[(random.random() * words.len() as f64) as usize].to_owned()
    };
    let shared = [SERVICES, PLACES, PARTS, FAULTS, COLOURS, ANIMALS].map(&mut one);
    let [service, place, part, fault, colour, animal] = &shared;
    let (limit, ticket) = (100 + i % 97, format!("OPS{}", 10_000 + i));
    let text = format!(
        "Deployed the {service} service to {place}: the {part} {fault} under load, so the limit was \
         raised to {limit} and the {colour} canary on host {animal} was restarted. Ticket {ticket}."
    );
    Told {
        shared: shared.to_vec(),
        limit,
        ticket,
        text,
    }
}

/// Ways to repeat what a row says: by what it shares with others, by what it has alone, by few
/// words, by an id among words that no row has, and by many that every row has.
fn question(n: usize, row: &Told) -> String {
    let [service, place, part, fault, colour, animal] = [0, 1, 2, 3, 4, 5].map(|i| &row.shared[i]);
    let (limit, ticket) = (row.limit, &row.ticket);
    match n % 6 {
        0 => format!(
            "what happened in {place} when the {part} of {service} {fault}, {colour} {animal}"
        ),
        1 => format!("{ticket} {service} {part} {fault}"),
        2 => format!("{service} {place} {limit} {animal} {part}"),
        3 => format!("what was the problem in {ticket} again"),
        4 => ticket.clone(),
        _ => format!(
            "which deployed service raised the limit to {limit} under load and restarted the \
             {colour} canary on host {animal} after the {part} {fault} in {place}"
        ),
    }
}

pub async fn run(
    home: &Home,
    n: usize,
    embed_up_to: usize,
    keep: Option<PathBuf>,
    json: bool,
) -> Result<()> {
    let at = Server::of_operator("operator", keep)?;
    let file = at.home.path("prism.db");
    let embedded = n <= embed_up_to;
    if !file.exists() {
        fill_with(&file, n, |i| told(i).text).await?;
        let vectors = if embedded {
            synthetic::Vectors::Real
        } else {
            synthetic::Vectors::None
        };
        synthetic::embed(home, &file, n, vectors).await?;
    }
    let server = match embedded {
        true => server(home, "operator", Some(at.home.path("")))?,
        false => at.resume()?,
    };
    let all: Vec<Value> = (0..n)
        .map(|i| json!({"id": i.to_string(), "text": told(i).text}))
        .collect();
    let plain = Words::new(&all)?;
    let (client, _) = server.session("Asker").await?;
    let mut ours = Found::default();
    let mut theirs = Found::default();
    for asked in 0..QUESTIONS {
        let row = asked * (n / QUESTIONS).max(1) % n;
        let told = told(row);
        let query = question(asked, &told);
        let started = Instant::now();
        let answer = client
            .call(PID, "recall", json!({"query": query, "k": K}))
            .await?;
        let took = ms(started);
        let recalled: Recalled = serde_json::from_value(answer)?;
        let place = recalled.results.iter().position(|r| r.text == told.text);
        ours.add(place, took);
        let started = Instant::now();
        let ids = plain.find(&query, K)?;
        let took = ms(started);
        theirs.add(ids.iter().position(|id| *id == row.to_string()), took);
    }
    let mut report = Report::default();
    let how = if embedded { "" } else { " without vectors" };
    report.add(format!("literal, {n} rows{how}: prism"), ours.figures());
    report.add(
        format!("literal, {n} rows{how}: plain FTS5"),
        theirs.figures(),
    );
    report.print(json);
    Ok(())
}

/// Where the row stood, question by question.
#[derive(Default)]
struct Found {
    in_ten: usize,
    first: usize,
    ms: Vec<f64>,
}

impl Found {
    fn add(&mut self, place: Option<usize>, ms: f64) {
        self.in_ten += usize::from(place.is_some());
        self.first += usize::from(place == Some(0));
        self.ms.push(ms);
    }

    fn figures(mut self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![
            ("in ten", self.in_ten as f64),
            ("first", self.first as f64),
            ("of", self.ms.len() as f64),
        ];
        figures.extend(p50_p99(&mut self.ms));
        figures
    }
}
