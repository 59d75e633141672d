//! Models come and go: one, two, another arithmetic, a text that breaks the worker. What answers
//! meanwhile, and that two generations of vectors never mix.

use crate::harness::{PID, Server, wait_until};
use crate::recall_story::installed_models;
use prism::client::Client;
use prism::embed::encoder::Encoder;
use prism::store::sql::{Connection, Row, params};
use prism_core::memory::generation::{BGE_SMALL, BOTH, FIRST, Generation, MINILM, Model};
use serde_json::{Value, json};

pub const MODELS: [&str; 2] = ["all-minilm-l6-v2-int8", "bge-small-en-v1.5-int8"];

/// A server whose home has these models, each of which can be taken away.
fn with_models(models: &[&str]) -> Server {
    let server = Server::start();
    give(&server, models);
    server
}

pub fn give(server: &Server, models: &[&str]) {
    std::fs::create_dir_all(server.home().path("models")).unwrap();
    for model in models {
        let link = server.home().path(&format!("models/{model}"));
        std::os::unix::fs::symlink(installed_models().join(model), link).unwrap();
    }
}

fn take_away(server: &Server, model: &str) {
    std::fs::remove_file(server.home().path(&format!("models/{model}"))).unwrap();
}

const NOTES: [&str; 4] = [
    "debounced the resize observer in SeatMap.tsx, layout now computed once per animation frame",
    "raised the connection pool of the ledger service to 40 and added a circuit breaker",
    "the courier mail template uses tables again because of old clients",
    "moved the feature flags to a typed registry",
];
const QUESTION: &str =
    "why the picture of chairs no longer shakes when the window changes its width";

pub async fn note(client: &Client, text: &str) {
    let note = json!({"text": text});
    client.call(PID, "note", note).await.unwrap();
}

async fn stats(client: &Client) -> Value {
    client.call(PID, "memory_stats", json!({})).await.unwrap()
}

/// Waits until every row that can have vectors has them, by these models.
pub async fn embedded_by(client: &Client, models: &[&str]) {
    wait_until("every row has its vectors", || async {
        let stats = stats(client).await;
        let rest =
            stats["embed_pending"].as_u64().unwrap() - stats["embed_set_aside"].as_u64().unwrap();
        let switching = stats.get("switching").is_some();
        let done = rest == 0 && !switching && stats["vectors"].as_u64() > Some(0);
        (done && stats["models"] == json!(models)).then_some(())
    })
    .await;
}

/// The question finds its row by meaning, asked by these models.
async fn found_by(client: &Client, question: &str, models: &[&str]) {
    let ask = json!({"query": question, "k": 5, "legs": ["vector"]});
    let answer = client.call(PID, "recall", ask).await.unwrap();
    let vector = &answer["legs"]["vector"];
    assert_eq!(vector["state"], "on", "{vector}");
    assert_eq!(vector["models"], json!(models), "{vector}");
    let first = answer["results"][0]["text"].as_str().unwrap_or_default();
    assert!(first.contains("resize observer"), "{answer:#}");
}

fn database(server: &Server) -> Connection {
    server.rows()
}

/// Rows that have vectors of this generation.
fn rows_of(server: &Server, generation: &Generation) -> u64 {
    let rows = "select count(distinct memory_row) from memory_vectors where model = ?";
    let count = |r: &Row<'_>| r.get::<_, i64>(0);
    database(server)
        .query_row(rows, [generation.id], count)
        .unwrap() as u64
}

#[tokio::test]
async fn a_home_of_the_first_build_answers_by_its_old_vectors_until_all_are_made_anew() {
    let mut server = with_models(&MODELS);
    let (mira, _) = server.session("Mira").await;
    for text in NOTES {
        note(&mira, text).await;
    }
    embedded_by(&mira, &["minilm", "bge-small"]).await;
    server.terminate();
    // As the first build left it: MiniLM alone, under its old name.
    as_the_first_build_made_it(&server);
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.switch_waits")]);
    let operator = server.operator();
    let switching = wait_until("the switch has begun", || async {
        stats(&operator).await.get("switching").cloned()
    })
    .await;
    let (from, to) = (json!(["minilm"]), json!(["minilm", "bge-small"]));
    assert_eq!(
        switching,
        json!({"from": from, "to": to, "done": 0, "rows": 4})
    );
    found_by(&operator, QUESTION, &["minilm"]).await;
    let doctor = server.ok(None, &["doctor"]);
    assert!(
        doctor.contains("embedded anew by minilm and bge-small: 0 of 4"),
        "{doctor}"
    );
    let shown = server.ok(None, &["memory", "stats"]);
    assert!(shown.contains("0 of 4"), "{shown}");
    // What is written meanwhile gets the vectors of both.
    note(&operator, "the printer in the hall takes A3 now").await;
    wait_until("the new row has both", || async {
        (rows_of(&server, &FIRST) == 5 && rows_of(&server, &BOTH) == 1).then_some(())
    })
    .await;
    server.terminate();
    server.resume();
    let operator = server.operator();
    // Under load: more is written while the rest is embedded anew.
    for n in 0..5 {
        note(
            &operator,
            &format!("ticket {n} was closed without a change"),
        )
        .await;
        found_on(&operator).await;
    }
    embedded_by(&operator, &["minilm", "bge-small"]).await;
    found_by(&operator, QUESTION, &["minilm", "bge-small"]).await;
    wait_until("the old vectors are gone", || async {
        (rows_of(&server, &FIRST) == 0).then_some(())
    })
    .await;
    assert_eq!(rows_of(&server, &BOTH), 10);
}

/// In the middle of a switch the vector leg is on, in one generation or in the other.
async fn found_on(client: &Client) {
    let ask = json!({"query": QUESTION, "k": 5, "legs": ["vector"]});
    let answer = client.call(PID, "recall", ask).await.unwrap();
    let vector = &answer["legs"]["vector"];
    assert_eq!(vector["state"], "on", "{vector}");
    let first = answer["results"][0]["text"].as_str().unwrap_or_default();
    assert!(first.contains("resize observer"), "{answer:#}");
}

fn as_the_first_build_made_it(server: &Server) {
    let database = database(server);
    database.begin_writing().unwrap();
    {
        let mut all = database
            .prepare("select id, vector from memory_vectors")
            .unwrap();
        let rows = all.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        for (id, vector) in rows.map(Result::<(i64, Vec<u8>), _>::unwrap) {
            let half = vector[..384 * 4].chunks_exact(4).flat_map(|x| {
                let x = f32::from_le_bytes(x.try_into().unwrap()) * 2f32.sqrt();
                x.to_le_bytes()
            });
            let half: Vec<u8> = half.collect();
            let update = "update memory_vectors set model = ?, vector = ? where id = ?";
            database
                .execute(update, params![FIRST.id, half, id])
                .unwrap();
        }
    }
    let answering = "update vector_generation set generation = ?";
    database.execute(answering, [FIRST.id]).unwrap();
    database.commit().unwrap();
}

#[tokio::test]
async fn one_model_is_enough_a_second_joins_and_one_that_goes_leaves_the_other_answering() {
    let server = with_models(&MODELS[..1]);
    let (mira, _) = server.session("Mira").await;
    for text in NOTES {
        note(&mira, text).await;
    }
    embedded_by(&mira, &["minilm"]).await;
    found_by(&mira, QUESTION, &["minilm"]).await;
    let doctor = server.ok(None, &["doctor"]);
    assert!(
        doctor.contains("only minilm of two models is here"),
        "{doctor}"
    );

    give(&server, &MODELS[1..]);
    // The next write wakes the embedder, which sees the other model.
    note(&mira, "unrelated").await;
    embedded_by(&mira, &["minilm", "bge-small"]).await;
    found_by(&mira, QUESTION, &["minilm", "bge-small"]).await;

    take_away(&server, MODELS[1]);
    // At once by what is left of the same vectors, later by its own.
    found_by(&mira, QUESTION, &["minilm"]).await;
    note(&mira, "something else").await;
    if !server.is_embedded() {
        return println!("another server may have it, and rows wait for that");
    }
    embedded_by(&mira, &["minilm"]).await;
    found_by(&mira, QUESTION, &["minilm"]).await;
    wait_until("the others are gone", || async {
        (rows_of(&server, &BOTH) == 0 && rows_of(&server, &MINILM) == 6).then_some(())
    })
    .await;

    take_away(&server, MODELS[0]);
    let ask = json!({"query": "ledger", "k": 5});
    let answer = mira.call(PID, "recall", ask).await.unwrap();
    assert_eq!(answer["legs"]["vector"]["state"], "off");
    assert!(
        answer["results"][0]["text"]
            .as_str()
            .unwrap()
            .contains("ledger"),
        "by its words: {answer:#}"
    );
}

#[tokio::test]
async fn of_a_batch_that_kills_the_worker_only_the_row_to_blame_is_set_aside() {
    let mut server = with_models(&MODELS[..1]);
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.dies_over_poison,embed.disk_full")]);
    let operator = server.operator();
    // All wait in the queue before the first of them is embedded.
    for text in NOTES {
        note(&operator, text).await;
    }
    note(&operator, "a bottle of poison in the cellar").await;
    note(&operator, "the last one of this batch").await;
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.dies_over_poison")]);
    let operator = server.operator();
    wait_until("one row is set aside", || async {
        let stats = stats(&operator).await;
        (stats["embed_set_aside"] == 1 && stats["embed_pending"] == 1).then_some(())
    })
    .await;
    assert_eq!(
        rows_of(&server, &MINILM),
        5,
        "the others have their vectors"
    );
    found_by(&operator, QUESTION, &["minilm"]).await;
    let doctor = server.ok(None, &["doctor"]);
    assert!(
        doctor.contains("1 row(s)") && doctor.contains("prism memory reembed"),
        "{doctor}"
    );
    // Mended, it is embedded when that is asked for.
    server.terminate();
    server.resume();
    let operator = server.operator();
    operator
        .call(PID, "memory_reembed", json!({}))
        .await
        .unwrap();
    wait_until("nothing waits", || async {
        (stats(&operator).await["embed_pending"] == 0).then_some(())
    })
    .await;
    assert_eq!(rows_of(&server, &MINILM), 6);
}

#[tokio::test]
async fn a_worker_that_keeps_dying_costs_no_row_its_vectors_and_ends_no_switch() {
    let mut server = with_models(&MODELS[..1]);
    let (mira, _) = server.session("Mira").await;
    for text in NOTES {
        note(&mira, text).await;
    }
    embedded_by(&mira, &["minilm"]).await;
    server.terminate();
    give(&server, &MODELS[1..]);
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.dies")]);
    let operator = server.operator();
    wait_until("the worker died over rows", || async {
        // Nothing is without vectors, so nothing is queued by asking.
        let asked = operator.call(PID, "memory_reembed", json!({})).await;
        let off = asked.unwrap()["off"].as_str().map(str::to_owned);
        off.filter(|off| off.contains("died"))
    })
    .await;
    let blamed = "select count(*) from embed_intents where attempts > 0";
    let blamed = database(&server).query_row(blamed, [], |r| r.get::<_, i64>(0));
    assert_eq!(blamed.unwrap(), 0);
    assert_eq!(rows_of(&server, &MINILM), 4, "they still answer");
    server.terminate();
    server.resume();
    let operator = server.operator();
    embedded_by(&operator, &["minilm", "bge-small"]).await;
    assert_eq!(rows_of(&server, &BOTH), 4);
    found_by(&operator, QUESTION, &["minilm", "bge-small"]).await;
}

#[tokio::test]
async fn what_is_written_while_a_model_is_away_is_found_when_it_is_back() {
    let mut server = with_models(&MODELS);
    let (mira, _) = server.session("Mira").await;
    note(&mira, NOTES[1]).await;
    embedded_by(&mira, &["minilm", "bge-small"]).await;
    server.terminate();
    take_away(&server, MODELS[1]);
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.switch_waits")]);
    let operator = server.operator();
    note(&operator, NOTES[0]).await;
    if server.is_embedded() {
        wait_until("it has vectors of what is left", || async {
            (rows_of(&server, &MINILM) == 1).then_some(())
        })
        .await;
    }
    give(&server, &MODELS[1..]);
    // The next write wakes the embedder, which sees the model again.
    note(&operator, "unrelated").await;
    wait_until("all have vectors of both", || async {
        (rows_of(&server, &BOTH) == 3 && rows_of(&server, &MINILM) == 0).then_some(())
    })
    .await;
    found_by(&operator, QUESTION, &["minilm", "bge-small"]).await;
}

fn texts() -> Vec<String> {
    let rules = include_str!("../../../README.md");
    let words: Vec<&str> = rules.split_whitespace().collect();
    let lengths = [3, 9, 14, 25, 60, 120];
    let text = |(i, length): (usize, &usize)| words[i * 31..][..*length].join(" ");
    lengths
        .iter()
        .cycle()
        .take(24)
        .enumerate()
        .map(text)
        .collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn a_text_alone_and_in_a_batch_has_the_same_vector_to_the_bit() {
    let (encoder, texts) = (Encoder::new(&installed_models()), texts());
    for generation in [&BOTH, &MINILM, &BGE_SMALL, &FIRST] {
        let together = encoder.rows(generation, &texts, &|| ()).unwrap();
        for at in [0, 4, 5, 23] {
            let alone = encoder.rows(generation, &texts[at..=at], &|| ()).unwrap();
            if generation == &FIRST {
                let same = cosine(&alone[0], &together[at]);
                assert!((same - 1.0).abs() < 1e-5, "{same}");
            } else {
                assert_eq!(alone[0], together[at], "{} {at}", generation.id);
            }
            assert_eq!(alone[0].len(), generation.dimensions());
        }
    }
}

#[test]
fn whole_numbers_say_what_floats_say() {
    let (encoder, texts) = (Encoder::new(&installed_models()), texts());
    let whole = encoder.rows(&MINILM, &texts, &|| ()).unwrap();
    let exact = encoder.rows(&FIRST, &texts, &|| ()).unwrap();
    let cosines = whole.iter().zip(&exact).map(|(a, b)| cosine(a, b));
    let mean = cosines.sum::<f32>() / texts.len() as f32;
    assert!(mean > 0.998, "{mean}");
    let asked = encoder
        .questions(&BOTH, &Model::ALL, &texts)
        .unwrap()
        .vectors;
    let rows = encoder.rows(&BOTH, &texts, &|| ()).unwrap();
    for (at, (asked, row)) in asked.iter().zip(&rows).enumerate().skip(1) {
        let (own, other) = (cosine(asked, row), cosine(asked, &rows[at - 1]));
        assert!(own > 0.8 && own > other, "{at}: {own} {other}");
    }
}

/// Puts a copy in the place of a model's link, with its last byte another.
fn damage(server: &Server, model: &str) -> std::path::PathBuf {
    let folder = server.home().path(&format!("models/{model}"));
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    for file in ["model.onnx", "tokenizer.json"] {
        let mut bytes = std::fs::read(installed_models().join(model).join(file)).unwrap();
        if file == "model.onnx" {
            *bytes.last_mut().unwrap() ^= 1;
        }
        std::fs::write(folder.join(file), bytes).unwrap();
    }
    folder.join("model.onnx")
}

#[tokio::test]
async fn a_damaged_model_is_not_named_among_those_that_answered() {
    let mut server = with_models(&MODELS);
    let (mira, _) = server.session("Mira").await;
    for text in NOTES {
        note(&mira, text).await;
    }
    embedded_by(&mira, &["minilm", "bge-small"]).await;
    server.terminate();
    damage(&server, MODELS[1]);
    server.resume();
    let operator = server.operator();
    found_by(&operator, QUESTION, &["minilm"]).await;
    let ask = json!({"query": "which chairs shook", "legs": ["vector"]});
    let answer = operator.call(PID, "recall", ask).await.unwrap();
    let reason = answer["legs"]["vector"]["reason"].as_str().unwrap();
    assert!(reason.contains("is not the pinned file"), "{reason}");
    // What is written meanwhile waits for it, and whoever asks what waits is told why.
    note(&mira, "the night train stops twice").await;
    wait_until("the statistics say why", async || {
        let stats = operator.call(PID, "memory_stats", json!({})).await.unwrap();
        assert_eq!(stats["embed_pending"], 1);
        let off = stats["off"].as_str()?;
        assert!(off.contains("is not the pinned file"), "{off}");
        Some(())
    })
    .await;
    let reembed = server.command(None).args(["memory", "reembed"]).output();
    let reembed = reembed.unwrap();
    let said = String::from_utf8_lossy(&reembed.stderr).into_owned();
    assert!(!reembed.status.success());
    assert!(said.contains("is not the pinned file"), "{said}");
}

#[test]
fn a_model_that_cannot_be_loaded_is_read_again_only_when_its_file_is_another() {
    let server = with_models(&MODELS);
    let file = damage(&server, MODELS[1]);
    let encoder = Encoder::new(&server.home().path("models"));
    let asked = || {
        let both = [Model::MiniLm, Model::BgeSmall];
        let asked = encoder.questions(&BOTH, &both, &["a question".into()]);
        asked.unwrap().models
    };
    assert_eq!(asked(), ["minilm"]);
    // Mended, but to all appearance the same: nobody reads thirty megabytes for each question.
    let appears = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::copy(installed_models().join(MODELS[1]).join("model.onnx"), &file).unwrap();
    let mended = std::fs::File::options().write(true).open(&file).unwrap();
    mended.set_modified(appears).unwrap();
    assert_eq!(asked(), ["minilm"]);
    let later = appears + std::time::Duration::from_secs(1);
    mended.set_modified(later).unwrap();
    assert_eq!(asked(), ["minilm", "bge-small"]);
}

/// How much each thread of a server's embedding worker steps back.
#[cfg(target_os = "linux")]
fn niceness_of_the_worker(server: &Server) -> Vec<i64> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let pids = std::fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let worker = pids.filter(|pid| {
        read(format!("/proc/{pid}/cmdline")).contains("embed-worker")
            && read(format!("/proc/{pid}/status")).contains(&format!("PPid:\t{}\n", server.pid()))
    });
    let worker = worker.last().expect("a worker");
    let threads = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let nice = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = read(task.unwrap().path().join("stat").display().to_string());
        // Whatever a thread is called ends with the last bracket; nice is the 17th after it.
        let (_, after) = stat.rsplit_once(") ").unwrap();
        after.split(' ').nth(16).unwrap().parse().unwrap()
    };
    threads.map(nice).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn texts_of_rows_step_back_behind_everything_and_questions_do_not() {
    let server = with_models(&MODELS[..1]);
    let (mira, _) = server.session("Mira").await;
    note(&mira, NOTES[0]).await;
    embedded_by(&mira, &["minilm"]).await;
    found_by(&mira, QUESTION, &["minilm"]).await;
    let threads = niceness_of_the_worker(&server);
    let cores = std::thread::available_parallelism().unwrap().get();
    let niced = threads.iter().filter(|nice| **nice == 10).count();
    assert_eq!(niced, cores.min(2), "{threads:?}");
    let others = threads.iter().filter(|nice| **nice == 0).count();
    assert_eq!(niced + others, threads.len(), "{threads:?}");
    assert!(others > cores.min(4), "those of questions are among them");
}

/// What onnxruntime makes of the same files, with the pooling that each model was trained with: the
/// cosines of any two of these texts, in order. Pooled the other way they lie 0.05 to 0.5 away.
#[test]
fn each_model_says_what_onnxruntime_says_of_its_file() {
    let texts = [NOTES[0], NOTES[1], QUESTION, NOTES[2]].map(str::to_owned);
    let encoder = Encoder::new(&installed_models());
    for (generation, theirs) in [
        (&MINILM, [-0.073, 0.344, 0.098, -0.051, 0.141, 0.101]),
        (&BGE_SMALL, [0.444, 0.711, 0.540, 0.483, 0.566, 0.580]),
    ] {
        let rows = encoder.rows(generation, &texts, &|| ()).unwrap();
        let pairs = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b)));
        for ((a, b), theirs) in pairs.zip(theirs) {
            let ours: f32 = rows[a].iter().zip(&rows[b]).map(|(x, y)| x * y).sum();
            let away = (ours - theirs).abs();
            assert!(away < 0.03, "{}: {a} {b}: {ours} {theirs}", generation.id);
        }
    }
}

#[tokio::test]
async fn another_phrasing_is_heard_by_its_meaning() {
    let server = with_models(&MODELS);
    let (mira, _) = server.session("Mira").await;
    for text in NOTES {
        note(&mira, text).await;
    }
    embedded_by(&mira, &["minilm", "bge-small"]).await;
    let asked = async |also: Value| {
        let ask = json!({"query": "warum wackeln die Stühle nicht mehr", "also": also, "legs": ["vector"]});
        mira.call(PID, "recall", ask).await.unwrap()
    };
    let (alone, helped) = (asked(json!([])).await, asked(json!([QUESTION])).await);
    let confidence = |answer: &Value| answer["confidence"].as_f64().unwrap();
    assert!(confidence(&helped) > confidence(&alone), "{alone} {helped}");
    let first = &helped["results"][0];
    assert!(first["text"].as_str().unwrap().contains("resize observer"));
    assert!(first["why"].to_string().contains("also"), "{first}");
}
