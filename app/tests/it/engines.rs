//! What needs a real PostgreSQL or Redis: `make test-engines`.

mod provisioning;
mod reach;
