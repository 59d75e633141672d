// Made by `prism wire-types > dashboard/src/wire.ts` from the server's own types. Do not edit.

/** The project's place in a path that means every project. */
export const EVERYWHERE = "*";

export type Code = "invalid_request" | "unknown_signal_type" | "unknown_category" | "invalid_identity" | "no_inbox" | "broadcast_unsupported" | "trace_id_as_in_reply_to" | "ambiguous_reference" | "missing_key" | "invalid_key" | "operator_only" | "no_persona" | "foreign_origin" | "foreign_host" | "not_yours" | "foreign_folder" | "unknown_project" | "unknown_recipient" | "unknown_identity" | "unknown_signal" | "unknown_session" | "unknown_reference" | "unknown_verb" | "not_found" | "method_not_allowed" | "request_timeout" | "identity_fixed" | "idempotency_conflict" | "recipient_unavailable" | "conflict" | "session_released" | "too_large" | "wrong_content_type" | "client_too_old" | "too_many_requests" | "too_many_connections" | "inbox_full" | "too_many_sessions" | "internal" | "storage_unavailable" | "server_unreachable" | "outcome_unknown";

/** What a refused call answers. */
export interface Refusal {
  error: { code: Code; message: string; hint: string; [more: string]: unknown };
}

export interface Acknowledged {
  ok: boolean;
  warnings?: GateWarning[];
}

/** How often what an agent captured was no such thing. */
export interface AgentRate {
  agent: string;
  captured: number;
  /** rejected / reviewed; none before anything was reviewed. */
  rate?: number | null;
  rejected: number;
  reviewed: number;
}

export interface AgentTally {
  agent: string;
  counted: number;
  misclassification_rate: number;
  rejected: number;
  unreviewed: number;
}

/** One persona in one project, and what it is at. */
export interface AgentView {
  identity: string;
  /** The last thing it wrote down. */
  last_delta?: LastDelta | null;
  oldest_unread_at?: string | null;
  operator: boolean;
  pid: string;
  /** What was last proven to reach it. */
  reachable?: Reachable | null;
  /** Its open sessions, the one that was last at work first. */
  sessions: SessionRow[];
  sessions_more?: number;
  state: "live" | "stale" | "offline" | "never_started" | "operator";
  /** The newest task that it has read and not acted on. */
  task?: SignalRow | null;
  unread: ByCategory;
}

export interface Agents {
  agents: AgentView[];
}

export interface ArtifactView {
  body?: string;
  created_at: string;
  fields?: Record<string, unknown>;
  id: string;
  identity: string;
  kind: string;
  /** What is not shown here: characters of a text, items of a list. */
  more?: Record<string, number>;
  number?: number | null;
  status: string;
  /** The row that took its place. */
  superseded_by?: string | null;
  title: string;
  updated_at: string;
  version: number;
}

export interface Artifacts {
  id?: string | null;
  item?: ArtifactView | null;
  items?: ArtifactView[] | null;
  number?: number | null;
  version?: number | null;
  warnings?: GateWarning[];
}

export interface AskDelivery {
  /** hour, day or week; day unless said. At most 400 buckets. */
  bucket?: "hour" | "day" | "week" | null;
  /** Left out: 28 days before `until`. */
  since?: string | null;
  /** Left out: now. */
  until?: string | null;
}

export interface AskDemo {
  /** Take the demonstration project away instead. */
  remove?: boolean;
  /** What is told is the same for every seed; delays, and ids of signals, sessions, recalls and probes, are those of the seed. Ids of memory are new each time. */
  seed?: number | null;
}

export interface AskMetrics {
  /** hour, day or week; day unless said. At most 400 buckets. */
  bucket?: "hour" | "day" | "week" | null;
  /** Only these: confirmations, misclassification, corrections, dead_ends, surfaces, repeats, recall or gate. None: all of them. */
  only?: ("confirmations" | "misclassification" | "corrections" | "dead_ends" | "surfaces" | "repeats" | "recall" | "gate")[];
  /** Left out: 28 days before `until`. */
  since?: string | null;
  /** Left out: now. */
  until?: string | null;
}

export interface AskRot {
  /** Globs of files whose effect the operator sees; none means the default ones. */
  surfaces?: string[];
}

export interface AskStory {
  cursor?: string | null;
  identity?: string | null;
  /** 1 to 200; 50 unless said. */
  limit?: number | null;
  /** Only what belongs to the conversation of this signal (id, or its first 8 digits). */
  signal_id?: string | null;
  since?: string | null;
  until?: string | null;
}

/** How many are unread, by category. */
export interface ByCategory {
  ASK: number;
  BLOCKER: number;
  INFO: number;
  TASK: number;
}

export interface Captured {
  captured: boolean;
  id?: string | null;
  reason?: string | null;
}

/** Which row to read again; a page that shows no such row need not. */
export interface Change {
  /** What the operator should do about a signal. */
  category?: "INFO" | "TASK" | "ASK" | "BLOCKER" | null;
  /** The row; none: several, or all of this kind. */
  id?: string | null;
  pid: string;
  /** For a signal: what became known, its category and recipient. */
  state?: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed" | null;
  to?: string | null;
  /** What changed. */
  what: "signal" | "session" | "memory" | "review" | "recall" | "gate" | "probe" | "settings";
}

export interface Cite {
  /** What it supported. */
  for?: string | null;
  /** What semantic_recall answered, or at least its first 8 digits; so with the result. */
  recall_event_id: string;
  result_id: string;
}

export interface Confirm {
  /** What the operator saw, in their words. */
  notes?: string | null;
  /** delta:<id>, signal:<id>, spec:<name> or commit:<sha> */
  refers_to: string;
  /** works, broken or partial */
  verdict: string;
}

export interface ConfirmationView {
  confirmed_at: string;
  confirmed_by: string;
  confirmed_via: string;
  directness: string;
  id: string;
  notes?: string | null;
  refers_to: string;
  verdict: string;
}

/** Verdicts over time. */
export interface Confirmations {
  /** Share of `works` among the verdicts of each bucket; none where there was none. */
  rate: (number | null)[];
  series: VerdictSeries[];
  total: number;
  works: number;
}

export interface Confirmed {
  confirmed: number;
}

/** What agents were doing when the operator corrected them, grouped by what they share. */
export interface CorrectionPattern {
  agents: string[];
  /** The newest few. */
  examples: Example[];
  /** One of the actions, as it was written. */
  label: string;
  n: number[];
  /** The stems that every action of the group shares; none: the action was not noted. */
  shared: string[];
  total: number;
}

/** A way into the page: for one browser, once, and soon. */
export interface DashboardLink {
  expires_at: string;
  url: string;
}

export interface DeadEnds {
  again: number[];
  /** Walked into again, by bucket of the second time. */
  again_total: number;
  n: number[];
  /** The newest first. */
  pairs: Pair[];
  total: number;
}

export interface Decide {
  /** Up to three questions that this answers, in the operator's words. */
  asked_as?: string[];
  consequences?: string | null;
  context: string;
  decision: string;
  /** Number or id of the decision this replaces. */
  supersedes?: string | null;
  title: string;
}

/** Whether signals arrive, by surface and machine. */
export interface DeliveryAnswer {
  /** How a range is divided; days and weeks are those of UTC, weeks begin on Monday. */
  bucket: "hour" | "day" | "week";
  buckets: string[];
  places: DeliveryPlace[];
  /** From when on every probe was looked at; none: all of the range were. */
  probes_from?: string | null;
  /** From when on every signal was looked at for its times; none: all of the range were. */
  signals_from?: string | null;
  since: string;
  until: string;
}

export interface DeliveryPlace {
  complete: number;
  /** Runs that were not complete, over all. */
  drop_rate?: number | null;
  dropped: number[];
  last_run_at?: string | null;
  layers: LayerTimes[];
  machine_id: string;
  /** Runs, and how many of them were not complete, by bucket. */
  n: number[];
  partial: number;
  runs: number;
  /** Its open sessions, by which a probe can be run. */
  sessions: SessionRow[];
  /** How signals fared that were pushed there. */
  signals: StateTimes[];
  surface: string;
  timeout: number;
}

export interface DeltaView {
  created_at: string;
  id: string;
  identity: string;
  kind: string;
  /** What is not shown here: characters of a text, items of a list. */
  more?: Record<string, number>;
  next?: string | null;
  open_loops?: string[];
  /** The three answers of an integration narrative. */
  operator_sees?: string | null;
  operator_visible_effect?: string | null;
  pieces?: string[];
  session_id?: string | null;
  subject?: string | null;
  summary: string;
  surface: string;
  tags?: string[];
  touched_files?: string[];
  tried_and_ruled_out?: RuledOut[];
  would_break_it?: string | null;
}

export interface Deltas {
  /** Only this delta (id, or a prefix of at least 8 digits), and all of it. */
  id?: string | null;
  kind?: string | null;
  n?: number | null;
  since?: string | null;
}

export interface DeltasAnswer {
  deltas: DeltaView[];
  /** How many more there are than fit into one answer. */
  more?: number | null;
}

export interface DemoDone {
  /** False: there was nothing to remove, or it stood already. */
  changed: boolean;
  pid: string;
  rows: Record<string, number>;
}

export interface Dismissed {
  dismissed: number;
  /** Only so many of the newest places in the inbox were looked at, and it has more. */
  only_newest?: number | null;
}

export interface Document {
  /** create, update, get or list */
  action: string;
  body?: string | null;
  number?: number | null;
  status?: string | null;
  title?: string | null;
  version?: number | null;
}

export interface Echo {
  expected: boolean;
  observed_at: string | null;
  signal_id: string | null;
}

export interface EchoAsked {
  expected: boolean;
  observed_at?: string | null;
  signal_id?: string | null;
}

/** One signal as it travels: on the socket, on a verb's answer, to the ring. */
export interface Envelope {
  /** What the operator should do about a signal. */
  category?: "INFO" | "TASK" | "ASK" | "BLOCKER" | null;
  created_at?: string | null;
  from_identity: string;
  from_session: string | null;
  in_reply_to: string | null;
  payload: Record<string, unknown>;
  /** The project it belongs to, as people type it. */
  pid?: string | null;
  /** Place in the recipient's inbox; an event about the mesh has none. */
  seq?: number | null;
  signal_id: string;
  /** A name, not the closed enum: a receiver must survive types newer than itself. */
  signal_type: string;
  to_identity: string;
  trace_id?: string | null;
}

export interface Example {
  at: string;
  id: string;
  identity: string;
  pid: string;
  text: string;
}

export interface FolderView {
  /** The operator allowed it; otherwise the project was first used there. */
  allowed: boolean;
  folder: string;
  machine_id: string;
  since: string;
}

export interface GateEventView {
  assignment_id: string;
  id: string;
  occurred_at: string;
  outcome: string;
  persona: string;
  recall_count: number;
  right: boolean | null;
  surface: string;
  task_class: string;
  trigger: string;
}

export interface GateEvents {
  events: GateEventView[];
}

export interface GateLabel {
  /** The warning's id, or its first 8 digits. */
  event_id: string;
  /** Whether the warning was right. */
  right: boolean;
}

export interface GateLabelled {
  event_id: string;
  right: boolean;
}

export interface GateMetrics {
  labelled: number;
  labelled_right: number;
  labels_needed: number;
  precision?: number | null;
  precision_target: number;
  satisfied: number[];
  /** ok, low or too_few_labels */
  verdict: string;
  warned: number[];
}

export interface GatePage {
  events: GateRow[];
  next?: string | null;
}

export interface GateReport {
  by_class: GateTally[];
  by_day: GateTally[];
  by_identity: GateTally[];
  labelled: number;
  labelled_right: number;
  /** Labels that a verdict needs. */
  labels_needed: number;
  /** None until anything is labelled. */
  precision: number | null;
  precision_target: number;
  satisfied: number;
  /** ok, low or too_few_labels */
  verdict: string;
  warned: number;
}

export interface GateRow {
  /** The assignment in a few words, while it is kept. */
  assignment?: string | null;
  assignment_id: string;
  id: string;
  labelled_at?: string | null;
  occurred_at: string;
  /** What the gate noticed of an assignment. */
  outcome: "warned" | "satisfied";
  persona: string;
  pid: string;
  recall_count: number;
  /** Whether the warning was right, as the operator said. */
  right?: boolean | null;
  surface: string;
  /** tier1 or tier2 */
  task_class: string;
  /** ack, todo_add, material_output or recall */
  trigger: string;
}

export interface GateTally {
  name: string;
  satisfied: number;
  warned: number;
}

/** The advice that rides on an acknowledgment or a new todo. */
export interface GateWarning {
  assignment_id?: string | null;
  kind: string;
  remediation: string;
  suggested_query?: string | null;
  task_class?: string | null;
}

export interface GraphAnswer {
  edges: GraphEdge[];
  node: GraphNode;
}

export interface GraphEdge {
  kind: string;
  node: GraphNode;
  out: boolean;
}

export interface GraphNode {
  id: string;
  kind: string;
  title: string;
}

export interface GraphShow {
  /** A row's id (or its first 8 digits), signal:<id>, or a thing such as spec:SPEC-060, commit:<sha> or path:core/src/ring.rs */
  id: string;
}

/** One agent host on the server's machine, as `prism connect --check` finds it. */
export interface HostConnected {
  /** Prism's server or hooks stand in its files. */
  connected: boolean;
  /** Hooks that are there, and those that are missing. */
  hooks: number;
  hooks_missing: number;
  host: string;
  /** Whether the host is there at all. */
  installed: boolean;
  problems: string[];
  /** Whether its file names Prism as a server of tools. */
  server: boolean;
  /** ours, theirs, both or none; none where the host has no such line. */
  statusline?: string | null;
}

export interface Id {
  id: string;
  number?: number | null;
  version?: number | null;
  warnings?: Warning[];
}

export interface Import {
  /** Check, and write nothing. */
  dry_run?: boolean;
  lines: ImportLine[];
  /** The file's name: the same line of the same source is written once. */
  source: string;
}

export interface ImportLine {
  /** Where in the file it stands. */
  line: number;
  row: unknown;
}

export interface Imported {
  /** Ids of those that have changed in the file since; what was imported stands. */
  changed?: string[];
  /** The file's ids and ours. */
  ids: Record<string, string>;
  imported: number;
  /** Lines that were in already. */
  known: number;
  /** Ids of routine acks, which are never captured. */
  routine?: string[];
}

/** What waits in an inbox, in the order in which it would be read. */
export interface InboxPage {
  identity: string;
  next?: string | null;
  signals: SignalRow[];
  unread: ByCategory;
}

export interface InboxRead {
  /** How many of them waited; the others were read or had ended. */
  read: number;
}

/** Newest first. */
export interface InputPage {
  inputs: InputRow[];
  next?: string | null;
}

export interface InputRow {
  captured_at: string;
  captured_via: string;
  class: "correction" | "confirmation" | "direction_pivot";
  /** high or low */
  confidence: string;
  id: string;
  /** Characters that were left out of both. */
  more?: number;
  /** accepted or rejected; none: nobody has said. */
  operator_review?: string | null;
  pid: string;
  /** Long words are cut, and so is what was being done; `memory_show` has them whole. */
  prompt_text: string;
  reverses_delta?: string | null;
  reviewed_at?: string | null;
  surface?: string | null;
  triggered_action?: string | null;
}

export interface InputView {
  captured_at: string;
  captured_via: string;
  class: string;
  confidence: string;
  id: string;
  /** What is not shown here: characters of a text, items of a list. */
  more?: Record<string, number>;
  operator_review: string | null;
  prompt_text: string;
  reverses_delta: string | null;
  /** Where it was captured; none for rows from before this was kept. */
  surface: string | null;
  triggered_action: string | null;
}

export interface Inputs {
  n?: number | null;
  /** unreviewed, accepted, rejected or all */
  review?: string | null;
}

export interface InputsAnswer {
  inputs: InputView[];
}

export interface Journal {
  body: string;
  title?: string | null;
}

export interface KeyMint {
  identity: string;
}

export interface KeyMinted {
  identity: string;
  /** Shown once; only its hash is kept. */
  key: string;
  key_id: string;
  pid: string;
}

export interface KeyRevoke {
  /** The key's id, as `prism key list` shows it. */
  key_id: string;
}

export interface KeyView {
  /** A browser that signed in to the page, as it calls itself. */
  browser?: string | null;
  created_at: string;
  /** When it ends by itself. */
  expires_at?: string | null;
  identity: string;
  key_id: string;
  operator: boolean;
  prefix: string;
  revoked_at: string | null;
}

export interface Keys {
  keys: KeyView[];
}

export interface LastDelta {
  at: string;
  id: string;
  kind: string;
  operator_visible_effect?: string | null;
  summary: string;
}

export interface LayerTimes {
  /** Where on its way a signal was seen. */
  layer: "backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack";
  missing: number;
  observed: number;
  p50_ms?: number | null;
  p95_ms?: number | null;
}

export interface Layers {
  backend_write: Seen;
  channel_notification: Notified;
  model_ack: Seen;
  redis_publish: Published;
  shim_tee_receipt: Seen;
}

export interface LayersAsked {
  backend_write: SeenAsked;
  channel_notification: NotifiedAsked;
  model_ack: SeenAsked;
  redis_publish: PublishedAsked;
  shim_tee_receipt: SeenAsked;
}

export interface LegView {
  /** What the question's own vector took; not part of `ms`. */
  embedding_ms?: number | null;
  hits: number;
  /** The models that took part, by name. */
  models?: string[];
  ms: number;
  pending?: number | null;
  reason?: string | null;
  /** on or off */
  state: string;
}

export interface Legs {
  graph: LegView;
  lexical: LegView;
  recency: LegView;
  vector: LegView;
}

export interface ListEvents {
  n?: number | null;
  /** Only warnings that nobody has labelled. */
  unlabelled?: boolean;
}

export interface ListGateEvents {
  cursor?: string | null;
  identity?: string | null;
  /** Labelled by the operator, or not yet. */
  labelled?: boolean | null;
  limit?: number | null;
  /** warned or satisfied */
  outcome?: "warned" | "satisfied" | null;
  since?: string | null;
  until?: string | null;
}

export interface ListInputs {
  class?: "correction" | "confirmation" | "direction_pivot" | null;
  cursor?: string | null;
  /** Captured by this identity. */
  identity?: string | null;
  limit?: number | null;
  /** unreviewed, accepted, rejected or all; all unless said. */
  review?: "unreviewed" | "accepted" | "rejected" | "all" | null;
  since?: string | null;
  surface?: string | null;
  until?: string | null;
}

export interface ListMemory {
  cursor?: string | null;
  identity?: string | null;
  /** Only these kinds, as in `results[].kind` of a recall; none: every kind. */
  kinds?: string[];
  /** 1 to 200; 50 unless said. */
  limit?: number | null;
  since?: string | null;
  until?: string | null;
  /** Each of these words stands in the row. */
  words?: string | null;
}

export interface ListProbes {
  cursor?: string | null;
  identity?: string | null;
  limit?: number | null;
  machine_id?: string | null;
  /** complete, partial or timeout */
  outcome?: "complete" | "partial" | "timeout" | null;
  since?: string | null;
  surface?: string | null;
  until?: string | null;
}

export interface ListRecalls {
  /** Only those of which something was cited, or nothing. */
  cited?: boolean | null;
  cursor?: string | null;
  identity?: string | null;
  limit?: number | null;
  session_id?: string | null;
  since?: string | null;
  until?: string | null;
  /** Each of these words stands in the question. */
  words?: string | null;
}

export interface ListSessions {
  cursor?: string | null;
  identity?: string | null;
  limit?: number | null;
  /** Started at or after. */
  since?: string | null;
  surface?: string | null;
  /** Started before. */
  until?: string | null;
  /** open, released or all; all unless said. */
  which?: "open" | "released" | "all" | null;
}

export interface ListSignals {
  /** What the operator should do about a signal. */
  category?: "INFO" | "TASK" | "ASK" | "BLOCKER" | null;
  cursor?: string | null;
  from?: string | null;
  /** From or to this identity. */
  identity?: string | null;
  /** 1 to 200; 50 unless said. */
  limit?: number | null;
  /** Probes and their echoes too. */
  probes?: boolean;
  signal_type?: string | null;
  /** Sent at or after. */
  since?: string | null;
  /** waiting, drained, acted, dismissed, expired, recalled or failed */
  state?: "waiting" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed" | null;
  to?: string | null;
  /** Sent before. */
  until?: string | null;
  /** Each of these words stands in the payload, the names or the type. */
  words?: string | null;
}

export interface LookInbox {
  cursor?: string | null;
  /** Whose; the operator's own unless said. */
  identity?: string | null;
  limit?: number | null;
}

/** How far back a metric looked: what is older was neither counted nor compared. */
export interface LookedBack {
  /** A metric that may be asked for by itself. */
  metric: "confirmations" | "misclassification" | "corrections" | "dead_ends" | "surfaces" | "repeats" | "recall" | "gate";
  /** The newest so many were looked at, of the projects that have more. */
  rows: number;
  to: string;
}

export interface LoopbackEcho {
  signal_id: string;
}

export interface LoopbackEchoed {
  signal_id: string;
}

export interface LoopbackFinish {
  probe: ProbeAsked;
}

export interface LoopbackIssue {
  echo?: boolean | null;
  /** False in a series: the bell may cost a model's turn. */
  ring?: boolean | null;
  /** Which session to probe, or at least its first 8 digits; default the caller's own. */
  session_id?: string | null;
}

export interface LoopbackModel {
  /** The probe's own id. */
  signal_id: string;
}

export interface LoopbackModelSeen {
  model_ack: string | null;
  /** The session has ended: no model will answer any more. */
  session_over: boolean;
}

export interface LoopbackRun {
  finished_at: string;
  identity: string;
  loopback_id: string;
  missing_layers: ("backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack")[];
  outcome: string;
  session_id: string | null;
}

export interface LoopbackRuns {
  /** Only probes of this identity. */
  identity?: string | null;
  /** How many, newest first. */
  n?: number | null;
}

export interface LoopbackRunsAnswer {
  runs: LoopbackRun[];
}

/** Newest first. */
export interface MemoryPage {
  looked_back_to?: string | null;
  next?: string | null;
  rows: MemoryView[];
}

/** One row: its text, what it is in its own table, what was said of it, and what stands beside it. */
export interface MemoryShown {
  artifact?: ArtifactView | null;
  confirmation?: ConfirmationView | null;
  delta?: DeltaView | null;
  graph: GraphAnswer;
  input?: InputView | null;
  /** How often a recall brought it, how often it was cited, and when it last came. */
  recalls: RowRecalls;
  /** What prism_confirm takes as `refers_to` for this row; none where no verdict can stand on it. */
  refers_to?: string | null;
  row: MemoryView;
  session_id?: string | null;
  verdicts: VerdictView[];
  /** Oldest first; only of what is kept in versions. */
  versions: VersionView[];
}

export interface MemoryStats {
  citations: number;
  edges: number;
  embed_pending: number;
  /** Rows that broke the embedding worker and wait for `prism memory reembed`. */
  embed_set_aside: number;
  entities: number;
  /** The models that made the vectors which answer. */
  models?: string[];
  /** Why no row is embedded now. */
  off?: string | null;
  recalls: number;
  rows: Record<string, number>;
  /** Other models are installed, and the rows are embedded anew. */
  switching?: Switching | null;
  vectors: number;
}

export interface MemoryView {
  created_at: string;
  /** Rejected by the operator: out of recall. */
  hidden?: boolean;
  id: string;
  identity: string;
  kind: string;
  /** Characters of the text that a list leaves out. */
  more?: number;
  number?: number | null;
  pid: string;
  status?: string | null;
  superseded_by?: string | null;
  /** The first characters of its text in a list, all of it where one row is shown. */
  text: string;
  title?: string | null;
  /** The newest verdict on it. */
  verdict?: string | null;
}

export interface Metrics {
  /** Verdicts by via. */
  confirmations: Tally[];
  /** Corrections by what the agent was doing. */
  corrections: Tally[];
  /** Dead ends by approach. */
  dead_ends: Tally[];
  /** Inputs by agent: how many count, how many were rejected. */
  inputs: AgentTally[];
}

/** Every list called `n`, or after a state, has one number for each bucket. A metric that was not asked for is left out. */
export interface MetricsAnswer {
  /** How a range is divided; days and weeks are those of UTC, weeks begin on Monday. */
  bucket: "hour" | "day" | "week";
  /** When each bucket begins. */
  buckets: string[];
  confirmations?: Confirmations | null;
  corrections?: CorrectionPattern[] | null;
  dead_ends?: DeadEnds | null;
  gate?: GateMetrics | null;
  /** Metrics that had more than is compared or counted at once; none: all of it was. */
  looked_back?: LookedBack[];
  misclassification?: AgentRate[] | null;
  recall?: RecallMetrics | null;
  repeats?: Repeats | null;
  since: string;
  surfaces?: SurfaceTally[] | null;
  until: string;
}

export interface Note {
  /** Up to three questions that this answers, in the operator's words. */
  asked_as?: string[];
  text: string;
}

export type Nothing = Record<string, never>;

/** The bell's layer, with how it was handed over. */
export interface Notified {
  elapsed_ms: number | null;
  /** `accepted` when the host took it, `sent` when it cannot say. */
  evidence: string | null;
  observed: boolean;
  observed_at: string | null;
  /** The bell in force; `suppressed` in a series. */
  strategy: string | null;
}

/** The bell's layer, with how it was handed over. */
export interface NotifiedAsked {
  elapsed_ms?: number | null;
  /** `accepted` when the host took it, `sent` when it cannot say. */
  evidence?: string | null;
  observed: boolean;
  observed_at?: string | null;
  /** The bell in force; `suppressed` in a series. */
  strategy?: string | null;
}

/** What waits on the operator now. */
export interface Now {
  at: string;
  /** What agents captured of the operator's words and nobody has reviewed, newest first. */
  inputs: InputRow[];
  inputs_more?: number;
  /** Signals to the operator that nobody has read: BLOCKER, ASK, TASK, INFO, each newest first. */
  to_me: SignalRow[];
  /** The same, by category. */
  to_me_left: ByCategory;
  to_me_more?: number;
  /** BLOCKER, then ASK, to anybody else that nobody has read, each newest first. */
  unread: SignalRow[];
  unread_left: ByCategory;
  unread_more?: number;
  /** Sessions whose human must say something, longest first. */
  waiting: SessionRow[];
  /** Warnings of the gate that nobody has labelled, newest first. */
  warnings: GateRow[];
  warnings_more?: number;
}

export interface Ok {
  ok: boolean;
}

export interface OperatorInput {
  /** correction, confirmation or direction_pivot */
  class: string;
  /** high or low */
  confidence: string;
  /** What the operator typed, verbatim. */
  prompt_text: string;
  reverses_delta?: string | null;
  /** What you were doing. */
  triggered_action?: string | null;
}

/** Two rows that say the same thing, and by which words. */
export interface Pair {
  again: Example;
  first: Example;
  shared: string[];
  /** 0 to 1: shared stems over all stems of both. */
  similarity: number;
}

export interface Peer {
  identity: string;
  machine_id: string;
  state: "idle" | "live" | "stale" | "released";
  surface: string;
}

export interface Pending {
  lease_id?: string | null;
  /** How many more wait. */
  more?: number;
  signals: Envelope[];
}

export interface PersonaAdd {
  identity: string;
}

export interface PersonaAdded {
  created: boolean;
  identity: string;
  pid: string;
}

export interface PersonaSeen {
  identity: string;
  operator: boolean;
  since: string;
  /** Whether anybody ever ran under this name. */
  started: boolean;
}

export interface PersonaView {
  identity: string;
  operator: boolean;
  pending: ByCategory;
  recipient_state: "live" | "stale" | "offline" | "never_started" | "operator";
}

export interface PickedUp {
  decisions: ArtifactView[];
  delta_id: string;
  deltas: DeltaView[];
  open_todos: ArtifactView[];
  warnings?: Warning[];
  wrap: DeltaView | null;
}

export interface Pickup {
  from_identity?: string | null;
  from_session?: string | null;
}

export interface Postmortem {
  /** Up to three questions that this answers, in the operator's words. */
  asked_as?: string[];
  /** Where checking was possible and was skipped. */
  choice_point?: string;
  prevention?: string;
  /** Number of one to close instead. */
  resolve?: number | null;
  title?: string;
  what_happened?: string;
}

/** The result envelope: every key is always there, null when not observed. */
export interface Probe {
  echo: Echo;
  finished_at: string | null;
  layers: Layers;
  loopback_id: string;
  machine_id: string;
  missing_layers: ("backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack")[];
  outcome: "complete" | "partial" | "timeout";
  /** What a sender would have been told about the recipient. */
  recipient_state: string | null;
  requested_by_identity: string;
  requested_by_session: string | null;
  signal_id: string;
  spec: string;
  started_at: string;
  surface: string;
  trace_id: string;
  version: string;
}

/** The result envelope: every key is always there, null when not observed. */
export interface ProbeAsked {
  echo: EchoAsked;
  finished_at?: string | null;
  layers: LayersAsked;
  loopback_id: string;
  machine_id: string;
  missing_layers: ("backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack")[];
  outcome: "complete" | "partial" | "timeout";
  /** What a sender would have been told about the recipient. */
  recipient_state?: string | null;
  requested_by_identity: string;
  requested_by_session?: string | null;
  signal_id: string;
  spec: string;
  started_at: string;
  surface: string;
  trace_id: string;
  version: string;
}

/** Newest first. */
export interface ProbePage {
  looked_back_to?: string | null;
  next?: string | null;
  runs: ProbeRow[];
}

export interface ProbeRow {
  finished_at: string;
  identity: string;
  layers: Layers;
  loopback_id: string;
  machine_id: string;
  missing_layers: ("backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack")[];
  outcome: "complete" | "partial" | "timeout";
  pid: string;
  session_id?: string | null;
  signal_id: string;
  started_at: string;
  surface: string;
}

/** A folder as sessions in it name it: a repository's common git folder, else the folder. */
export interface ProjectFolder {
  folder: string;
  machine_id: string;
}

export interface ProjectList {
  projects: ProjectView[];
}

export interface ProjectMerge {
  /** The project that becomes part of this one. */
  from: string;
}

export interface ProjectSettings {
  created_at: string;
  /** Made by `prism demo`. */
  demo?: boolean;
  folders: FolderView[];
  memory_rows: number;
  personas: PersonaSeen[];
  pid: string;
}

export interface ProjectView {
  folders: FolderView[];
  personas: number;
  pid: string;
}

export interface ProjectsAnswer {
  projects: string[];
}

/** The publish layer, with the bus it went over. */
export interface Published {
  elapsed_ms: number | null;
  hop_ms: number | null;
  observed: boolean;
  observed_at: string | null;
  /** The server that pushed, where there are several, and how long news takes to reach it. */
  server: string | null;
  /** `in_process`, `redis` or `pg_notify`. */
  transport: string | null;
}

/** The publish layer, with the bus it went over. */
export interface PublishedAsked {
  elapsed_ms?: number | null;
  hop_ms?: number | null;
  observed: boolean;
  observed_at?: string | null;
  /** The server that pushed, where there are several, and how long news takes to reach it. */
  server?: string | null;
  /** `in_process`, `redis` or `pg_notify`. */
  transport?: string | null;
}

/** What was last proven about a session, by which layer, when. */
export interface Reachable {
  at: string;
  /** How the bell was handed over, where a bell is the proof. */
  evidence?: string | null;
  layer: string;
  session_id: string;
  /** What is known to have happened to a signal. */
  state: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed";
  surface: string;
}

/** Takes these out of the operator's own inbox, as read. */
export interface ReadInbox {
  signal_ids: string[];
}

export interface Recall {
  /** Up to five other ways it may have been written down, in plain and in engineering words. */
  also?: string[];
  /** Only what was valid then. */
  as_of?: string | null;
  k?: number | null;
  kinds?: string[];
  /** Operator only: look without a trace. Nothing is recorded, and no gate hears of it. */
  preview?: boolean;
  /** Plain words: what was seen, said or done. */
  query: string;
  since?: string | null;
  until?: string | null;
}

export interface RecallHit {
  created_at: string;
  id: string;
  identity: string;
  kind: string;
  refers_to?: string | null;
  ruled_out?: RuledOut[];
  score: number;
  superseded_by?: string | null;
  text: string;
  title?: string | null;
  verdicts: VerdictView[];
  why: string[];
}

export interface RecallMetrics {
  by_identity: RecallTally[];
  /** Events of which something was cited. */
  cited: number[];
  cited_total: number;
  n: number[];
  never_recalled: Example[];
  p50_ms: (number | null)[];
  p95_ms: (number | null)[];
  /** 0 is fresh, 1 is rotten; see `prism memory rot`. Of several projects, that of all their rows. */
  rot?: number | null;
  rows: number;
  rows_never_recalled: number;
  total: number;
}

/** Newest first. */
export interface RecallPage {
  events: RecallRow[];
  looked_back_to?: string | null;
  next?: string | null;
}

export interface RecallRow {
  at: string;
  id: string;
  identity: string;
  latency_ms: number;
  pid: string;
  query: string;
  results: RecallShown[];
  session_id?: string | null;
  surface: string;
  tokens: number;
}

/** One result as it was shown then. */
export interface RecallShown {
  cited: boolean;
  cited_for?: string | null;
  id: string;
  /** None once the row has gone. */
  kind?: string | null;
  rank: number;
  score: number;
  title?: string | null;
}

export interface RecallTally {
  cited: number;
  identity: string;
  n: number;
}

export interface Recalled {
  reason: string;
  recalled: boolean;
}

export interface Recalled2 {
  /** How sure memory is that the answer is among the results, 0 to 1. */
  confidence: number;
  legs: Legs;
  /** What a low confidence means, and whether the recall could not be recorded. */
  note?: string | null;
  /** None for a preview. */
  recall_event_id?: string | null;
  results: RecallHit[];
}

export interface Receipt {
  at: string;
  sessions: SessionReceipt[];
  /** What is known to have happened to a signal. */
  state: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed";
  states: Record<string, string>;
}

export interface Reembed {
  /** Every row, not only those without vectors of this model. */
  all?: boolean;
}

export interface Reembedding {
  model: string;
  /** Why nothing is embedded now. */
  off?: string | null;
  queued: number;
}

export interface Remember {
  /** Up to three questions that this answers, in the operator's words. */
  asked_as?: string[];
  body?: string;
  /** note, fact, rule, integration_narrative or other */
  kind: string;
  /** Narrative: what the operator sees now. */
  operator_sees?: string | null;
  /** Narrative: what had to land together. */
  pieces?: string[];
  /** delta:, signal:, spec: or commit: references */
  refs?: string[];
  subject?: string | null;
  supersedes?: string | null;
  tags?: string[];
  /** Narrative: what would break it. */
  would_break_it?: string | null;
}

export interface RepeatWeek {
  corrections: number;
  rate?: number | null;
  repeated: number;
  week: string;
}

/** The same correction typed again. */
export interface Repeats {
  /** The newest first. */
  pairs: Pair[];
  weeks: RepeatWeek[];
}

/** What history there is, and how long it stays. */
export interface Retained {
  /** Nothing goes before. */
  begins_at: string;
  kinds: RetainedKind[];
}

export interface RetainedKind {
  /** There are so many that they are not counted: at most these. */
  at_most?: boolean;
  /** 0: for ever. */
  days: number;
  /** At most so many rows go next; those that something refers to stay. */
  going: number;
  /** As `[retention]` in `config.toml` calls it. */
  kind: string;
  oldest: string | null;
  rows: number;
}

export interface Retro {
  change: string;
  went_badly: string;
  went_well: string;
}

export interface ReviewInputs {
  /** accept, reject or undo */
  action: string;
  ids: string[];
}

export interface Reviewed {
  action: string;
  reviewed: string[];
}

export interface Rot {
  kinds: RotRow[];
  rows: number;
  /** Nought is fresh, one is rotten: the weighed share of rows below. */
  score: number;
}

export interface RotRow {
  examples: string[];
  kind: string;
  rows: number;
  /** What one such row counts in the score. */
  weight: number;
}

export interface RowRecalls {
  cited: number;
  last_at?: string | null;
  /** Among the project's newest recall events that were looked at. */
  shown: number;
}

export interface RuledOut {
  approach: string;
  outcome: string;
  ruled_out_in_delta?: string | null;
}

/** Runs a probe from the server, without a shim's door: the answer is the whole probe. */
export interface RunProbe {
  /** The bell may cost a model's turn; rung unless false. */
  ring?: boolean | null;
  /** Which session, or at least its first 8 digits. */
  session_id: string;
  /** How long to wait for the shim: 2000 unless said. */
  timeout_ms?: number | null;
}

/** What one layer is known to have seen. */
export interface Seen {
  elapsed_ms: number | null;
  observed: boolean;
  observed_at: string | null;
}

/** What one layer is known to have seen. */
export interface SeenAsked {
  elapsed_ms?: number | null;
  observed: boolean;
  observed_at?: string | null;
}

/** What a sender asks for, as it came through a door. */
export interface SendSignal {
  /** INFO, TASK, ASK or BLOCKER; default by type. */
  category?: string | null;
  /** `sync` fails when nobody is live. */
  delivery_class?: string | null;
  idempotency_key?: string | null;
  /** `signal_id` this answers. */
  in_reply_to?: string | null;
  /** `summary` (one line) and whatever the recipient needs. */
  payload: Record<string, unknown>;
  /** TaskAssigned, ReviewRequested, ReviewCompleted, Acknowledgment, StatusUpdate, Question or Answer. */
  signal_type: string;
  /** Identity of the recipient. */
  to: string;
  ttl_s?: number | null;
}

export interface Sent {
  /** What the server could do with a signal the moment it was durable: `published` says that other servers were told, one of which may hold the recipient's socket. */
  publish_path: "pushed_to_ws" | "published" | "queued_offline" | "no_subscriber";
  receipt: Receipt;
  recipient_state: "live" | "stale" | "offline" | "never_started" | "operator";
  signal_id: string;
  trace_id: string;
}

export interface SessionAttention {
  /** Whether the terminal that a session was begun in is still there. */
  attention: "attended" | "unattended" | "unknown";
}

/** What a hook tells an agent that has not asked: the start, and the operator's corrections. */
export interface SessionBrief {
  /** Reviewed by the operator or written down by them, newest first. */
  corrections: InputView[];
  /** How many more nobody has reviewed. */
  corrections_unreviewed: number;
  started: Started;
}

/** What a host's hook leaves of a session whose agent did not wrap. */
export interface SessionLeft {
  root?: string | null;
  summary: string;
  touched_files?: string[] | null;
}

export interface SessionPage {
  /** Ask with this for what comes after; none: that was all. */
  next?: string | null;
  sessions: SessionRow[];
}

/** What one session of the recipient is known to have had. */
export interface SessionReceipt {
  drained: string | null;
  hop_us?: number | null;
  machine_id: string;
  pushed: string | null;
  /** The server that pushed it, where there are several, and how long news takes to reach that one. */
  pushed_by?: string | null;
  received: string | null;
  rendered: string | null;
  /** On which rung the host is known to have taken it. */
  rendered_by?: string | null;
  rung: string | null;
  session_id: string;
  /** How the bell was handed over, when one was. */
  strategy?: string | null;
  surface: string;
  /** The signal whose bell it was, when it was not this one's. */
  via?: string | null;
}

export interface SessionRegister {
  machine_id: string;
  name?: string | null;
  process_pid: number;
  surface: string;
}

export interface SessionRegistered {
  identity: string;
  pid: string;
  project_id: string;
  session_id: string;
}

export interface SessionRelease {
  reason?: string | null;
  /** Operator only: which session to release, or at least its first 8 digits. */
  session_id?: string | null;
}

export interface SessionRow {
  connected: boolean;
  identity: string;
  last_seen_at: string;
  last_verb_at?: string | null;
  machine_id: string;
  name?: string | null;
  pid: string;
  process_pid: number;
  release_reason?: string | null;
  released_at?: string | null;
  session_id: string;
  started_at: string;
  state: "idle" | "live" | "stale" | "released";
  surface: string;
  /** permission or question: its human must say something before it goes on. */
  waits_for?: "permission" | "question" | null;
  waits_since?: string | null;
}

export interface SessionView {
  /** Whether somebody is at its host; left out of a session that is not live. */
  attention?: "attended" | "unattended" | "unknown" | null;
  connected: boolean;
  identity: string;
  last_seen_at: string;
  last_verb_at: string | null;
  machine_id: string;
  /** What its agent called it at the start. */
  name?: string | null;
  process_pid: number;
  reachable: Reachable | null;
  session_id: string;
  started_at: string;
  state: "idle" | "live" | "stale" | "released";
  surface: string;
  /** Its human must say something before it goes on. */
  waits?: WaitsFor | null;
}

export interface SessionWaiting {
  /** permission or question; none: it goes on. */
  for?: "permission" | "question" | null;
}

export interface Settings {
  /** Why recall works without meaning now; none: it works with it. */
  embedder_off?: string | null;
  /** off or advisory */
  gate_mode: string;
  /** What `prism connect` has written on the server's machine, host by host. */
  hosts: HostConnected[];
  keys: KeyView[];
  operator: string;
  projects: ProjectSettings[];
  /** Where links to the page point, where the operator said so. */
  public_url?: string | null;
  retention: RetainedKind[];
  /** Nothing of history goes before. */
  retention_begins_at: string;
  server_version: string;
  started_at: string;
  stored: Stored;
  surfaces: SurfaceSeen[];
  watchers: number;
  watchers_max: number;
}

export interface ShowMemory {
  /** The id, or at least its first 8 digits. */
  id: string;
}

export interface ShowSignal {
  /** The id, or at least its first 8 digits. */
  signal_id: string;
}

export interface SignalAck {
  note?: string | null;
  signal_id: string;
  /** observed or model_acted */
  state?: string | null;
}

/** Newest first. */
export interface SignalPage {
  /** Everything sent after this was looked at; only where more is left to look at. */
  looked_back_to?: string | null;
  /** Ask with this for what comes after; a page may be short although there is more. */
  next?: string | null;
  signals: SignalRow[];
}

export interface SignalRecall {
  signal_id: string;
}

export interface SignalRow {
  at: string;
  /** What the operator should do about a signal. */
  category?: "INFO" | "TASK" | "ASK" | "BLOCKER" | null;
  created_at: string;
  escalated_at?: string | null;
  from_identity: string;
  in_reply_to?: string | null;
  /** Somebody is reading it now. */
  leased?: boolean;
  pid: string;
  signal_id: string;
  signal_type: string;
  /** What is known to have happened last, and when. */
  state: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed";
  /** Only while it waits for longer than it should. */
  stuck?: Stuck | null;
  summary: string;
  to_identity: string;
  to_operator: boolean;
  trace_id: string;
  /** Nobody has read it, and it has not ended. */
  waiting: boolean;
}

/** One signal: what it says, what became of it for each session, and what it belongs to. */
export interface SignalShown {
  /** Nobody has read it: it can be taken back. */
  can_take_back: boolean;
  /** Whether a send may wait for a recipient who is away. */
  delivery_class: "async" | "sync";
  expires_at: string;
  from_session?: string | null;
  payload: Record<string, unknown>;
  /** What the server could do with a signal the moment it was durable: `published` says that other servers were told, one of which may hold the recipient's socket. */
  publish_path: "pushed_to_ws" | "published" | "queued_offline" | "no_subscriber";
  receipt: Receipt;
  signal: SignalRow;
  /** The whole conversation, oldest first, this signal included. */
  thread: SignalRow[];
  thread_more?: number;
  timeline: TraceEvent[];
}

export interface SignalTrace {
  signal_id?: string | null;
  trace_id?: string | null;
}

export interface SignalsAck {
  /** None: all this session was given. */
  signal_ids?: string[];
}

export interface SignalsConfirm {
  /** The lease that a draining verb answered with. */
  lease_id: string;
}

export interface SignalsPending {
  limit?: number | null;
}

export interface Start {
  /** Who you are, unless the host was started with a name. */
  identity?: string | null;
  /** A name for this session. */
  name?: string | null;
}

export interface Started {
  /** What this persona captured and the operator rejected: do not tag the like again. */
  anti_examples: InputView[];
  identity: string;
  name?: string | null;
  open_postmortems: ArtifactView[];
  open_todos: ArtifactView[];
  peers: Peer[];
  /** How many more are here than an answer lists. */
  peers_more?: number;
  pid: string;
  recent_deltas: DeltaView[];
  session_id: string;
  surface: string;
  unread: ByCategory;
  unwrapped_session?: UnwrappedSession | null;
}

export interface StateTimes {
  n: number;
  p50_ms?: number | null;
  p95_ms?: number | null;
  /** pushed, received, rung, rendered or drained */
  state: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed";
}

export interface Status {
  personas: PersonaView[];
  pid: string;
  server_version: string;
  sessions: SessionView[];
  /** How many more are open than an answer lists. */
  sessions_more?: number;
}

export interface Stored {
  /** Kinds of which there are so many that they are not counted: there are at most as many. */
  at_most?: string[];
  /** Bytes of the database file, and of its journal. */
  database_bytes: number;
  journal_bytes: number;
  /** Rows by kind. */
  rows: Record<string, number>;
}

export interface StoryItem {
  at: string;
  /** What the operator should do about a signal. */
  category?: "INFO" | "TASK" | "ASK" | "BLOCKER" | null;
  cited?: number | null;
  /** What the operator sees of it, for a delta. */
  effect?: string | null;
  id: string;
  /** Who sent, asked, did or captured it; the operator for a verdict. */
  identity: string;
  kind: "signal" | "recall" | "delta" | "verdict" | "input";
  /** What it follows from; the other end may be on another page. */
  links: StoryLink[];
  pid: string;
  /** Results that a recall brought, and how many of them were cited. */
  results?: number | null;
  /** accepted or rejected, for an input. */
  review?: string | null;
  session_id?: string | null;
  /** What is known to have happened to a signal. */
  state?: "queued" | "pushed" | "received" | "rung" | "rendered" | "drained" | "acted" | "dismissed" | "expired" | "recalled" | "failed" | null;
  text: string;
  /** To whom, for a signal. */
  to?: string | null;
  /** The signal's type, the delta's kind, the verdict, the input's class. */
  what: string;
}

export interface StoryLink {
  id: string;
  kind: "signal" | "recall" | "delta" | "verdict" | "input";
  /** How one thing of a story leads to another. */
  why: "replies_to" | "looked_up_for" | "done_for" | "built_on" | "verdict_on" | "said_of" | "reverses";
}

/** Newest first. */
export interface StoryPage {
  items: StoryItem[];
  next?: string | null;
}

/** Why a signal is not read, and what the operator can do about it. */
export interface Stuck {
  /** A word for programs: `never_started`, `nobody_here`, `no_socket`, `not_received`, `not_rung`, `not_rendered`, `not_read`, `being_read`, `waits_for_human`, `at_operator`. */
  cause: string;
  /** One sentence. */
  what_to_do: string;
  /** One sentence. */
  why: string;
}

/** A kind of host on a machine, as sessions showed it. */
export interface SurfaceSeen {
  last_seen_at: string;
  machine_id: string;
  open: number;
  surface: string;
}

/** Confirmations against corrections on one surface. */
export interface SurfaceTally {
  confirmations: number;
  corrections: number;
  direction_pivots: number;
  /** confirmations / (confirmations + corrections) */
  rate?: number | null;
  /** `unknown` for rows from before surfaces were kept. */
  surface: string;
}

export interface Switching {
  /** Rows that have their new vectors. */
  done: number;
  /** The models whose vectors answer meanwhile. */
  from: string[];
  rows: number;
  to: string[];
}

export interface Tally {
  group: string;
  n: number;
  what: string;
}

export interface Todo {
  /** add, list (with a number: that one, whole), update or done */
  action: string;
  body?: string | null;
  number?: number | null;
  paths?: string[];
  status?: string | null;
  tags?: string[];
  title?: string | null;
}

export interface Trace {
  from_identity: string;
  receipt: Receipt;
  signal_id: string;
  signal_type: string;
  timeline: TraceEvent[];
  to_identity: string;
  trace_id: string;
}

/** One line of a trace. */
export interface TraceEvent {
  detail?: string | null;
  /** Where on its way a signal was seen. */
  layer: "backend_write" | "redis_publish" | "shim_tee_receipt" | "channel_notification" | "model_ack";
  /** The probe this belongs to, on every layer's row. */
  loopback_id?: string | null;
  observed_at: string;
  session_id?: string | null;
  /** A receipt state, or a note such as `lease_returned` or `observed`. */
  state: string;
}

export interface Training {
  inputs: TrainingInput[];
}

export interface TrainingInput {
  /** The work it spoke of. */
  about: string | null;
  anti_example: boolean;
  captured_at: string;
  captured_via: string;
  class: string;
  confidence: string;
  /** What the agent was doing. */
  context: string | null;
  id: string;
  /** The operator's words. */
  prompt: string;
  /** accepted, rejected or unreviewed */
  verdict: string;
}

/** The identity's last session ended without a wrap. */
export interface UnwrappedSession {
  deltas: number;
  last_delta_at: string;
  remediation: string;
  session_id: string;
}

export interface VerdictSeries {
  confirmed_via: string;
  n: number[];
  total: number;
  /** works, broken or partial */
  verdict: string;
}

export interface VerdictView {
  at: string;
  confirmed_by: string;
  confirmed_via: string;
  directness: string;
  id: string;
  notes?: string | null;
  /** What it is about, where that is not the row itself but a thing the row names. */
  on?: string | null;
  verdict: string;
}

export interface VersionView {
  body: string;
  created_at: string;
  identity: string;
  status: string;
  title: string;
  version: number;
}

/** What a session waits for its human with, and since when. */
export interface WaitsFor {
  /** What a session waits for its human with. */
  for: "permission" | "question";
  since: string;
}

/** Something worth a second look; never a refusal. */
export interface Warning {
  kind: string;
  paths?: string[];
  remediation: string;
}

/** One frame of `/api/v1/watch`. Receivers skip kinds they do not know. */
export type WatchFrame = {
  at: string;
  kind: "hello";
  mark: number;
  /** The project, or `*`. */
  pid: string;
  server_version: string;
} | {
  changes: Change[];
  kind: "changed";
  mark: number;
} | {
  kind: "behind";
  mark: number;
} | {
  at: string;
  kind: "beat";
};

export interface Whois {
  identity: string;
}

export interface WhoisAnswer {
  identity: string;
  operator: boolean;
  reachable: Reachable | null;
  recipient_state: "live" | "stale" | "offline" | "never_started" | "operator";
  sessions: SessionView[];
  since: string;
}

export interface Wrap {
  /** Up to three questions that this answers, in the operator's words. */
  asked_as?: string[];
  next?: string | null;
  open_loops?: string[];
  /** What the operator sees now, in their words. */
  operator_visible_effect?: string | null;
  /** What happened. */
  summary: string;
  /** Left out: found with git. */
  touched_files?: string[] | null;
  /** Dead ends. */
  tried_and_ruled_out?: RuledOut[];
}

export interface Wrapped {
  delta_id: string;
  touched_files_source: string;
  warnings?: Warning[];
}

/** Every call: `POST api/v1/{pid}/<name>`. */
export interface Calls {
  /** Begin: who you are, who else is here, what was learned, what waits. Call first. */
  "start": { ask: Start; answer: Started };
  /** Record what happened so far; the session goes on. */
  "checkpoint": { ask: Wrap; answer: Wrapped };
  /** Record what happened and end the session. */
  "wrap": { ask: Wrap; answer: Wrapped };
  /** Take over from a wrap: what was done, what is open. */
  "pickup": { ask: Pickup; answer: PickedUp };
  /** Who is here: sessions, their state, pending counts. */
  "status": { ask: Nothing; answer: Status };
  /** One persona: its sessions and what was last proven to reach it. */
  "whois": { ask: Whois; answer: WhoisAnswer };
  /** Send a signal to another agent or the operator; also how to reply. */
  "signal": { ask: SendSignal; answer: Sent };
  /** Read the signals waiting for you. */
  "signals_pending": { ask: SignalsPending; answer: Pending };
  /** Dismiss signals you were given. */
  "signals_ack": { ask: SignalsAck; answer: Dismissed };
  /** Say that you saw a signal, or acted on it. */
  "signal_ack": { ask: SignalAck; answer: Acknowledged };
  /** Where a signal got to, layer by layer, with times. */
  "signal_trace": { ask: SignalTrace; answer: Trace };
  /** Take back a signal nobody has read. */
  "signal_recall": { ask: SignalRecall; answer: Recalled };
  /** Look up what was learned, in plain words, before you start work. */
  "recall": { ask: Recall; answer: Recalled2 };
  /** Say that a recalled row supported what you did. */
  "memory_cite": { ask: Cite; answer: Ok };
  /** Keep a note, fact, rule or integration narrative. */
  "remember": { ask: Remember; answer: Id };
  /** Keep a note. */
  "note": { ask: Note; answer: Id };
  /** Write a journal entry. */
  "journal": { ask: Journal; answer: Id };
  /** Write a retrospective. */
  "retro": { ask: Retro; answer: Id };
  /** Write a postmortem, or resolve one. */
  "postmortem": { ask: Postmortem; answer: Id };
  /** Record a decision. */
  "decide": { ask: Decide; answer: Id };
  /** Create, update, get or list specs. */
  "spec": { ask: Document; answer: Artifacts };
  /** Create, update, get or list plans. */
  "plan": { ask: Document; answer: Artifacts };
  /** Add, list, update or finish todos. */
  "todo": { ask: Todo; answer: Artifacts };
  /** Record the operator's verdict on a delta, signal, spec or commit. */
  "confirm": { ask: Confirm; answer: Id };
  /** When the operator corrected, confirmed or redirected you: keep their words. */
  "operator_input": { ask: OperatorInput; answer: Captured };
  /** Recent deltas. */
  "deltas": { ask: Deltas; answer: DeltasAnswer };
  /** Accept or reject captured inputs, or undo that. */
  "review": { ask: ReviewInputs; answer: Reviewed };
  /** Captured inputs, by review. */
  "inputs": { ask: Inputs; answer: InputsAnswer };
  /** What stands beside a row or an entity. */
  "graph": { ask: GraphShow; answer: GraphAnswer };
  /** How much is remembered. */
  "memory_stats": { ask: Nothing; answer: MemoryStats };
  /** Verdicts, misclassifications, corrections and dead ends. */
  "memory_metrics": { ask: Nothing; answer: Metrics };
  /** Write rows that come from a file, a batch at a time. */
  "import": { ask: Import; answer: Imported };
  /** Queue rows to be embedded again. */
  "memory_reembed": { ask: Reembed; answer: Reembedding };
  /** Captured inputs with what became of them. */
  "training": { ask: Nothing; answer: Training };
  /** What in memory has gone stale. */
  "memory_rot": { ask: AskRot; answer: Rot };
  /** Say whether a gate warning was right. */
  "gate_label": { ask: GateLabel; answer: GateLabelled };
  /** Precision, warnings and recalls of the gate. */
  "gate_report": { ask: Nothing; answer: GateReport };
  /** What the gate noticed. */
  "gate_events": { ask: ListEvents; answer: GateEvents };
  /** Write a probe to one session and say what the server saw of it. */
  "signal/loopback-issue": { ask: LoopbackIssue; answer: Probe };
  /** A shim's answer to a probe. */
  "signal/loopback-echo": { ask: LoopbackEcho; answer: LoopbackEchoed };
  /** Whether the model has read its inbox since. */
  "signal/loopback-model": { ask: LoopbackModel; answer: LoopbackModelSeen };
  /** End a probe and keep its result. */
  "signal/loopback-finish": { ask: LoopbackFinish; answer: Ok };
  /** Results of earlier probes, newest first. */
  "signal/loopback-runs": { ask: LoopbackRuns; answer: LoopbackRunsAnswer };
  /** Confirm that a drain reached its reader. */
  "signals_confirm": { ask: SignalsConfirm; answer: Confirmed };
  /** Open a session for a running agent host. */
  "session_register": { ask: SessionRegister; answer: SessionRegistered };
  /** Close a session; the operator may close anybody's. */
  "session_release": { ask: SessionRelease; answer: Ok };
  /** Say that the session waits for its human, or goes on. */
  "session_waiting": { ask: SessionWaiting; answer: Ok };
  /** Say whether somebody is at the session's host. */
  "session_attention": { ask: SessionAttention; answer: Ok };
  /** What a session is told at its start, for a hook to say. */
  "session_brief": { ask: Nothing; answer: SessionBrief };
  /** Leave what is known of a session whose agent did not wrap. */
  "session_left": { ask: SessionLeft; answer: Wrapped };
  /** Say that the session lives when it has no socket. */
  "heartbeat": { ask: Nothing; answer: Ok };
  /** Do nothing, through every layer of a request. */
  "ping": { ask: Nothing; answer: Ok };
  /** Add an identity to a project. */
  "persona_add": { ask: PersonaAdd; answer: PersonaAdded };
  /** Make a key for an identity; it is shown once. */
  "key_mint": { ask: KeyMint; answer: KeyMinted };
  /** List keys without their secrets. */
  "key_list": { ask: Nothing; answer: Keys };
  /** Revoke a key at once. */
  "key_revoke": { ask: KeyRevoke; answer: Ok };
  /** What history is kept, since when, and what goes next. */
  "retention": { ask: Nothing; answer: Retained };
  /** Every project with its folders. */
  "project_list": { ask: Nothing; answer: ProjectList };
  /** Let the sessions of a folder use a project. */
  "project_allow": { ask: ProjectFolder; answer: Ok };
  /** Take a folder away from a project. */
  "project_forget": { ask: ProjectFolder; answer: Ok };
  /** Make one project out of two. */
  "project_merge": { ask: ProjectMerge; answer: Ok };
  /** What waits on the operator now. */
  "now": { ask: Nothing; answer: Now };
  /** Every agent: its state, what it is at, what waits for it, what was last proven to reach it. */
  "agents": { ask: Nothing; answer: Agents };
  /** Sessions past and present, newest first. */
  "session_list": { ask: ListSessions; answer: SessionPage };
  /** Signals by identity, category, state, time and words, newest first. */
  "signal_list": { ask: ListSignals; answer: SignalPage };
  /** One signal with its thread, every receipt, and why it is stuck. */
  "signal_show": { ask: ShowSignal; answer: SignalShown };
  /** What waits in an inbox, without reading it for its owner. */
  "inbox": { ask: LookInbox; answer: InboxPage };
  /** Mark signals to the operator as read. */
  "inbox_read": { ask: ReadInbox; answer: InboxRead };
  /** Rows of memory by kind, identity, time and words, newest first. */
  "memory_list": { ask: ListMemory; answer: MemoryPage };
  /** One row of memory with its versions, verdicts and neighbours. */
  "memory_show": { ask: ShowMemory; answer: MemoryShown };
  /** What was recalled, shown and cited, newest first. */
  "recall_list": { ask: ListRecalls; answer: RecallPage };
  /** Captured inputs by review, class, agent and time, newest first. */
  "input_list": { ask: ListInputs; answer: InputPage };
  /** One line through time: signals, recalls, deltas, verdicts and inputs, linked. */
  "story": { ask: AskStory; answer: StoryPage };
  /** Verdicts, corrections, dead ends, recalls and the gate over time. */
  "metrics": { ask: AskMetrics; answer: MetricsAnswer };
  /** Whether signals arrive, by surface and machine. */
  "delivery": { ask: AskDelivery; answer: DeliveryAnswer };
  /** Probes by identity, surface, machine, outcome and time, newest first. */
  "probe_list": { ask: ListProbes; answer: ProbePage };
  /** Probe a session from the server, and wait for what its shim says. */
  "probe_run": { ask: RunProbe; answer: Probe };
  /** What the gate noticed, by outcome, label, agent and time, newest first. */
  "gate_list": { ask: ListGateEvents; answer: GatePage };
  /** Projects, personas, keys, retention, and what is stored. */
  "settings": { ask: Nothing; answer: Settings };
  /** A link that opens the page in one browser, once. */
  "dashboard_link": { ask: Nothing; answer: DashboardLink };
  /** Write a believable week into a project of its own, or take it away. */
  "demo": { ask: AskDemo; answer: DemoDone };
  /** The projects this key may see. */
  "projects": { ask: Nothing; answer: ProjectsAnswer };
}

/** The calls that may be asked about every project at once. */
export type WideCall =
  | "key_list"
  | "key_revoke"
  | "retention"
  | "project_list"
  | "now"
  | "agents"
  | "session_list"
  | "signal_list"
  | "signal_show"
  | "memory_list"
  | "memory_show"
  | "recall_list"
  | "input_list"
  | "story"
  | "metrics"
  | "delivery"
  | "probe_list"
  | "gate_list"
  | "settings"
  | "dashboard_link"
  | "demo"
  | "projects";
