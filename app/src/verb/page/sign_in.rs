//! The way into the page.

use crate::prism::{Caller, Prism};
use prism_core::api::Nothing;
use prism_core::api::page::house::DashboardLink;
use prism_core::{Code, Problem, tenant};

pub async fn link(prism: &Prism, caller: &Caller, _: Nothing) -> Result<DashboardLink, Problem> {
    // A cookie that was stolen must not outlive itself.
    if caller.from_page {
        return Err(Problem::new(
            Code::OperatorOnly,
            "a browser lets no other browser in",
            "run `prism dashboard` with the operator's key",
        ));
    }
    let token = prism.new_key()?;
    let token = token.trim_start_matches(tenant::KEY);
    let expires_at = prism.add_link(token).await?;
    Ok(DashboardLink {
        url: format!("{}sign-in/{token}", prism.browsers.url()),
        expires_at,
    })
}
