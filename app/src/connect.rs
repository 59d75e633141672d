//! Prism in the files of agent hosts: what is there, what would change, and the change itself.

pub mod backups;
pub mod check;
pub mod files;
pub mod pins;

use crate::config::{Env, HostEnv};
use crate::home::Home;
use anyhow::{Context, Result, bail};
use backups::{Approval, Manifest, Original, Owner};
use files::{Change, Seen, hash, see};
use prism_core::connect::parts::{Line, Undo};
use prism_core::connect::{
    self as rules, Format, Host, HostFile, Launch, Part, Pins, Places, Scope, Wish, diff,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What this machine has: where hosts keep their files, and what starts this program.
pub struct Machine {
    pub places: Places,
    pub launch: Launch,
    path: Vec<PathBuf>,
    /// What was noted of approvals in Codex.
    approvals: Vec<Approval>,
}

impl Machine {
    pub fn look(env: &Env, own: &Home) -> Result<Self> {
        let hosts = HostEnv::read();
        let home = env.home.as_deref().map(PathBuf::from);
        let home = home.context("HOME is not set: hosts keep their files there")?;
        let home = std::fs::canonicalize(&home).unwrap_or(home);
        let cwd = std::env::current_dir().context("cannot tell the working directory")?;
        let root = cwd.ancestors().find(|d| d.join(".git").exists());
        let root = root.unwrap_or(&cwd).to_owned();
        let config = hosts
            .xdg_config_home
            .clone()
            .unwrap_or_else(|| home.join(".config"));
        let code = if cfg!(target_os = "macos") {
            home.join("Library/Application Support/Code/User")
        } else {
            config.join("Code/User")
        };
        let claude = hosts.claude_config_dir.clone();
        let places = Places {
            claude_json: claude.as_ref().unwrap_or(&home).join(".claude.json"),
            claude: claude.unwrap_or_else(|| home.join(".claude")),
            codex: hosts
                .codex_home
                .clone()
                .unwrap_or_else(|| home.join(".codex")),
            config,
            code_user: code,
            root: std::fs::canonicalize(&root).unwrap_or(root),
            home,
        };
        // Notes that cannot be read stop whoever needs them to change something.
        let noted = Manifest::load(own).unwrap_or_default();
        Ok(Self {
            launch: launch(&hosts.path, noted.programs)?,
            approvals: noted.approvals,
            places,
            path: hosts.path,
        })
    }

    /// Where a program is found, by its name or by its path.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        find_program(&self.path, name)
    }

    /// The host's own program.
    pub fn host_program(&self, host: Host) -> Option<PathBuf> {
        host.programs().iter().find_map(|name| self.program(name))
    }

    /// Its program is here, or it has left its folder.
    pub fn is_installed(&self, host: Host) -> bool {
        self.host_program(host).is_some() || self.places.folder(host).is_dir()
    }

    /// The files of a connection, under the names that are in use here.
    fn files(&self, host: Host, scope: Scope, wish: &Wish) -> Result<Vec<HostFile>> {
        let files = rules::files(host, scope, &self.places, wish);
        let files = files.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        Ok(files.into_iter().map(in_use).collect())
    }

    /// Every file that may hold something of ours.
    pub fn everywhere(&self, host: Host, scope: Scope) -> Vec<HostFile> {
        let files = rules::everywhere(host, scope, &self.places);
        files.into_iter().map(in_use).collect()
    }

    fn owner(&self, host: Host, scope: Scope) -> Owner {
        Owner {
            host,
            scope,
            root: (scope == Scope::Project).then(|| self.places.root.clone()),
        }
    }
}

/// OpenCode reads either name; where only the other is there, that one is meant.
fn in_use(mut file: HostFile) -> HostFile {
    if file.path.ends_with("opencode.json") {
        let other = file.path.with_extension("jsonc");
        if !file.path.exists() && other.exists() {
            file.path = other;
        }
    }
    file
}

fn find_program(path: &[PathBuf], name: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return is_program(&path).then_some(path);
    }
    let mut found = path.iter().map(|dir| dir.join(name));
    found.find(|path| is_program(path))
}

/// The word that starts this very program: its name where that leads here, else its path.
fn launch(path: &[PathBuf], earlier: Vec<String>) -> Result<Launch> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let own = std::fs::canonicalize(&own).unwrap_or(own);
    let shown = own.to_string_lossy().into_owned();
    let named = find_program(path, rules::command::NAME);
    let leads_here = |found: &PathBuf| std::fs::canonicalize(found).is_ok_and(|found| found == own);
    Ok(match named.filter(leads_here) {
        Some(named) => Launch {
            program: rules::command::NAME.into(),
            same: vec![named.to_string_lossy().into_owned(), shown],
            earlier,
        },
        None => Launch {
            program: shown,
            same: Vec::new(),
            earlier,
        },
    })
}

/// What a user asks of `prism connect`.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub pins: Pins,
    pub allow_tools: bool,
    pub own_servers: bool,
    pub instructions: bool,
}

/// One file and what becomes of it.
pub struct Planned {
    pub file: HostFile,
    pub seen: Seen,
    /// The text it will have; nothing: it goes.
    pub after: Option<String>,
    undo: Vec<Undo>,
    folders: Vec<PathBuf>,
    /// How it came out of a disconnect.
    pub end: End,
}

/// How a file leaves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// As it was before, byte for byte.
    Restored,
    /// It was ours alone.
    Removed,
    /// Others changed it, too: our parts are out.
    TakenOut,
}

impl Planned {
    pub fn is_change(&self) -> bool {
        self.after != self.seen.text
    }

    pub fn diff(&self) -> String {
        let name = match self.seen.path == self.seen.real {
            true => self.seen.path.display().to_string(),
            false => format!(
                "{} -> {}",
                self.seen.path.display(),
                self.seen.real.display()
            ),
        };
        diff::unified(
            &name,
            self.seen.text(),
            self.after.as_deref().unwrap_or_default(),
        )
    }

    pub fn is_new(&self) -> bool {
        self.seen.text.is_none()
    }

    fn change(&self) -> Change {
        Change {
            seen: self.seen.clone(),
            after: self.after.clone(),
            shared: self.file.shared,
            folders: self.folders.clone(),
        }
    }
}

/// What would be written, and what the user should know about it.
pub struct Plan {
    pub host: Host,
    pub scope: Scope,
    pub files: Vec<Planned>,
    pub notes: Vec<String>,
    owner: Owner,
    /// What the files name as this program.
    program: String,
    /// Approvals in Codex of our hooks as they are now.
    approvals: Vec<Approval>,
}

impl Plan {
    pub fn changes(&self) -> impl Iterator<Item = &Planned> {
        self.files.iter().filter(|f| f.is_change())
    }
}

/// Reads every file and works out what it would be. Nothing is written; whatever is wrong with any
/// of them is said, all at once.
pub fn plan(machine: &Machine, host: Host, scope: Scope, asked: &Asked) -> Result<Plan> {
    let places = &machine.places;
    if scope == Scope::Project && places.root == places.home {
        bail!("this is your home folder, where both scopes are the same files: use --user");
    }
    let mut notes = Vec::new();
    let wish = wish(machine, host, scope, asked, &mut notes);
    let mut files = Vec::new();
    let mut wrong = Vec::new();
    for file in machine.files(host, scope, &wish)? {
        let shown = file.path.display().to_string();
        match plan_file(machine, file, asked) {
            // A link in a repository is somebody else's, and so may be what it leads to.
            Ok((planned, _)) if leads_out(&planned.seen, scope, &places.root) => {
                wrong.push(format!(
                    "{shown}: it leads to {}, outside of this repository: use --user for your own \
                     files, or put a file in the place of the link",
                    planned.seen.real.display()
                ));
            }
            Ok((planned, said)) => {
                notes.extend(said);
                files.push(planned);
            }
            Err(e) => wrong.push(format!("{shown}: {e:#}")),
        }
    }
    if !wrong.is_empty() {
        bail!("{}; nothing was changed", wrong.join("; "));
    }
    notes.extend(pins::replaced(machine, scope, &files, &asked.pins));
    if let (Host::ClaudeCode, Scope::Project, Some(name)) = (host, scope, &asked.pins.identity) {
        notes.extend(pins::half_pinned(machine, name, None));
    }
    let by_path = machine.launch.program.contains('/');
    if by_path && files.iter().any(|f| f.file.shared && f.is_change()) {
        notes.push(format!(
            "`prism` on your PATH is not this program, so files that others share name {}; put it on \
             the PATH and connect again",
            machine.launch.program
        ));
    }
    Ok(Plan {
        host,
        scope,
        files,
        notes,
        approvals: match host {
            Host::Codex => approvals(machine, scope),
            _ => Vec::new(),
        },
        owner: machine.owner(host, scope),
        program: machine.launch.program.clone(),
    })
}

/// Whether a file of the repository is really one outside of it.
fn leads_out(seen: &Seen, scope: Scope, root: &Path) -> bool {
    scope == Scope::Project && seen.path.starts_with(root) && !seen.real.starts_with(root)
}

fn plan_file(machine: &Machine, file: HostFile, asked: &Asked) -> Result<(Planned, Vec<String>)> {
    let seen = see(&file.path)?;
    let places = &machine.places;
    let pinned = |part: &Part| match part {
        Part::Server(_, _, pins) | Part::Env(pins) => !pins.is_empty(),
        _ => false,
    };
    let in_repository = rules::is_under(&seen.real, &places.root) && places.root != places.home;
    if !asked.pins.is_empty() && in_repository && file.parts.iter().any(pinned) {
        bail!(
            "it lies under {}, where an identity or a project must not be pinned: set \
             PRISM_AGENT_IDENTITY and PRISM_PID in the shell instead",
            places.root.display()
        );
    }
    let added = rules::add(seen.text(), file.format, &file.parts, &machine.launch);
    let added = added.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    let unchanged = added.text == seen.text();
    let planned = Planned {
        after: if unchanged {
            seen.text.clone()
        } else {
            Some(added.text)
        },
        undo: added.undo,
        folders: Vec::new(),
        end: End::Restored,
        file,
        seen,
    };
    Ok((planned, added.notes))
}

/// What the files of this machine make of what was asked.
fn wish(
    machine: &Machine,
    host: Host,
    scope: Scope,
    asked: &Asked,
    notes: &mut Vec<String>,
) -> Wish {
    let places = &machine.places;
    let mut wish = Wish {
        pins: asked.pins.clone(),
        allow_tools: asked.allow_tools,
        own_servers: asked.own_servers,
        instructions: asked.instructions,
        ..Wish::default()
    };
    match host {
        Host::ClaudeCode => {
            let settings = settings(&places.claude.join("settings.json"));
            if has_plugin(&settings) {
                wish.without_server = true;
                wish.without_hooks = true;
                wish.allow_tools = false;
                notes.push(
                    "the prism plugin is enabled in Claude Code and brings server and hooks; only the \
                     status line is written (to have its tools called unasked, allow \
                     mcp__plugin_prism_prism in Claude Code)"
                        .into(),
                );
            }
            let line = &settings["statusLine"];
            wish.without_line = scope == Scope::Project && !line.is_null();
            let command = line["command"].as_str();
            let ours = command.and_then(|c| rules::command::our_line(c, &machine.launch));
            if wish.without_line && ours.is_none() {
                notes.push(
                    "you have a status line for all folders, and this one does not get another: \
                     `prism connect claude-code --user` puts the bell into yours"
                        .into(),
                );
            }
        }
        Host::Codex => {
            let folder = match scope {
                Scope::User => places.codex.clone(),
                Scope::Project => places.root.join(".codex"),
            };
            wish.hooks_in_toml = codex_hooks_in_toml(&folder);
        }
        Host::VsCode => {
            let claude = match scope {
                Scope::User => places.claude.join("settings.json"),
                Scope::Project => places.root.join(".claude/settings.json"),
            };
            if has_hooks(&claude, &machine.launch) {
                wish.without_hooks = true;
                notes.push(format!(
                    "VS Code runs the hooks in {}, too: it gets no others",
                    claude.display()
                ));
            }
        }
        Host::Cursor | Host::Gemini | Host::OpenCode => {}
    }
    // Claude Code runs one command once, wherever it is named; the others run it for each file.
    if host != Host::ClaudeCode && runs_hooks_elsewhere(machine, host, scope) {
        let here = places.root.display();
        notes.push(match scope {
            Scope::Project => {
                wish.without_hooks = true;
                "our hooks run in all your folders already: this one gets no others".to_owned()
            }
            Scope::User => format!(
                "our hooks stand in {here} as well, and run twice there: `prism disconnect {host} --project`"
            ),
        });
    }
    wish
}

/// Whether the other scope has our hooks.
fn runs_hooks_elsewhere(machine: &Machine, host: Host, scope: Scope) -> bool {
    let other = match scope {
        Scope::User => Scope::Project,
        Scope::Project => Scope::User,
    };
    machine.everywhere(host, other).iter().any(|file| {
        let text = files::look(&file.path).ok().and_then(|seen| seen.text);
        let found =
            text.and_then(|t| rules::look(&t, file.format, &file.parts, &machine.launch).ok());
        found.is_some_and(|f| !f.hooks.handlers.is_empty())
    })
}

/// A host's settings, as far as they can be read.
fn settings(path: &Path) -> serde_json::Value {
    let text = files::look(path).ok().and_then(|seen| seen.text);
    let text = text.unwrap_or_default();
    serde_json::from_str(text.trim_start_matches('\u{feff}')).unwrap_or_default()
}

fn has_plugin(settings: &serde_json::Value) -> bool {
    let plugins = settings["enabledPlugins"].as_object();
    let mut plugins = plugins.into_iter().flatten();
    plugins.any(|(name, on)| name.starts_with("prism@") && *on != false)
}

fn has_hooks(claude_settings: &Path, launch: &Launch) -> bool {
    let hooks = Part::Hooks(rules::HookShape::Groups(0), &[]);
    let format = Format::Json(rules::json::Dialect::Plain);
    let text = files::look(claude_settings).ok().and_then(|seen| seen.text);
    let found = text.and_then(|t| rules::look(&t, format, &[hooks], launch).ok());
    found.is_some_and(|f| !f.hooks.handlers.is_empty())
}

/// Codex complains about hooks in two files of one folder, so ours go where the user's are.
fn codex_hooks_in_toml(folder: &Path) -> bool {
    let text = |name: &str| {
        files::look(&folder.join(name))
            .ok()
            .and_then(|seen| seen.text)
    };
    let config = text("config.toml").and_then(|t| rules::toml::to_value(&t).ok());
    let events = config.and_then(|c| c["hooks"].as_object().cloned());
    let events = events.unwrap_or_default();
    let in_config = events
        .iter()
        .any(|(name, list)| name != "state" && list.is_array());
    in_config && text("hooks.json").is_none()
}

/// Writes what was planned: copies first, then every file or none.
pub fn apply(home: &Home, plan: &Plan) -> Result<()> {
    let _lock = backups::lock(home)?;
    let known = Manifest::load(home)?;
    let mut manifest = known.clone();
    let changes: Vec<Change> = plan.changes().map(Planned::change).collect();
    for change in &changes {
        change
            .is_current()
            .with_context(|| change.seen.path.display().to_string())?;
    }
    for planned in &plan.files {
        match &planned.after {
            Some(after) if planned.is_change() => {
                let mut folders = planned.change().missing_folders();
                folders.reverse();
                let (seen, undo) = (&planned.seen, &planned.undo);
                manifest.note(home, seen, after, &plan.owner, undo, folders)?;
            }
            _ => manifest.share(&planned.seen.real, &plan.owner),
        }
    }
    manifest.approved(&plan.approvals);
    if !changes.is_empty() {
        manifest.knows(&plan.program);
    }
    // Known before it is done: whatever happens in between can be undone.
    manifest.save(home)?;
    if let Err(e) = files::write_all(&changes) {
        known.save(home)?;
        return Err(e);
    }
    Ok(())
}

/// Under which names Codex keeps the approval of each of our hooks in a file; a link has two.
fn trust_keys(file: &HostFile, found: &rules::Found) -> Vec<Vec<String>> {
    let mut names = vec![file.path.to_string_lossy().into_owned()];
    let real = files::look(&file.path).map(|seen| seen.real.to_string_lossy().into_owned());
    names.extend(real.ok().filter(|real| *real != names[0]));
    let handlers = found.hooks.handlers.iter();
    let keys = handlers.map(|(event, group, n, _)| {
        let key = |name: &String| rules::toml::trust_key(name, event, *group, *n);
        names.iter().map(key).collect()
    });
    keys.collect()
}

/// What Codex has noted for each of our hooks in a file; nothing: it was never approved.
fn approvals_in(machine: &Machine, file: &HostFile, found: &rules::Found) -> Vec<Option<Approval>> {
    let config = files::look(&machine.places.codex.join("config.toml")).ok();
    let config = config.and_then(|seen| rules::toml::to_value(seen.text()).ok());
    let config = config.unwrap_or_default();
    let keys = trust_keys(file, found).into_iter();
    keys.zip(&found.hooks.texts)
        .map(|(keys, hook)| {
            Some(Approval {
                hash: rules::toml::trusted_hash(&config, &keys)?,
                key: keys.into_iter().next()?,
                hook: hook.clone(),
            })
        })
        .collect()
}

/// Every approval of our hooks in one scope.
fn approvals(machine: &Machine, scope: Scope) -> Vec<Approval> {
    let mut all = Vec::new();
    for file in machine.everywhere(Host::Codex, scope) {
        let text = files::look(&file.path).ok().and_then(|seen| seen.text);
        let found = text
            .and_then(|t| rules::look(&t, file.format, &file.parts, &machine.launch).ok())
            .unwrap_or_default();
        all.extend(approvals_in(machine, &file, &found).into_iter().flatten());
    }
    all
}

/// Codex notes approvals in its user's `config.toml`, whichever file the hooks are in.
fn with_trust(machine: &Machine, mut all: Vec<HostFile>) -> Vec<HostFile> {
    let mut keys = Vec::new();
    for file in &all {
        let text = files::look(&file.path).ok().and_then(|seen| seen.text);
        let found =
            text.and_then(|t| rules::look(&t, file.format, &file.parts, &machine.launch).ok());
        keys.extend(
            found
                .map(|found| trust_keys(file, &found).concat())
                .unwrap_or_default(),
        );
    }
    let config = machine.places.codex.join("config.toml");
    match all.iter_mut().find(|file| file.path == config) {
        Some(file) => file.parts.push(Part::Trust(keys)),
        None => all.push(HostFile {
            path: config,
            format: Format::Toml,
            parts: vec![Part::Trust(keys)],
            shared: false,
        }),
    }
    all
}

/// Works out how a host's files become what they were.
pub fn plan_end(home: &Home, machine: &Machine, host: Host, scope: Scope) -> Result<Plan> {
    let manifest = Manifest::load(home)?;
    let owner = machine.owner(host, scope);
    let mut plan = Plan {
        host,
        scope,
        files: Vec::new(),
        notes: Vec::new(),
        approvals: Vec::new(),
        owner: owner.clone(),
        program: machine.launch.program.clone(),
    };
    let mut wrong = Vec::new();
    let mut looked_at = Vec::new();
    let mut everywhere = machine.everywhere(host, scope);
    if host == Host::Codex {
        everywhere = with_trust(machine, everywhere);
    }
    for file in everywhere {
        let shown = file.path.display().to_string();
        match plan_end_of(home, machine, &manifest, &owner, file) {
            Ok(Some(planned)) => {
                looked_at.push(planned.seen.real.clone());
                plan.files.push(planned);
            }
            Ok(None) => {}
            Err(e) => wrong.push(format!("{shown}: {e:#}")),
        }
    }
    if !wrong.is_empty() {
        bail!("{}; nothing was changed", wrong.join("; "));
    }
    for kept in manifest.files.iter().filter(|k| k.owners.contains(&owner)) {
        if !looked_at.contains(&kept.path) && kept.path.exists() {
            plan.notes.push(format!(
                "{} was connected under other settings (CLAUDE_CONFIG_DIR, CODEX_HOME, \
                 XDG_CONFIG_HOME): set them as they were then, and disconnect again",
                kept.path.display()
            ));
        }
    }
    Ok(plan)
}

fn plan_end_of(
    home: &Home,
    machine: &Machine,
    manifest: &Manifest,
    owner: &Owner,
    file: HostFile,
) -> Result<Option<Planned>> {
    let seen = files::look(&file.path)?;
    let kept = manifest.of(&seen.real).filter(|k| k.owners.contains(owner));
    if seen.text.is_none() {
        // It went without us; there is only the note to forget.
        return Ok(kept.map(|kept| Planned {
            after: None,
            undo: Vec::new(),
            folders: kept.folders.clone(),
            end: End::Removed,
            seen,
            file,
        }));
    }
    let found = rules::look(seen.text(), file.format, &file.parts, &machine.launch);
    let found = found.map_err(|refusal| anyhow::anyhow!("{refusal}"));
    // What was never ours may be as broken as it likes.
    if kept.is_none() && !found.as_ref().is_ok_and(rules::Found::any) {
        return Ok(None);
    }
    let alone = kept.is_some_and(|k| k.owners == [owner.clone()]);
    let seen = see(&file.path)?;
    let original = kept.filter(|_| alone).and_then(|k| k.original(home, &seen));
    let (after, end) = match original {
        Some(Original::Text(text)) => (Some(text), End::Restored),
        Some(Original::Nothing) => (None, End::Removed),
        None if kept.is_some_and(|k| seen.hash() == k.before) => (seen.text.clone(), End::Restored),
        None => {
            found?;
            // The block stays as long as anybody else wants it.
            let others = kept.is_some_and(|k| k.owners.len() > 1);
            let parts = file.parts.iter().filter(|p| !others || **p != Part::Block);
            let parts: Vec<Part> = parts.cloned().collect();
            let undo = kept.map(|k| k.undo.as_slice());
            let text = rules::remove(seen.text(), file.format, &parts, undo, &machine.launch);
            let text = text.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
            let made = kept.is_some_and(|k| k.before.is_none()) && !others;
            match made && is_empty(&text, file.format) {
                true => (None, End::Removed),
                false => (Some(text), End::TakenOut),
            }
        }
    };
    Ok(Some(Planned {
        folders: kept.map(|k| k.folders.clone()).unwrap_or_default(),
        undo: Vec::new(),
        after,
        end,
        seen,
        file,
    }))
}

/// Whether nothing but what hosts add by themselves is left in a file.
fn is_empty(text: &str, format: Format) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    match format {
        Format::Json(dialect) => {
            let value = rules::json::parse(text, dialect).map(|n| n.to_value());
            let left = value.ok().and_then(|v| v.as_object().cloned());
            left.is_some_and(|left| left.keys().all(|k| k == "$schema" || k == "version"))
        }
        _ => text.trim().is_empty(),
    }
}

/// Puts the files back, and forgets what was noted about them. Returns the copies that stay.
pub fn apply_end(home: &Home, plan: &Plan) -> Result<Vec<PathBuf>> {
    if plan.files.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = backups::lock(home)?;
    let mut manifest = Manifest::load(home)?;
    let changes: Vec<Change> = plan.changes().map(Planned::change).collect();
    files::write_all(&changes)?;
    let mut copies = Vec::new();
    for planned in &plan.files {
        if planned.after.is_none() {
            files::remove_empty(&planned.folders);
        }
        let (was, now) = (planned.seen.hash(), planned.after.as_deref().map(hash));
        let path = &planned.seen.real;
        let kept = manifest.release(home, path, &plan.owner, was.as_deref(), now.as_deref());
        copies.extend(kept);
    }
    manifest.save(home)?;
    Ok(copies)
}

/// How a status line stands, in words.
fn line_words(line: Option<&Line>) -> &'static str {
    match line {
        None => "none",
        Some(Line::Theirs) => "yours",
        Some(Line::Ours(ours)) if ours.theirs.is_some() => "prism, with yours inside",
        Some(Line::Ours(_)) => "prism",
    }
}
