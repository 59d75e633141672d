//! The one suite for stores: every test here runs for every engine there is.

mod memory;
mod servers;
mod signals;

use crate::harness::engines::{Database, Postgres};
use prism::clock::new_id;
use prism::store::{Persona, Project, Store};
use prism_core::{Identity, Moment, ProjectName};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// An engine of the store.
#[derive(Clone, Copy, Debug)]
enum Engine {
    Sqlite,
    Postgres,
}

/// PostgreSQL, too, wherever there is one for the tests (`make test-engines`).
fn engines() -> Vec<Engine> {
    let shared = Postgres::given().map(|_| Engine::Postgres);
    [Engine::Sqlite].into_iter().chain(shared).collect()
}

impl Engine {
    /// Opens an empty store.
    fn open(self) -> Opened {
        match self {
            Self::Sqlite => Opened::embedded(tempfile::tempdir().unwrap()),
            Self::Postgres => Opened::shared(Arc::new(Postgres::shared().database())),
        }
    }
}

/// A store and where it keeps its rows.
struct Opened {
    store: Store,
    place: Place,
}

enum Place {
    Home(TempDir),
    Database(Arc<Database>),
}

impl Opened {
    /// The store as the next process finds it when this one is killed now: nothing is closed,
    /// flushed or tidied up first.
    fn crash(self) -> Self {
        match &self.place {
            Place::Home(home) => {
                let found = tempfile::tempdir().unwrap();
                copy_as_it_is(home.path(), found.path());
                // Whatever the old one still does, it does to the files that were left behind.
                Self::embedded(found)
            }
            Place::Database(database) => Self::shared(database.clone()),
        }
    }

    fn embedded(home: TempDir) -> Self {
        Self {
            store: Store::open_embedded(&home.path().join("prism.db")).unwrap(),
            place: Place::Home(home),
        }
    }

    fn shared(database: Arc<Database>) -> Self {
        let url = database.url.clone();
        // To connect waits, which a thread of the runtime must not.
        let opening = std::thread::spawn(move || Store::open_shared(&url).unwrap());
        Self {
            store: opening.join().unwrap(),
            place: Place::Database(database),
        }
    }

    /// What another server finds that stands on the same rows; none where there cannot be one.
    fn another(&self) -> Option<Self> {
        match &self.place {
            Place::Home(_) => None,
            Place::Database(database) => Some(Self::shared(database.clone())),
        }
    }

    /// A project of that name and a persona of each of these names in it.
    async fn project(&self, name: &str, people: &[&str]) -> (Project, Vec<Persona>) {
        let project = Project {
            id: new_id(),
            pid: ProjectName::parse(name).unwrap(),
        };
        let operator = Identity::parse("frank").unwrap();
        let added = self
            .store
            .add_project(project.clone(), operator, Moment(0))
            .await;
        added.unwrap();
        let mut personas = Vec::new();
        for name in people {
            let persona = Persona {
                id: new_id(),
                project_id: project.id,
                identity: Identity::parse(name).unwrap(),
                is_operator: false,
                created_at: Moment(0),
            };
            self.store.add_persona(persona.clone()).await.unwrap();
            personas.push(persona);
        }
        (project, personas)
    }
}

/// Copies the database and its log while nobody can write to them.
fn copy_as_it_is(from: &Path, to: &Path) {
    let gate = rusqlite::Connection::open(from.join("prism.db")).unwrap();
    gate.busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    gate.execute_batch("begin immediate").unwrap();
    for file in ["prism.db", "prism.db-wal"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let log = std::fs::metadata(to.join("prism.db-wal")).unwrap();
    assert!(log.len() > 0, "a clean close is no crash");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn on_every_engine(test: impl AsyncFn(Opened)) {
    for engine in engines() {
        println!("on {engine:?}");
        runtime().block_on(test(engine.open()));
    }
}
