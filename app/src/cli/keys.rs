//! `prism persona` and `prism key`.

use super::{Context, print_json};
use crate::client::{self, key_file};
use crate::clock;
use crate::ui::{Outcome, ago, note, out, short, table};
use clap::{Args, Subcommand};
use prism_core::text::{clip, one_line};
use prism_core::{Identity, api};
use serde_json::json;

#[derive(Args)]
pub struct Persona {
    #[command(subcommand)]
    action: PersonaAction,
}

#[derive(Subcommand)]
enum PersonaAction {
    /// Add an identity to the project
    Add { identity: String },
}

impl Persona {
    pub async fn run(self, context: Context) -> Outcome {
        let PersonaAction::Add { identity } = self.action;
        let (added, answer): (api::PersonaAdded, _) = context
            .ask("persona_add", json!({"identity": identity}))
            .await?;
        if context.json {
            print_json(&answer);
        } else {
            out(&format!(
                "{} {} in {}",
                added.identity,
                if added.created {
                    "was added"
                } else {
                    "was already"
                },
                added.pid
            ));
        }
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism key mint Texi             for an agent on this machine\n  prism key mint Texi --print     for one on another machine (PRISM_API_KEY there)\n  prism key revoke 2901d7ce"
)]
pub struct Key {
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Subcommand)]
enum KeyAction {
    /// Make a key for an identity and keep it in this home
    Mint {
        identity: String,
        /// Print the key instead of keeping it here
        #[arg(long)]
        print: bool,
    },
    /// List keys, without their secrets
    List,
    /// Revoke a key at once
    Revoke { key_id: String },
}

impl Key {
    pub async fn run(self, context: Context) -> Outcome {
        match self.action {
            KeyAction::Mint { identity, print } => {
                let keep = !print && !context.json;
                // A key that cannot be kept would be in force, and nobody would have it.
                let _lock = match keep {
                    true => {
                        context.home.create()?;
                        Some(context.home.lock(client::MINT_LOCK)?)
                    }
                    false => None,
                };
                let (minted, answer): (api::KeyMinted, _) = context
                    .ask("key_mint", json!({"identity": identity}))
                    .await?;
                if context.json {
                    print_json(&answer);
                } else if print {
                    out(&minted.key);
                }
                if keep {
                    let file = key_file(&context.home, &Identity::parse(&minted.identity)?);
                    let kept = context.home.write(&file, minted.key.as_bytes());
                    if let Err(error) = kept {
                        let request = json!({"key_id": minted.key_id});
                        context.call("key_revoke", request).await?;
                        return Err(error.context("the new key was revoked again").into());
                    }
                    out(&format!(
                        "{} has key {} in {}",
                        minted.identity,
                        short(minted.key_id),
                        context.home.path(&file).display()
                    ));
                }
            }
            KeyAction::List => {
                let (keys, answer): (api::Keys, _) = context.ask("key_list", json!({})).await?;
                if context.json {
                    print_json(&answer);
                    return Ok(());
                }
                let now = clock::now();
                let rows: Vec<Vec<String>> = keys
                    .keys
                    .iter()
                    .map(|k| {
                        let who = if let Some(browser) = &k.browser {
                            format!("browser: {}", clip(&one_line(browser), 40))
                        } else if k.operator {
                            format!("{} (operator)", k.identity)
                        } else {
                            k.identity.clone()
                        };
                        vec![
                            short(k.key_id),
                            who,
                            format!("{}…", k.prefix),
                            format!("made {}", ago(k.created_at, now)),
                            match (k.revoked_at, k.expires_at) {
                                (Some(at), _) => format!("revoked {}", ago(at, now)),
                                (None, Some(at)) if at <= now => format!("ended {}", ago(at, now)),
                                _ => String::new(),
                            },
                        ]
                    })
                    .collect();
                out(&table(&rows));
                let used = client::find_key(&context.env, &context.home, None)?;
                for warning in other_operator_keys(&keys, &used) {
                    note(&warning);
                }
            }
            KeyAction::Revoke { key_id } => {
                let answer = context
                    .call("key_revoke", json!({"key_id": key_id}))
                    .await?;
                if context.json {
                    print_json(&answer)
                } else {
                    out("revoked")
                }
            }
        }
        Ok(())
    }
}

/// A key of the operator's that is not the one in use opens everything all the same.
pub fn other_operator_keys(keys: &api::Keys, used: &str) -> Vec<String> {
    let others = keys
        .keys
        .iter()
        .filter(|k| k.operator && k.browser.is_none() && k.revoked_at.is_none())
        .filter(|k| !used.starts_with(k.prefix.as_str()));
    let warning = |k: &api::KeyView| {
        format!(
            "{}… is not the key in use and still opens everything; unless it is another server's: `prism key revoke {}`",
            k.prefix,
            short(k.key_id)
        )
    };
    others.map(warning).collect()
}
