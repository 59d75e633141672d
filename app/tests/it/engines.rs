//! What needs a real PostgreSQL or Redis: `make test-engines`.

mod carriers;
mod provisioning;
mod two_servers;
