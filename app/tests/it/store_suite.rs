//! The one suite for stores: every test here runs for every engine there is.

mod memory;
mod signals;

use prism::clock::new_id;
use prism::store::{Persona, Project, Store};
use prism_core::{Identity, Moment, ProjectName};
use std::path::Path;
use tempfile::TempDir;

/// An engine of the store. PostgreSQL becomes the second.
#[derive(Clone, Copy, Debug)]
enum Engine {
    Sqlite,
}

const ENGINES: [Engine; 1] = [Engine::Sqlite];

impl Engine {
    /// Opens an empty store.
    fn open(self) -> Opened {
        let home = tempfile::tempdir().unwrap();
        self.open_in(home)
    }

    fn open_in(self, home: TempDir) -> Opened {
        let store = match self {
            Self::Sqlite => Store::open_embedded(&home.path().join("prism.db")).unwrap(),
        };
        Opened {
            engine: self,
            store,
            home,
        }
    }
}

/// A store and where it keeps its rows.
struct Opened {
    engine: Engine,
    store: Store,
    home: TempDir,
}

impl Opened {
    /// The store as the next process finds it when this one is killed now: nothing is closed,
    /// flushed or tidied up first.
    fn crash(self) -> Self {
        let found = tempfile::tempdir().unwrap();
        match self.engine {
            Engine::Sqlite => copy_as_it_is(self.home.path(), found.path()),
        }
        // Whatever the old one still does, it does to the files that were left behind.
        self.engine.open_in(found)
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
    for engine in ENGINES {
        println!("on {engine:?}");
        runtime().block_on(test(engine.open()));
    }
}
