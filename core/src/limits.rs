//! Every bound Prism keeps, with its unit, and how the bounds relate.

/// Entries kept in the ring file of one identity.
pub const RING_ENTRIES_MAX: usize = 50;
/// Characters (Unicode scalar values) of a summary in the ring, ellipsis included.
pub const SUMMARY_CHARS_MAX: usize = 120;
/// Characters of the statusline preview, ellipsis included.
pub const PREVIEW_CHARS_MAX: usize = 60;
/// Age in seconds below which the statusline previews an ASK or BLOCKER.
pub const PREVIEW_AGE_S: i64 = 30;
/// Size of a ring file above which it is taken for foreign and not read.
pub const RING_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Size of a count file above which it is not read: it is some hundred bytes long.
pub const COUNT_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Size of any other file of a home above which it is not read.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Size of a host's own file above which it is left alone.
pub const HOST_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a user's own status line that are passed on; the rest is not read.
pub const OWN_LINE_BYTES_MAX: usize = 8 * 1024;
/// Lines of a user's own status line that are passed on.
pub const OWN_LINES_MAX: usize = 5;
/// Seconds that `prism_wait` waits unless told otherwise: below a minute, at which hosts lose
/// patience with a tool.
pub const WAIT_DEFAULT_S: u64 = 50;
/// Seconds that `prism_wait` waits at most.
pub const WAIT_MAX_S: u64 = 60;
/// Bytes of the background server's log above which a new file is begun.
pub const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Older files of that log that are kept.
pub const LOG_GENERATIONS: usize = 3;
/// Copies of the database, each made before an upgrade, that are kept.
pub const BACKUPS_KEPT: usize = 3;
/// Bytes of a path that names a Unix socket, as far as every system allows.
pub const SOCKET_PATH_BYTES_MAX: usize = 100;
/// Characters of a terminal's title, ellipsis included.
pub const TITLE_CHARS_MAX: usize = 120;

/// Bytes of one HTTP request body.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one signal payload, as compact JSON.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Levels of objects and arrays in one signal payload, itself included. An answer wraps it into a
/// few more, and readers of JSON give up at 128.
pub const PAYLOAD_DEPTH_MAX: usize = 32;
/// Bytes of one WebSocket message in either direction.
pub const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Requests a second that one key may sustain.
pub const RATE_PER_S: u32 = 50;
/// Requests that one key may send in a burst.
pub const RATE_BURST: u32 = 500;
/// Connections that one server holds at once, unless `[limits] connections` says otherwise.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Files that a server opens besides its connections: database, logs, pipes of the worker.
pub const FILES_RESERVED: usize = 96;
/// The oldest PostgreSQL that Prism stands on.
pub const POSTGRES_MIN: u32 = 14;
/// Milliseconds by which the clocks of a server and its database may differ before it is said.
pub const CLOCK_OFF_MS_MAX: i64 = 2_000;
/// Microseconds from now after which a moment was noted by a clock that was set back since.
pub const CLOCK_AHEAD_US: i64 = CLOCK_OFF_MS_MAX * 1_000;
/// What two clocks may differ by and still agree.
pub const CLOCK_SLACK_US: i64 = SECOND_US / 4;
/// Seconds that a connection may take to bring its first request, and a request its body.
pub const FIRST_REQUEST_S: u64 = 10;
/// Seconds that a connection may be idle after a request; WebSockets have limits of their own.
pub const IDLE_CONNECTION_S: u64 = 60;
/// Seconds that a connection may leave its answer unread.
pub const UNREAD_ANSWER_S: u64 = 20;
/// Connections that a shim's own door holds at once.
pub const SHIM_CONNECTIONS_MAX: usize = 32;
/// Bytes of one request at a shim's door: what a host tells its hook, and a little.
pub const SHIM_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Seconds that a request at a shim's door may take to arrive.
pub const SHIM_REQUEST_S: u64 = 5;
/// Sockets that one identity may hold at once.
pub const SOCKETS_PER_IDENTITY_MAX: usize = 64;
/// Envelopes waiting for one socket before it is served from the store instead.
pub const OUTBOX_FRAMES_MAX: usize = 64;
/// Rows read from the store in one replay step.
pub const REPLAY_ROWS: usize = 64;

/// Newest places of an inbox in which whoever has no session dismisses all it was given.
pub const DISMISSED_LATELY_MAX: usize = 2_000;
/// Signals that one call dismisses by name.
pub const DISMISS_IDS_MAX: usize = 1_000;

/// Inputs that one call reviews.
pub const REVIEW_IDS_MAX: usize = 1_000;

/// Signals that may wait in one inbox.
pub const INBOX_WAITING_MAX: usize = 10_000;
/// Sessions of one identity that may be open at once.
pub const SESSIONS_PER_IDENTITY_MAX: usize = 64;
/// Sessions of others that one answer lists.
pub const PEERS_MAX: usize = 50;
/// Pages that watch one server at once.
pub const PAGES_MAX: usize = 128;
/// Frames waiting for one page; a slower one reads everything again.
pub const PAGE_FRAMES_MAX: usize = 64;
/// Rows that may change between two frames; more mean that everything is read again.
pub const PAGE_CHANGES_MAX: usize = 2_000;
/// Seconds between two signs of life on a page's socket.
pub const PAGE_BEAT_S: u64 = 15;
/// Seconds that a link to the page is good for.
pub const LINK_S: i64 = 30;
/// Links that wait to be used; an older one gives way.
pub const LINKS_MAX: usize = 16;
/// Days that a browser stays signed in.
pub const BROWSER_DAYS: i64 = 30;
/// Browsers that are signed in at once; the one that signed in first gives way.
pub const BROWSERS_MAX: usize = 32;
/// Characters of what a browser calls itself.
pub const BROWSER_NAME_CHARS_MAX: usize = 120;
/// Cookies of the page's name that one request may bring to be tried.
pub const COOKIES_TRIED_MAX: usize = 16;
/// Rows of one page of a list unless asked otherwise, and at the most.
pub const PAGE_ROWS: usize = 50;
pub const PAGE_ROWS_MAX: usize = 200;
/// Rows that one page of a list looks at in a project to find those that were asked for.
pub const PAGE_LOOK_ROWS: usize = 10_000;
/// Signals of one conversation that are shown.
pub const THREAD_MAX: usize = 200;
/// Characters of a row's text in a list.
pub const PAGE_TEXT_CHARS: usize = 280;
/// Characters of the operator's words, and of what they were said to, in a list.
pub const PAGE_WORDS_CHARS: usize = 600;
/// Words that a list may be searched for at once.
pub const PAGE_WORDS_MAX: usize = 8;
/// Rows of each kind that `now` lists.
pub const NOW_ROWS: usize = 50;
/// Buckets that a range of metrics may have.
pub const BUCKETS_MAX: usize = 400;

/// Watching sockets of the operator that one server holds.
pub const WATCHERS_MAX: usize = 64;
/// Frames about signals (drained, ended, events) waiting for one socket.
pub const CONTROL_FRAMES_MAX: usize = 256;
/// Bytes of such frames waiting for one socket; what is watched is sent whole.
pub const CONTROL_BYTES_MAX: usize = 1024 * 1024;
/// Signal ids in one receipt frame; the rest of a longer one is not read.
pub const RECEIPT_IDS_MAX: usize = 1_000;
/// Leases that one hello confirms; a client with more confirms the rest by verb.
pub const HELLO_CONFIRMS_MAX: usize = 1_000;
/// Undrained ids that a hello lists; a longer backlog is read by draining it.
pub const HELLO_PENDING_MAX: usize = 1_000;
/// Writes that somebody waits for in the writer's queue; the next one waits for a place.
pub const WRITER_JOBS_MAX: usize = 4_096;
/// Writes that nobody waits for in the writer's queue.
pub const LATER_JOBS_MAX: usize = 4_096;
/// Deliveries (one signal in one session) with facts that wait for a commit.
pub const RIDING_FACTS_MAX: usize = 20_000;

/// Bytes of one message between servers: PostgreSQL's NOTIFY takes 7,999.
pub const BUS_MESSAGE_BYTES_MAX: usize = 7_900;
/// Ids or rows that one such message lists; a longer list goes in several.
pub const BUS_LIST_MAX: usize = 100;
/// Messages that wait to be carried to other servers; what comes on top is not carried.
pub const BUS_WAITING_MAX: usize = 8_192;
/// Messages that one write to the carrier takes along.
pub const BUS_BATCH_MAX: usize = 128;
/// Seconds between two signs of life of a server.
pub const BUS_BEAT_S: u64 = 5;
/// Seconds without one after which a server is not there: two of them were missed.
pub const BUS_GONE_S: u64 = 2 * BUS_BEAT_S + 2;
/// Seconds of silence, its own signs of life included, after which a server listens anew.
pub const BUS_SILENCE_S: u64 = 15;
/// Milliseconds of the first and of the longest pause before a carrier is tried again.
pub const BUS_PAUSE_MS: u64 = 100;
pub const BUS_PAUSE_MAX_MS: u64 = 3_000;
/// Seconds that a carrier may take to answer.
pub const BUS_ANSWER_S: u64 = 5;

/// Envelopes that ride on the answer of one verb.
pub const PIGGYBACK_SIGNALS_MAX: usize = 20;
/// Bytes of payloads that ride on the answer of one verb; the first one rides whatever its size.
pub const PIGGYBACK_BYTES_MAX: usize = 64 * 1024;
/// Bytes of payloads that one `prism_signals_pending` returns; the first one whatever its size.
pub const PENDING_BYTES_MAX: usize = 1024 * 1024;
/// Envelopes that one `prism_signals_pending` returns unless asked otherwise.
pub const PENDING_DEFAULT: usize = 50;
/// Envelopes that one `prism_signals_pending` may be asked for.
pub const PENDING_MAX: usize = 200;
/// Characters of an idempotency key.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 128;
/// Characters of a note on an acknowledgment.
pub const NOTE_CHARS_MAX: usize = 2_000;
/// Acknowledgments of one signal that are kept, and as many leases of it that came back: newer ones
/// take the place of older ones.
pub const ACKS_PER_SIGNAL_MAX: usize = 20;

/// Characters of the name an agent gives its session.
pub const SESSION_NAME_CHARS_MAX: usize = 64;

/// Characters of one text field of memory.
pub const TEXT_CHARS_MAX: usize = 50_000;
/// Items in one list field of memory.
pub const LIST_ITEMS_MAX: usize = 500;
/// Dead ends in one checkpoint or wrap; each is embedded by itself.
pub const RULED_OUT_MAX: usize = 100;
/// Characters of the path of one file.
pub const PATH_CHARS_MAX: usize = 1_024;
/// Characters of one tag.
pub const TAG_CHARS_MAX: usize = 200;
/// Characters of one loop that stays open.
pub const OPEN_LOOP_CHARS_MAX: usize = 2_000;

/// Questions that one row may say it answers, and the characters of each.
pub const ASKED_AS_MAX: usize = 3;
/// The same, with blank ones and repetitions.
pub const ASKED_AS_GIVEN_MAX: usize = 20;
pub const ASKED_AS_CHARS_MAX: usize = 300;

/// Bytes, as JSON, that `prism_start` tells of the past.
pub const OPENING_BYTES_MAX: usize = 64 * 1024;
/// Bytes, as JSON, that a pickup tells of the past.
pub const PICKUP_BYTES_MAX: usize = 128 * 1024;
/// Bytes, as JSON, of one list of todos, specs, plans or deltas.
pub const LISTED_BYTES_MAX: usize = 160 * 1024;

/// Ends of a whole path that are held against the surfaces, the shortest first.
pub const PATH_ENDS_MAX: usize = 32;
/// Bytes, as JSON, of the files that a shim adds to a checkpoint, and so of the surfaces.
pub const ADDED_LIST_BYTES_MAX: usize = 64 * 1024;
/// Globs that one project may name as surfaces the operator sees.
pub const SURFACE_GLOBS_MAX: usize = 200;
/// Characters of one such glob.
pub const SURFACE_GLOB_CHARS_MAX: usize = 500;
/// Characters of all of a project's globs together; matching costs as much for each path.
pub const SURFACE_GLOBS_CHARS_MAX: usize = 10_000;

/// Milliseconds that a call of a host's hook may take, from its start to its end.
pub const HOOK_MS: u64 = 50;
/// Bytes of an event that a host hands its hook; a larger one is passed over.
pub const HOOK_EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Seconds that a hook waits beside an idle session of Claude Code at the most; the host, which is
/// told a little more, is never the one to end it.
pub const REWAKE_WAIT_S: u64 = 86_000;
/// Characters of a prompt that may be the operator's words; longer ones are pasted.
pub const HOOK_PROMPT_CHARS_MAX: usize = 1_500;
/// Characters that a session is told at its start by a hook.
pub const HOOK_OPENING_CHARS_MAX: usize = 1_500;
/// Corrections among them.
pub const HOOK_CORRECTIONS_MAX: usize = 5;

/// Microseconds in one second.
pub const SECOND_US: i64 = 1_000_000;
/// Microseconds in one day.
pub const DAY_US: i64 = 24 * 3600 * SECOND_US;
/// How long the operator of an upgraded home is told of old rows before the first goes.
pub const PRUNE_NOTICE_US: i64 = 7 * DAY_US;
/// From the beginning of one look at all old rows to that of the next.
pub const PRUNE_REST_US: i64 = 3600 * SECOND_US;
/// Old rows looked at in one step, and the most that go in one commit.
pub const PRUNE_ROWS: usize = 100;
/// Steps in one round of housekeeping.
pub const PRUNE_STEPS: usize = 10;
/// How long a drain waits for the shim to confirm that the host has it.
pub const LEASE_US: i64 = 30 * SECOND_US;
/// A lease that ends later than this from now was given before the clock was set back. Twice as long
/// as a lease is: whoever looks may have read the clock before the lease was given.
pub const LEASE_AHEAD_US: i64 = 2 * LEASE_US;
/// How often a shim sends a heartbeat.
pub const HEARTBEAT_S: u64 = 30;
/// Silence of a server after which a shim takes its socket for dead and opens another.
pub const STREAM_SILENCE_US: i64 = 75 * SECOND_US;
/// Silence after which a session counts as stale.
pub const STALE_US: i64 = 90 * SECOND_US;
/// Silence after which a stale session is released for good.
pub const SWEPT_US: i64 = 24 * 3600 * SECOND_US;
/// For how long one of several servers has what it does for all of them, unless it goes on with it.
pub const DUTY_US: i64 = 30 * SECOND_US;
/// For how long rows are one server's to embed.
pub const EMBED_TAKEN_US: i64 = 300 * SECOND_US;
/// How long a bell stands for later signals before the next one rings again.
pub const BELL_COALESCE_US: i64 = 60 * SECOND_US;
/// How long a host may take to accept a bell.
pub const BELL_HANDOVER_S: u64 = 2;
/// How long a host that tells of its prompts may take to tell of a bell before it is rung again.
pub const BELL_UNRENDERED_US: i64 = 10 * SECOND_US;
/// Bells that a shim remembers, to know one when the host tells of it.
pub const BELLS_REMEMBERED: usize = 64;
/// Notes about bells for one signal that are kept of one session.
pub const BELL_NOTES_MAX: usize = 16;
/// Characters of such a note.
pub const BELL_NOTE_CHARS_MAX: usize = 200;
/// From the birth of a Codex thread to the start of its shim, at the most.
pub const CODEX_THREAD_US: i64 = SECOND_US;
/// The same on a server that holds threads of one identity alone.
pub const CODEX_OWN_THREAD_US: i64 = 10 * SECOND_US;
/// How long `codex queue` may take.
pub const CODEX_QUEUE_S: u64 = 10;
/// How long a signal that cannot climb right now waits until it is looked at again.
pub const ESCALATION_RETRY_US: i64 = 2 * SECOND_US;
/// Signals that one round of escalation looks at.
pub const ESCALATION_ROWS: usize = 100;
/// How long the operator's `notify` command may run.
pub const NOTIFY_S: u64 = 10;
/// How long the operator's `notify` command is left alone that could not be started.
pub const NOTIFY_RETRY_US: i64 = 60 * SECOND_US;
/// How long a send whose fate is unknown is retried under its key, in all.
pub const SEND_RETRY_S: u64 = 10;
/// Life of a signal whose sender named none.
pub const TTL_S: i64 = 7 * 24 * 3600;
/// Life of an INFO that answers nothing.
pub const TTL_INFO_S: i64 = 24 * 3600;
/// Life of a probe.
pub const TTL_LOOPBACK_S: i64 = 600;
/// The longest life a sender may ask for.
pub const TTL_S_MAX: i64 = 90 * 24 * 3600;

/// Results of earlier probes that are listed unless asked otherwise.
pub const LOOPBACK_RUNS_DEFAULT: usize = 20;
/// Results of earlier probes that may be asked for.
pub const LOOPBACK_RUNS_MAX: usize = 500;
/// Recalls of one actor that the gate looks at for one assignment.
pub const GATE_RECALLS_MAX: usize = 256;
/// How long the gate waits for somebody who has no session that could end.
pub const GATE_WINDOW_US: i64 = 24 * 3600 * SECOND_US;

// The preview is cut from the summary, so it can never be the longer one.
const _: () = assert!(PREVIEW_CHARS_MAX <= SUMMARY_CHARS_MAX);
// A payload travels inside a body and inside a frame, each with its wrapping.
const _: () = assert!(PAYLOAD_BYTES_MAX * 2 <= BODY_BYTES_MAX);
// What a shim adds to a checkpoint leaves room for what the agent says.
const _: () = assert!(2 * ADDED_LIST_BYTES_MAX + TEXT_CHARS_MAX < BODY_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX <= CONTROL_BYTES_MAX);
// A frame of ids, each 36 digits with quotes and comma, fits into a message.
const _: () = assert!(RECEIPT_IDS_MAX * 39 < FRAME_BYTES_MAX);
const _: () = assert!(HELLO_PENDING_MAX * 39 < FRAME_BYTES_MAX);
// A session must be able to miss two heartbeats before it is called stale.
const _: () = assert!(HEARTBEAT_S as i64 * SECOND_US * 3 <= STALE_US);
// A live server answers at least two heartbeats before a shim gives its socket up, and the
// shim is back before it counts as stale.
const _: () = assert!(2 * HEARTBEAT_S as i64 * SECOND_US < STREAM_SILENCE_US);
const _: () = assert!(STREAM_SILENCE_US < STALE_US);
const _: () = assert!(PIGGYBACK_SIGNALS_MAX <= PENDING_DEFAULT && PENDING_DEFAULT <= PENDING_MAX);
