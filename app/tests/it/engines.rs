//! What needs a real PostgreSQL or Redis: `make test-engines`.

mod alike_story;
mod carriers;
mod cluster_story;
mod failover_story;
mod fault_story;
mod house_story;
mod live_story;
mod moving;
mod near_story;
mod provisioning;
mod proxy;
mod reach;
mod standing;
mod statements;
mod tenants;
mod two_servers;
mod unheard_story;
