//! What needs a real PostgreSQL or Redis: `make test-engines`.

mod carriers;
mod cluster_story;
mod fault_story;
mod moving;
mod provisioning;
mod reach;
mod tenants;
mod two_servers;
