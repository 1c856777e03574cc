// Written from the code by tools.generate_docs, and checked against it by `make lint`. For development: no browser loads it.
declare namespace Api {
  interface AbilityMissing {
    kind: "ability-missing";
    ability: string;
    site: string;
    offered?: boolean;
  }
  interface Accelerators {
    count: number;
    models: Array<string>;
    memory_mib: number;
    share_milli: number;
  }
  interface AccessRule {
    type: "access";
    policy: string;
    queue: string;
    allow: Array<Grant> | null;
    admins: Members;
  }
  interface ActedOn {
    name: string;
    label: string;
    changed: number;
    left: number;
    status: Record<string, number>;
    because: string;
    left_because: string;
  }
  interface Ahead {
    job: string;
    name: string;
    owner: string;
    gpus: number;
    site?: string;
    until_at?: number | null;
    waits?: boolean;
  }
  interface AilingGpu {
    pool: string;
    host: string;
    gpu: number;
    why: string;
  }
  interface AlertRow {
    kind: string;
    text: string;
    at: number;
    job: string;
    told: boolean;
  }
  interface Allotment {
    policy: string;
    queue: string;
    users: Array<string>;
    gpu_h: number;
    jobs: number;
    max_duration_s: number;
    max_priority: number;
    after_s: number;
    longest_s: number;
  }
  interface AllotmentRule {
    type: "allotment";
    policy: string;
    sites: Array<string>;
    allotment: Allotment;
  }
  interface ArrayDetail {
    id: string;
    name: string;
    indices: string;
    owner: string;
    queue: string;
    spec: JobSpec;
    tasks: Record<string, number>;
    unexpanded: number;
    at_once: number | null;
    after: Array<string>;
    submitted_at: number;
    started_at: number | null;
    finished_at: number | null;
    deadline_at: number | null;
    expected_finish_at: number | null;
    mean_run_s: number | null;
    spent_usd: number;
    gpu_s: number;
    sites: Record<string, number>;
    waits: string;
    ended: Record<string, string>;
    outputs: string;
  }
  interface ArrayPreview {
    tasks: number;
    planned: number;
    finish_at: number | null;
    in_time: number | null;
    rented: number;
    cost_usd: number;
  }
  interface AskFor {
    type: "ask";
    job: string;
    field: string;
    value: boolean | number | string | Array<string> | Record<string, string | number> | null;
    form?: number;
  }
  interface Asked {
    nodes?: number;
    gpus?: number;
    models?: Array<string>;
    cpus_milli?: number;
    memory_mib?: number;
  }
  interface AttemptRow {
    attempt: number;
    placement: string;
    site: string;
    status: string;
    market?: string;
    model?: string;
    pool?: string;
    members?: Array<string>;
    gpus?: number;
    lease?: string;
    assigned_at?: number | null;
    started_at?: number | null;
    ended_at?: number | null;
    usd?: number | null;
    cause?: string;
    exit_code?: number | null;
    detail?: string;
    last_lines?: string;
    last_lines_of?: number;
  }
  interface Bar {
    id: string;
    lane: string;
    state: "ended" | "running" | "starting" | "booting" | "reserved" | "planned" | "kept" | "local";
    start_at: number;
    end_at: number;
    gpus?: number;
    members?: Array<string>;
    job?: string;
    name?: string;
    owner?: string;
    queue?: string;
    deadline_at?: number | null;
    status?: string;
    because?: string;
    tasks?: number;
  }
  interface Behind {
    kind: "behind";
    jobs: number;
  }
  interface BetterElsewhere {
    kind: "better-elsewhere";
    place: string;
    start_at: number;
  }
  interface BlobLength {
    length: number;
  }
  interface Booting {
    kind: "booting";
    start_at: number;
  }
  interface Brought {
    moved_bytes?: number;
    sources?: string;
    seconds?: number;
    usd?: number;
    unknown?: string;
    unknown_count?: number;
  }
  interface BudgetRow {
    policy: string;
    period: string;
    unit: string;
    limit: number;
    spent: number;
    committed: number;
    share: string;
    who: string;
    hard: boolean;
    forecast: number | null;
    ends_at: number | null;
  }
  interface BurstEvidence {
    job: string;
    policy: string;
    mode: string;
    home_finish_at: number | null;
    burst_finish_at: number;
    deadline_at: number | null;
    cost_usd: number;
    value_usd: number;
    decision: string;
    fallback_finish_at: number | null;
    home_risk: number;
  }
  interface BurstPolicyRow {
    policy: string;
    mode: string;
    who: string;
    where: string;
    open: boolean;
    advisory: boolean;
    approval_above_usd: number | null;
    leases: number;
  }
  interface BurstStatus {
    paused: boolean;
    paused_by: string;
    paused_at: number | null;
    policies: Array<BurstPolicyRow>;
    proposals: Array<ProposalRow>;
  }
  interface Busy {
    kind: "busy";
    asked: Asked;
    start_at: number;
    free: number;
    lacks: string;
    fits?: number;
  }
  interface BusyView {
    nodes: number;
    gpus: number;
    cpus_milli: number;
    memory_mib: number;
    ends_at: number;
    overdue: boolean;
    placement: string | null;
    leads: boolean;
    job: string | null;
    revision: number;
    queue: string;
    owner: string;
    labels: Record<string, string>;
    licenses: Record<string, number>;
    priority: number;
    started_at: number;
    usd_per_h: number;
    saves: boolean;
    saves_every_s: number | null;
    startup_s: number;
    grace_s: number;
    stopping: boolean;
    displaced_at: number | null;
    shared: boolean;
    form: number;
    waits_as: JobView | null;
  }
  interface CapReached {
    kind: "cap";
    policy: string;
    unit: string;
    limit: number;
    used: number;
    adds: number;
    period?: string;
    share?: string;
    scope?: Array<string>;
    license?: string;
  }
  interface CapRow {
    type: "cap";
    policy: string;
    unit: "gpus" | "jobs" | "usd-per-h" | "usd" | "instances" | "licenses";
    limit: number;
    scope: Scope;
    pools: PoolSelector;
    period: "now" | "day" | "week" | "month" | "total";
    each: "" | "owner" | "job";
    share: string;
    hard: boolean;
    alerts: Array<number>;
    license: string;
  }
  interface Change {
    reset: boolean;
    rows: Record<string, Record<string, Record<string, any> | null>>;
  }
  interface ChangeRule {
    type: "rule";
    policy: string;
    effect: string;
    field: string;
    value: boolean | number | string | null;
  }
  interface Cheaper {
    kind: "cheaper";
    saves_usd: number;
    gain?: string;
    job?: string;
    gains_usd?: number;
    finish_at?: number | null;
  }
  interface CheaperElsewhere {
    kind: "cheaper-elsewhere";
    place: string;
    start_at: number;
    saves_usd: number;
  }
  interface Checkpoint {
    signal: string;
    grace_s: number;
    every_s: number | null;
    uri: string;
  }
  interface Closed {
    kind: "closed";
    site: string;
    said?: string;
    members?: number;
    member?: string;
  }
  interface ClosesSoon {
    kind: "closes-soon";
    policy: string;
    closes_at: number;
    late_s?: number | null;
  }
  interface Contrast {
    names: [string, string];
    changes: Array<string>;
    total: QueueContrast;
    queues: Array<QueueContrast>;
    sooner: number;
    later: number;
    newly_met: number;
    newly_missed: number;
    refused: Record<string, number>;
    jobs: Array<JobChange>;
  }
  interface CpusPerNode {
    kind: "cpus-per-node";
    asks_milli: number;
    has_milli: number;
  }
  interface DataKept {
    kind: "data-kept";
    policy: string;
  }
  interface DataSelector {
    uris: Array<string>;
    labels: Record<string, string>;
    none: boolean;
  }
  interface DatasetRule {
    type: "dataset";
    policy: string;
    uri: string;
    size_bytes: number | null;
    replicas: Array<Spot>;
    labels: Record<string, string>;
    kept_at: Array<string>;
  }
  interface DecisionRow {
    id: string;
    at: number;
    winner: string;
    objective_usd: number;
    actions: number;
    jobs: number;
    stages: string;
    size_bytes: number;
    winner_because: string;
    winner_reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    waiting: number;
    stale: number;
    checkpoint: string;
    proof: Proof | null;
  }
  interface Delay {
    job: string;
    by_s: number;
  }
  interface Denied {
    kind: "denied";
    policy: string;
    said?: string;
  }
  interface Displaces {
    kind: "displaces";
    policy: string;
    stops?: number;
    made?: boolean;
  }
  interface DocumentChange {
    document: string;
    change: string;
    lines: Array<string>;
  }
  interface DrainPreview {
    jobs: number;
    ends_alone: number;
    stops: number;
    stopped: Array<Stopped>;
    empty_at: number | null;
    lost_gpu_s: number;
    lost_usd: number;
  }
  interface Event {
    id: string;
    job: string;
    at: number;
    kind: string;
    status: string;
    text: string;
    site: string;
    placement: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface Evicted {
    jobs: Array<string>;
  }
  interface Expected {
    place: string;
    start_at: number;
    offered?: boolean;
    booting?: boolean;
  }
  interface Explanation {
    job: string;
    name: string;
    tasks: Record<string, number>;
    status: string;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    decision: string;
    winner: string;
    sites: Array<SiteReason>;
    changes: Array<string>;
    expected_start_at: number | null;
    expected_finish_at: number | null;
    home_finish_at: number | null;
    deadline_at: number | null;
    burst: BurstEvidence | null;
    policies: Array<string>;
    start_low_at: number | null;
    start_high_at: number | null;
    finish_low_at: number | null;
    finish_high_at: number | null;
    curve: Array<PricePoint>;
    series: string;
    deadline_usd: number | null;
    remedies: Array<Remedy>;
    run_time: string;
    ahead: Array<Ahead>;
  }
  interface Federation {
    type: "federation";
    field: string;
  }
  interface Filter {
    type: "filter";
    policy: string;
    effect: "allow" | "deny";
    scope: Scope;
    pools: PoolSelector;
    window: Window | null;
    mode: "economic" | "threshold" | "always" | "off" | null;
    for_waiting: boolean;
    after_wait_s: number | null;
    max_price_usd_h: number | null;
    reason: string;
    data: DataSelector | null;
    beyond: boolean;
    advisory: boolean;
    approval_above_usd: number | null;
  }
  interface Finding {
    severity: "fatal" | "remark";
    promise: number;
    subject: string;
    text: string;
  }
  interface FirstForecast {
    at: number;
    start_at: number;
    start_high_at: number;
    finish_at: number;
    finish_high_at: number;
    spent_usd?: number | null;
  }
  interface Fits {
    kind: "fits";
    asked: Asked;
    place: string;
    places: number;
    finish_at: number;
    deadline_at?: number | null;
    queue?: string;
    start_by_at?: number | null;
    rented?: boolean;
    members?: Array<string>;
    member_count?: number;
    form?: FormTaken | null;
    why_form?: string;
    price_usd_gpu_h?: number;
    brought?: Brought | null;
    heard_s?: number;
  }
  interface FitsNow {
    kind: "fits-now";
  }
  interface ForecastMove {
    at: number;
    decision: string;
    start_at: number | null;
    finish_at: number | null;
    because: Array<string>;
  }
  interface Form {
    nodes: number;
    resources: Resources;
    throughput: number;
    option: number;
  }
  interface FormTaken {
    entry: number;
    entries: number;
    nodes: number;
    nodes_low: number;
    nodes_high: number;
    gpus: number;
    gpus_low: number;
    gpus_high: number;
  }
  interface Framework {
    name: string;
    processes: number;
    restarts: number;
  }
  interface GainsLess {
    kind: "gains-less";
    cost_usd: number;
    value_usd: number;
    deadline?: boolean;
    surer?: number | null;
    enough_usd?: number | null;
  }
  interface GangTooLarge {
    kind: "gang-too-large";
    holds: number;
    nodes: number;
    site?: string;
    leased?: boolean;
    shut?: number;
    member?: string;
    said?: string;
    apart?: boolean;
    host_gpus?: number;
    host_cpus_milli?: number;
  }
  interface GivenUp {
    placements: Array<string>;
  }
  interface GpuCurve {
    member: string;
    gpu: number;
    points: Array<GpuPoint>;
  }
  interface GpuHolder {
    job: string;
    name: string;
  }
  interface GpuMemory {
    kind: "gpu-memory";
    asks_mib: number;
    has_mib: number;
  }
  interface GpuPoint {
    at: number;
    busy_percent: number;
    memory_mib: number;
    power_w: number | null;
  }
  interface GpuRow {
    member: string;
    pool: string;
    host: string;
    gpu: number;
    busy_percent: number | null;
    memory_mib: number;
    power_w: number | null;
    slowed_by: string;
    near: string;
    told_at: number;
    jobs: Array<GpuHolder>;
  }
  interface GpusPerNode {
    kind: "gpus-per-node";
    asks: number;
    has?: number;
  }
  interface GpusShared {
    kind: "gpus-shared";
    part?: boolean;
  }
  interface GpusWhole {
    kind: "gpus-whole";
    gpus?: boolean;
  }
  interface Grant {
    who: Members;
    max_priority: number;
    max_value_usd: number | null;
    must: boolean;
    rent: boolean;
  }
  interface GreedyAlone {
    kind: "greedy-alone";
    situation: string;
  }
  interface GuaranteeRow {
    type: "guarantee";
    policy: string;
    queue: string;
    gpus: number;
    model: string;
    weight: number;
    borrowing_limit: number | null;
    lending_limit: number | null;
    reclaim_s: number;
    shortfall_usd_gpu_h: number;
    cpus_milli: number;
    memory_mib: number;
  }
  interface Held {
    kind: "held";
    place: string;
    job: string;
    gpus: number;
    until_at: number;
  }
  interface HomeAway {
    kind: "home-away";
    sites: Array<string>;
  }
  interface HttpProblem {
    type: string;
    title: string;
    status: number;
    detail: string;
    code: string;
    field: string | null;
    remedy: string | null;
    retry_after_s: number | null;
  }
  interface InForm {
    kind: "in-form";
    form: FormTaken;
    why: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
  }
  interface InTimeAtHome {
    kind: "in-time-at-home";
    finish_at: number;
    deadline_at: number;
  }
  interface InUse {
    kind: "in-use";
    gpus: number;
  }
  interface Input {
    uri: string;
    size_bytes: number | null;
  }
  interface InputFrom {
    job: string;
    name: string;
    output?: string;
    each?: boolean;
  }
  interface Job {
    id: string;
    name: string;
    owner: string;
    queue: string;
    status: "PENDING" | "PLACED" | "STARTING" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELLED" | "HELD" | "SUSPENDING" | "CANCELLING" | "RECOVERING";
    spec_hash: string;
    submitted_at: number;
    team: string;
    may_rent: boolean;
    priority: number;
    deadline_at: number | null;
    value_usd: number | null;
    must: boolean;
    max_cost_usd: number | null;
    max_duration_s: number | null;
    array: string | null;
    array_index: number | null;
    series: string | null;
    due_at: number | null;
    pipeline: string | null;
    at_once: number | null;
    after: Array<string>;
    after_how: Array<"ok" | "failed" | "any" | "each">;
    client_id: string | null;
    placement: string | null;
    epoch: number;
    errors: number;
    losses: Array<string>;
    not_before_at: number | null;
    refusals: Array<Refusal>;
    resume_site: string | null;
    resume_members: Array<string>;
    pause_for: string | null;
    displaced_at: number | null;
    saved_s: number;
    form: number | null;
    approved_usd: number;
    proposed: string;
    proposed_usd: number;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    started_at: number | null;
    finished_at: number | null;
    notify: Array<"start" | "end" | "fail" | "deadline-at-risk" | "idle-gpus">;
    notified: Array<"start" | "end" | "fail" | "deadline-at-risk" | "idle-gpus">;
    first_forecast: FirstForecast | null;
    spent_usd: number;
    gpu_s: number;
    energy_kwh: number;
    outcome: Outcome | null;
  }
  interface JobChange {
    job: string;
    queue: string;
    owner: string;
    gpus: number;
    before: JobFate;
    after: JobFate;
    weight_usd: number;
  }
  interface JobDetail {
    job: Job;
    spec: JobSpec;
    site: string;
    pool: string;
    market: string;
    members: Array<string>;
    parts: Array<Part>;
    waiting: Waiting | null;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    decision: string;
    winner: string;
    winner_because: string;
    winner_reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    outputs: boolean;
    attempts: Array<AttemptRow>;
    series: string;
    used: Used | null;
    form: number | null;
    expected_start_at: number | null;
    expected_finish_at: number | null;
    start_low_at: number | null;
    start_high_at: number | null;
    finish_low_at: number | null;
    finish_high_at: number | null;
    before: number | null;
    planned_at: number | null;
    may: Array<"read" | "submit" | "change" | "exec" | "manage">;
  }
  interface JobFate {
    site: string;
    market: string;
    wait_s: number | null;
    met: boolean | null;
    usd: number;
    attempts: number;
    because: string;
  }
  interface JobPage {
    jobs: Array<JobRow>;
    next_after: string | null;
    total: number;
  }
  interface JobRow {
    id: string;
    name: string;
    owner: string;
    queue: string;
    status: string;
    priority: number;
    nodes: number;
    gpus: number;
    models: string;
    site: string;
    market: string;
    submitted_at: number;
    started_at: number | null;
    finished_at: number | null;
    deadline_at: number | null;
    home_finish_at: number | null;
    expected_start_at: number | null;
    expected_finish_at: number | null;
    start_low_at: number | null;
    start_high_at: number | null;
    finish_low_at: number | null;
    finish_high_at: number | null;
    spent_usd: number;
    because: string;
    array: string | null;
    array_index: number | null;
    tasks: Record<string, number>;
    indices: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    missed_deadline: boolean | null;
    labels: Record<string, string>;
    used: Used | null;
    series: string | null;
    width: string;
    team: string;
    may_change: boolean;
  }
  interface JobSpec {
    name: string;
    run: string | null;
    command: Array<string> | null;
    setup: string | null;
    workdir: string | null;
    env: Record<string, string>;
    outputs: Array<string>;
    nodes: number;
    resources: Resources;
    estimate_s: number | null;
    speed: Record<string, number>;
    spot_policy: string;
    checkpoint: Checkpoint | null;
    retry: Retry;
    placement: PlacementConstraints;
    labels: Record<string, string>;
    stop_within_s: number;
    inputs: Array<Input>;
    inputs_from: Array<InputFrom>;
    image: string;
    secrets: Array<string>;
    forms: Array<Form>;
    elastic: boolean;
    ordered: boolean;
    patience_s: number;
    licenses: Record<string, number>;
    framework: Framework;
    launch: Array<string>;
    success: string;
  }
  interface JobView {
    id: string;
    revision: number;
    name: string;
    queue: string;
    owner: string;
    team: string;
    submitted_at: number;
    waits_since_at: number | null;
    priority: number;
    nodes: number;
    gpus: number;
    models: Array<string>;
    gpu_memory_mib: number;
    cpus_milli: number;
    memory_mib: number;
    run_s: number;
    run_low_s: number;
    run_high_s: number;
    speed: Record<string, number>;
    max_duration_s: number | null;
    grace_s: number;
    deadline_at: number | null;
    start_by_at: number | null;
    value_usd: number | null;
    must: boolean;
    max_cost_usd: number | null;
    spent_usd: number;
    spot_policy: string;
    kinds: Array<string>;
    sites: Array<string>;
    resumes_at: string;
    not_sites: Array<string>;
    site_labels: Record<string, string>;
    labels: Record<string, string>;
    interactive: boolean;
    patience_s: number;
    not_before_at: number | null;
    avoid_nodes: Array<string>;
    refused: Array<[string, number]>;
    needs: Array<string>;
    needs_fencing: boolean;
    inputs: Array<Input>;
    licenses: Record<string, number>;
    saves: boolean;
    repeats_s: number | null;
    cost_policy: string;
    approved_usd: number;
    may_rent: boolean;
    usable_queues: Array<string> | null;
    behind_s: number;
    shared: boolean;
    forms: Array<Form>;
    elastic: boolean;
    ordered: boolean;
    throughput: number;
    of: JobView | null;
    priced_gpus: number;
    priced_run_s: number;
    together: string;
    ranks_in_one: number;
  }
  interface JoinAnswer {
    member: string;
    site: string;
    incarnation: string;
  }
  interface KeyAnswer {
    member: string;
  }
  interface LabelsMissing {
    kind: "labels-missing";
    labels: Array<string>;
    site: string;
  }
  interface Lane {
    key: string;
    site: string;
    pool: string;
    kind?: string;
    model?: string;
    market?: string;
    shared?: boolean;
    gpus_per_node?: number;
    members?: Record<string, number>;
    lease?: string;
    offer?: string;
    closed?: string;
  }
  interface LateUnrented {
    kind: "late";
    waits: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
    place?: string;
    why?: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface Lead {
    job: string;
    place: string;
    jobs: number;
    form: number;
  }
  interface LeaseRow {
    id: string;
    site: string;
    offer: string;
    market: string;
    status: string;
    gpus: number;
    price_usd_h: number;
    billed_usd: number;
    committed_usd: number;
    requested_at: number;
    ready_at: number | null;
    ended_at: number | null;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    failure: string | null;
    evidence: BurstEvidence | null;
    kept_because: string;
    zone: string;
  }
  interface LedgerEntry {
    id: string;
    at: number;
    kind: "act" | "usage" | "money" | "loss";
    who: string;
    what: string;
    job: string;
    queue: string;
    owner: string;
    site: string;
    lease: string;
    market: string;
    model: string;
    gpu_s: number;
    usd: number;
    egress_gib: number;
    team: string;
    energy_kwh: number;
    power_usd: number;
    co2_kg: number;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    answered: number;
    met: number;
  }
  interface LendsToOthers {
    kind: "lends-to-others";
    site: string;
    lends_to: Array<string>;
    queue: string;
    owner?: string;
    team?: string;
    usable?: string;
  }
  interface Link {
    gbit_s: number | null;
    usd_per_gb: number;
  }
  interface LinkRow {
    src: string;
    dst: string;
    link: Link;
  }
  interface LinkRule {
    type: "links";
    policy: string;
    within_region: Link | null;
    between_regions: Link | null;
    rows: Array<LinkRow>;
  }
  interface LinkState {
    hour?: Array<LinkTraffic>;
    round_trip_s?: number | null;
    budget?: number | null;
    rate?: number | null;
    hours?: string;
  }
  interface LinkTraffic {
    kind: string;
    sent: number;
    received: number;
  }
  interface LocalWork {
    pool: string;
    nodes: number;
    gpus_per_node: number;
    ends_at?: number | null;
    queued?: boolean;
  }
  interface LogLength {
    length: number;
    most: number;
  }
  interface MakesRoom {
    kind: "makes-room";
    job: string;
    why: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
  }
  interface Mark {
    at: string;
  }
  interface MaxCost {
    kind: "max-cost";
    worst_usd: number;
    left_usd: number;
    rent_s?: number | null;
    machines?: number;
    brought?: Brought | null;
    policy?: string;
  }
  interface MemberRow {
    name: string;
    status: string;
    because: string;
    age_s: number | null;
    lease: string;
    joined_at: number;
    version: string;
    version_is: "" | "newer" | "older";
    link: LinkState | null;
  }
  interface Members {
    teams: Array<string>;
    users: Array<string>;
    groups: Array<string>;
  }
  interface MemoryPerNode {
    kind: "memory-per-node";
    asks_mib: number;
    has_mib: number;
  }
  interface MoreHosts {
    type: "hosts";
    key: string;
    hosts: number;
    gpus: number;
    model: string;
  }
  interface Moves {
    moved_bytes: number;
    seconds: number;
    usd: number;
    source: string;
  }
  interface MyAddress {
    mail: string;
    webhook: string;
    format: "json" | "slack" | "teams";
  }
  interface MyNotifications {
    reachable: boolean;
    own: MyAddress;
    mail_domains: Array<string>;
    webhook_hosts: Array<string>;
  }
  interface Narrows {
    kind: "narrows";
    job: string;
    nodes: number;
    gpus: number;
  }
  interface NoBurstPolicy {
    kind: "no-burst-policy";
    queue: string;
  }
  interface NoDeadline {
    kind: "no-deadline";
    policy: string;
  }
  interface NoLicense {
    kind: "no-license";
    license: string;
    asks: number;
    most: number;
  }
  interface NoMaxDuration {
    kind: "no-max-duration";
    enough_s: number;
  }
  interface NoRightToRent {
    kind: "no-right-to-rent";
    queue: string;
  }
  interface NoRoom {
    kind: "no-room";
    asked: Asked;
    places: number;
    expected?: Expected | null;
    queue?: string;
    start_by_at?: number | null;
    narrowing?: boolean;
    elsewhere?: boolean;
  }
  interface NoSites {
    kind: "no-sites";
  }
  interface NoneCheaper {
    kind: "none-cheaper";
    stages?: Array<string>;
  }
  interface NotBefore {
    kind: "not-before";
    until_at: number;
  }
  interface NotLabelled {
    kind: "not-labelled";
    label: string;
  }
  interface NotOnOneHost {
    kind: "not-on-one-host";
    nodes: number;
    gpus: number;
    cpus_milli: number;
    memory_mib: number;
  }
  interface Nowhere {
    kind: "nowhere";
    place: string;
    why: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
  }
  interface Offer {
    name: string;
    provider: string;
    region: string;
    instance_type: string;
    market: "owned" | "on-demand" | "spot";
    model: string;
    gpu_memory_mib: number;
    gpus: number;
    cpus_milli: number;
    memory_mib: number;
    price_usd_h: number;
    delay_s: number;
    teardown_s: number;
    minimum_billing_s: number;
    available: number;
    egress_usd_per_gib: number;
    price_source: string;
    shared: boolean;
    stock: Stock;
  }
  interface OfferAvoided {
    kind: "offer-avoided";
    until_at: number;
    said?: string;
  }
  interface OfferRow {
    provider: string;
    name: string;
    site: string;
    model: string;
    gpus: number;
    market: string;
    price_usd_h: number;
    delay_s: number;
    available: number;
    stock: string;
    avoid_until_at: number | null;
    price_source: string;
    interruptions_h: number;
    interruptions: number;
    watched_h: number;
    zones_interruptions_h: Record<string, number>;
  }
  interface OfferView {
    offer: Offer;
    site: string;
    labels: Record<string, string>;
    avoid_until_at: number | null;
    avoid_because: string;
    slack_s: number;
    interruptions_h: number;
  }
  interface Offers {
    type: "ability";
    keys: Array<string>;
    ability: string;
  }
  interface OnlyAdvises {
    kind: "only-advises";
    policy: string;
  }
  interface Open {
    type: "open";
    keys: Array<string>;
  }
  interface Opening {
    type: "opening";
    policy: string;
    pools: PoolSelector;
    windows?: Array<Window>;
    closed?: Array<Window>;
    stops?: boolean;
    but_for?: Scope | null;
  }
  interface OtherKinds {
    kind: "other-kinds";
    kinds: Array<string>;
    site_kind: string;
  }
  interface OtherMarket {
    kind: "other-market";
    market: string;
  }
  interface OtherModels {
    kind: "other-models";
    models: Array<string>;
    has?: string;
  }
  interface OtherParts {
    kind: "other-parts";
    part: number;
    asks: number;
  }
  interface OtherSites {
    kind: "other-sites";
    sites: Array<string>;
    site: string;
  }
  interface Outcome {
    reason: "done" | "exit-code" | "setup-failed" | "staging-failed" | "image-pull-failed" | "max-duration" | "out-of-memory" | "dependency-failed" | "retries-spent" | "cancelled";
    detail: string;
    exit_code: number | null;
    missed_deadline: boolean | null;
  }
  interface OutputArchive {
    job: string;
    label: string;
    digest: string;
    size_bytes: number;
    below?: string;
  }
  interface OutputFile {
    path: string;
    size: number;
  }
  interface OutputLength {
    length: number;
  }
  interface OutputList {
    files: Array<OutputFile>;
    complete: boolean;
  }
  interface Outside {
    used: number;
    usd: number;
  }
  interface OutsideHours {
    kind: "outside-hours";
    policy: string;
    until_at?: number | null;
  }
  interface Overview {
    now: number;
    sites: Array<SiteRow>;
    queues: Array<QueueRow>;
    leases: Array<LeaseRow>;
    jobs: Array<JobRow>;
    spent_usd: number;
    committed_usd: number;
    caps: Array<BudgetRow>;
    turn: string;
    jobs_total: number;
  }
  interface OwedGuarantee {
    kind: "owed-guarantee";
    queue: string;
    gpus?: number;
    model?: string;
    cpus_milli?: number;
    memory_mib?: number;
    reclaim_s?: number;
    stops?: number;
    made?: boolean;
  }
  interface Part {
    member: string;
    status?: "ASSIGNED" | "ACCEPTED" | "STARTING" | "RUNNING" | "SUCCEEDED" | "FAILED" | "STOPPED" | "LOST" | "REFUSED" | "REVOKED";
    cause?: "exit" | "setup" | "staging" | "image-pull" | "max-duration" | "out-of-memory" | "stopped" | "node-lost" | "cut-off" | "interrupted" | "evicted" | "cannot" | null;
    detail?: string;
    exit_code?: number | null;
    started_at?: number | null;
    ended_at?: number | null;
    rank?: RankStatus | null;
    checkpointed?: boolean;
    unkept?: boolean;
    rendezvous?: string;
    stop_acknowledged?: boolean;
  }
  interface PartRow {
    gpu: number;
    share: number;
    job: string;
    name: string;
    rank: number;
  }
  interface Permit {
    type: "permit";
    queue: string;
    site: string;
  }
  interface Place {
    type: "place";
    job: string;
    revision: number;
    site: string;
    pool: string;
    members: Array<string>;
    sessions: Array<string>;
    market: "owned" | "on-demand" | "spot";
    price_usd_gpu_h: number;
    expected_start_at: number;
    expected_end_at: number;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    lease: string | null;
    moves: Moves | null;
    form: number;
  }
  interface PlacementConstraints {
    kinds: Array<string>;
    sites: Array<string>;
    not_sites: Array<string>;
    labels: Record<string, string>;
    together: string;
  }
  interface PlacementInputs {
    found: Array<Array<OutputArchive>>;
  }
  interface Plan {
    decision: string;
    taken_at: number;
    seed: number;
    winner: string;
    objective_usd: number;
    winner_because: string;
    winner_reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    terms: Record<string, number>;
    stages: Array<StageReport>;
    actions: Array<Place | Rent | Preempt>;
    waiting: Array<Waiting>;
    findings: Array<Finding>;
    prices: Record<string, number>;
    wake_at: number | null;
    proposals: Array<Proposal>;
  }
  interface PlanPage {
    decision: string;
    taken_at: number;
    recorded: boolean;
    winner: string;
    since_at: number;
    until_at: number;
    lanes: Array<Lane>;
    bars: Array<Bar>;
    total: number;
    next_after: string | null;
    unplanned: number;
    outside: number;
  }
  interface PolicyDiff {
    version: number;
    documents: Array<DocumentChange>;
    added: Array<string>;
    removed: Array<string>;
    problems: Array<HttpProblem>;
  }
  interface PolicyDocument {
    kind: string;
    name: string;
    text: string;
  }
  interface PolicyHours {
    kind: "policy-hours";
    policy: string;
  }
  interface PolicyOff {
    kind: "policy-off";
    policy: string;
  }
  interface PolicyReplay {
    version: number;
    since_at: number;
    until_at: number;
    contrast: Contrast | null;
    problems: Array<HttpProblem>;
    remarks: Array<string>;
    troubles: Array<string>;
    took_s: number;
  }
  interface PolicySet {
    version: number;
    author: string;
    reason: string;
    applied_at: number;
    documents: Array<PolicyDocument>;
    rules: Array<Filter | CapRow | GuaranteeRow | PriceTerm | PreemptRule | QueueTerms | Opening | DatasetRule | LinkRule | TeamRule | AccessRule | AllotmentRule>;
  }
  interface PolicyVerdict {
    version: number | null;
    documents: Array<string>;
    rules: number;
    problems: Array<HttpProblem>;
    access: string;
  }
  interface Pool {
    name: string;
    model: string;
    gpu_memory_mib: number;
    nodes: number;
    gpus_per_node: number;
    cpus_milli_per_node: number;
    memory_mib_per_node: number;
    free: Array<Shape>;
    lent_gpus: number;
    shared: boolean;
    cut_milli: number;
    longest_s: number;
    labels: Record<string, string>;
  }
  interface PoolRow {
    pool: Pool;
    member: string;
    free: Array<Shape>;
    busy_gpus: number;
    largest_gang: string;
    ailing: Array<AilingGpu>;
    local_work: Array<LocalWork>;
    parts: Array<PartRow>;
  }
  interface PoolSelector {
    sites: Array<string>;
    kinds: Array<string>;
    providers: Array<string>;
    regions: Array<string>;
    markets: Array<"owned" | "on-demand" | "spot">;
    models: Array<string>;
  }
  interface PoolView {
    site: string;
    kind: string;
    pool: string;
    member: string;
    session: string;
    region: string;
    provider: string | null;
    labels: Record<string, string>;
    market: "owned" | "on-demand" | "spot";
    price_usd_gpu_h: number;
    undeclared: boolean;
    model: string;
    gpu_memory_mib: number;
    nodes: number;
    gpus_per_node: number;
    cpus_milli_per_node: number;
    memory_mib_per_node: number;
    free: Array<Shape>;
    busy: Array<BusyView>;
    lends_to: Array<string>;
    abilities: Array<string>;
    self_fencing: boolean;
    trusts: Array<string> | null;
    age_s: number;
    open: boolean;
    closed_because: string;
    lease: string | null;
    ready_at: number | null;
    rented_for: string;
    rented_queue: string;
    paid_until_at: number | null;
    tail_s: number;
    shared: boolean;
    cut_milli: number;
    longest_s: number | null;
    interruptions_h: number;
  }
  interface Preempt {
    type: "preempt";
    job: string;
    revision: number;
    placement: string;
    beneficiary: string;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    form: number | null;
  }
  interface PreemptRule {
    type: "preempt";
    policy: string;
    who: Scope;
    victims: Scope;
    minimum_run_s: number;
    minimum_priority_gap: number;
    patience_s: number;
    cool_down_s: number;
  }
  interface Preview {
    name: string;
    queue: string;
    explanation: Explanation;
    cost_usd: number | null;
    notes: Array<string>;
    launch: Array<string>;
    file: Record<string, any> | null;
    array: ArrayPreview | null;
  }
  interface PriceLimit {
    kind: "price-limit";
    policy: string;
    price_usd_h: number;
    limit_usd_h: number;
  }
  interface PricePoint {
    site: string;
    pool: string;
    market: "owned" | "on-demand" | "spot";
    start_at: number;
    finish_low_at: number;
    finish_at: number;
    finish_high_at: number;
    cost_usd: number;
    at_most_usd: number;
    in_time: boolean | null;
  }
  interface PriceTerm {
    type: "price";
    policy: string;
    kind: "miss-usd-per-gpu-h" | "wait-usd-per-gpu-h" | "wait-usd-per-h" | "pool-usd-per-gpu-h";
    usd: number;
    scope: Scope;
    pools: PoolSelector;
    window: Window | null;
  }
  interface Problem {
    snapshot: Snapshot;
    warm_prices: Record<string, number>;
    outside: Record<string, Outside>;
    leads: Array<Lead>;
    decision: string;
  }
  interface Proof {
    bound_usd: number;
    gap: number;
  }
  interface Proposal {
    job: string;
    kind: "advice" | "approval";
    policy: string;
    provider: string;
    offer: string;
    cost_usd: number;
    committed_usd: number;
    finish_at: number;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface ProposalRow {
    kind: string;
    job: string;
    name: string;
    owner: string;
    queue: string;
    policy: string;
    offer: string;
    cost_usd: number;
    worst_usd: number;
    because: string;
  }
  interface Proposed {
    kind: "proposed";
    policy: string;
    place: string;
    cost_usd: number;
    committed_usd: number;
    finish_at: number;
    approval?: boolean;
    home_finish_at?: number | null;
  }
  interface QueueContrast {
    queue: string;
    moved: number;
    before: SideSums;
    after: SideSums;
  }
  interface QueueRights {
    queue: string;
    submit: boolean;
    administer: boolean;
    teams: Array<string>;
    max_priority: number;
    max_value_usd: number | null;
    must: boolean;
    rent: boolean;
  }
  interface QueueRow {
    queue: string;
    guaranteed_gpus: number;
    limit_gpus: number | null;
    weight: number;
    gpus: number;
    running: number;
    pending: number;
    interactive: boolean;
    deadline_budget_s: number | null;
    max_duration_s: number | null;
    spent_usd: number;
    open_to: string;
    yours: QueueRights;
  }
  interface QueueTerms {
    type: "queue";
    policy: string;
    queue: string;
    interactive: boolean;
    deadline_budget_s: number | null;
    max_wait_s: number | null;
    max_idle_s: number | null;
    idle_verb: "cancel" | "hold" | "requeue" | "shrink" | null;
    max_duration_s: number | null;
    max_priority: number;
    max_value_usd: number | null;
    allow_must: boolean;
    patience_s: number | null;
    usage_half_life_s: number | null;
    usage_weights: Record<string, number>;
  }
  interface RaiseCap {
    type: "cap";
    row: CapRow;
    limit: number;
  }
  interface RankStatus {
    rank: number;
    node?: string;
    phase?: string;
    exit_code?: number | null;
  }
  interface RecordedDecision {
    problem: Problem;
    plan: Plan;
    proof: Proof | null;
  }
  interface RecordedJob {
    id: string;
    name: string;
    queue: string;
    owner: string;
    ready_at: number;
    run_s: number;
    ended?: boolean;
    ran_before_s?: number;
    estimate_s?: number | null;
    deadline_at?: number | null;
    value_usd?: number | null;
    must?: boolean;
    max_cost_usd?: number | null;
    max_duration_s?: number | null;
    priority?: number;
    nodes?: number;
    gpus?: number;
    cpus_milli?: number;
    memory_mib?: number;
    gpu_memory_mib?: number;
    models?: Array<string>;
    speed?: Record<string, number>;
    spot_policy?: string;
    kinds?: Array<string>;
    sites?: Array<string>;
    not_sites?: Array<string>;
    site_labels?: Record<string, string>;
    labels?: Record<string, string>;
    licenses?: Record<string, number>;
    inputs?: Array<Input>;
  }
  interface RecordedJobs {
    jobs: Array<RecordedJob>;
    left_out: number;
    next_after: string | null;
  }
  interface RecordedOffer {
    offer: Offer;
    site: string;
  }
  interface RecordedPool {
    name: string;
    model: string;
    gpu_memory_mib: number;
    nodes: number;
    gpus_per_node: number;
    cpus_milli_per_node: number;
    memory_mib_per_node: number;
  }
  interface RecordedSite {
    name: string;
    kind: "onprem" | "cloud" | "edge";
    region: string;
    labels: Record<string, string>;
    price_usd_gpu_h: number;
    draining: boolean;
    pools: Array<RecordedPool>;
  }
  interface RecordedWorld {
    taken_at: number;
    sites: Array<RecordedSite>;
    offers: Array<RecordedOffer>;
  }
  interface Recurrence {
    interval_s: number;
    cron: string;
    timezone: string;
    start_at: number | null;
    end_at: number | null;
    submit_within_s: number | null;
    overlap: "skip" | "queue" | "replace";
    keep: number;
  }
  interface Refusal {
    member: string;
    site: string;
    at: number;
    times: number;
    until_at: number;
  }
  interface Remedy {
    text: string;
    changes: Array<AskFor | MoreHosts | Open | Offers | RaiseCap | ChangeRule | Permit | WaitUntil | Federation>;
    places: Array<string>;
    certain: boolean;
    start_at: number | null;
    delays: Array<Delay>;
  }
  interface Rent {
    type: "rent";
    job: string;
    revision: number;
    provider: string;
    offer: string;
    site: string;
    expected_start_at: number;
    expected_end_at: number;
    committed_usd: number;
    evidence: BurstEvidence;
    because: string;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    moves: Moves | null;
    form: number;
    machines: number;
  }
  interface RentLater {
    kind: "rent-later";
    rent_at: number;
    cost_usd: number;
    policy: string;
  }
  interface RentLine {
    machines: number;
    price_usd_h: number;
    billed_usd: number;
    committed_usd: number;
  }
  interface Rentable {
    kind: "rentable";
    cost_usd: number;
    policy: string;
  }
  interface RentalAwaited {
    kind: "rental-awaited";
    place: string;
    rent_at: number;
  }
  interface RentingPaused {
    kind: "renting-paused";
  }
  interface Rents {
    kind: "rents";
    place: string;
    finish_at: number;
    cost_usd: number;
    committed_usd: number;
    policy: string;
    mode: string;
    required?: boolean;
    machines?: number;
    warm?: number;
    home_finish_at?: number | null;
    home_risk?: number;
    deadline_at?: number | null;
    value_usd?: number;
    in_time?: number | null;
    fallback_finish_at?: number | null;
    interruptions_h?: number;
    rework?: number;
    form?: FormTaken | null;
    brought?: Brought | null;
    not_place?: string;
    not_why?: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface ReplayResult {
    identical: boolean;
    differences: Array<string>;
  }
  interface ReplicaRow {
    job: string;
    name: string;
    revision: number;
    status: string;
    health: string;
    draining: boolean;
    site: string;
    price_usd_h: number;
  }
  interface Reservation {
    why: "cheaper" | "deadline" | "rental" | "gang";
    place: string;
    until_at: number;
    saves_usd?: number;
    for_job?: string;
  }
  interface ReservedGpus {
    site: string;
    job: string;
    name: string;
    gpus: number;
    until_at: number;
    policy: string;
  }
  interface Resources {
    gpus: Accelerators;
    cpus_milli: number;
    memory_mib: number;
    shm_mib: number;
  }
  interface Retry {
    on: Array<string>;
    max: number;
    backoff_s: number;
  }
  interface Revoked {
    tokens: number;
  }
  interface Routed {
    services: Array<RoutedService>;
  }
  interface RoutedReplica {
    job: string;
    port: number;
    weight: number;
  }
  interface RoutedService {
    name: string;
    ready_path: string;
    resend: boolean;
    most: number;
    at_once_each: number;
    p95_latency_s: number | null;
    replicas: Array<RoutedReplica>;
  }
  interface RunTooLong {
    kind: "run-too-long";
    longest_s: number;
    run_s: number;
    forecast?: boolean;
  }
  interface Running {
    kind: "running";
    site: string;
    why: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
  }
  interface SavedAt {
    kind: "saved-at";
    site: string;
  }
  interface Scale {
    least: number;
    most: number;
    requests_per_replica: number;
    p95_latency_s: number | null;
    gpu_utilisation_percent: number | null;
    down_after_s: number;
    surge: number;
    drain_s: number;
    spread: boolean;
  }
  interface Scope {
    queues: Array<string>;
    owners: Array<string>;
    labels: Record<string, string>;
    not_queues: Array<string>;
  }
  interface SeriesDetail {
    series: SeriesRow;
    every: Recurrence;
    notes: Array<SeriesNote>;
    jobs: Array<string>;
    created_at: number;
    changed_at: number;
    file: Record<string, any> | null;
  }
  interface SeriesNote {
    at: number;
    text: string;
  }
  interface SeriesRow {
    name: string;
    owner: string;
    queue: string;
    every: string;
    overlap: string;
    status: string;
    next_at: number | null;
    runs: number;
    last: string;
    last_status: string;
    because: string;
  }
  interface ServiceDetail {
    service: ServiceRow;
    scale: Scale;
    port: number;
    ready_path: string;
    former: number | null;
    fault: string;
    replicas: Array<ReplicaRow>;
    created_at: number;
    changed_at: number;
    file: Record<string, any> | null;
  }
  interface ServiceRow {
    name: string;
    owner: string;
    queue: string;
    revision: number;
    canary: number;
    least: number;
    most: number;
    wanted: number;
    ready: number;
    rate: number | null;
    p95_s: number | null;
    gpu_use_percent: number | null;
    attained: number | null;
    price_usd_h: number;
    because: string;
  }
  interface SessionStart {
    url: string;
  }
  interface Shape {
    gpus: number;
    cpus_milli: number;
    memory_mib: number;
    count: number;
  }
  interface SideSums {
    jobs: number;
    refused: number;
    deadlines: number;
    met: number;
    wait_mean_s: number;
    owned_usd: number;
    rented_usd: number;
    egress_usd: number;
  }
  interface SignInWay {
    issuer: string;
    client_id: string;
    scopes: Array<string>;
    parameters: Record<string, string>;
    client_secret: string;
    bearer: string;
    ca: string;
  }
  interface Site {
    name: string;
    kind: "onprem" | "cloud" | "edge";
    status: "JOINING" | "READY" | "DEGRADED" | "UNREACHABLE" | "LOST" | "DRAINING" | "GONE";
    region: string;
    provider: string | null;
    labels: Record<string, string>;
    price_usd_gpu_h: number;
    draining: boolean;
    drain_by_at: number | null;
    drain_because: string;
    created_at: number;
  }
  interface SiteExcluded {
    kind: "site-excluded";
    site: string;
  }
  interface SiteLine {
    name: string;
    kind: string;
    status: string;
    region: string;
    labels: Record<string, string>;
    models: Array<string>;
    gpus: number;
    busy: number;
    sick: number;
    running: number;
    largest_gang: string;
    reported_at: number | null;
    draining: boolean;
    drain_because: string;
    paused: boolean;
    members: number;
    because: string;
  }
  interface SiteReason {
    site: string;
    pool: string;
    filter: string;
    text: string;
    extra_cost_usd: number | null;
    start_at: number | null;
    finish_at: number | null;
    change: string;
    remedy: Array<AskFor | MoreHosts | Open | Offers | RaiseCap | ChangeRule | Permit | WaitUntil | Federation>;
    direct_usd: number | null;
    congestion: Record<string, number>;
    tie: boolean;
    reason: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface SiteRefused {
    kind: "site-refused";
    site: string;
    until_at: number;
  }
  interface SiteRow {
    name: string;
    kind: string;
    status: string;
    region: string;
    labels: Record<string, string>;
    gpus: number;
    busy: number;
    running: number;
    largest_gang: string;
    age_s: number | null;
    draining: boolean;
    drain_by_at: number | null;
    drain_because: string;
    paused: boolean;
    members: number;
    pools: Array<PoolRow>;
    because: string;
    runtime: string;
    isolation: string;
    lends_to: string;
    hosts: Array<MemberRow>;
    gpu_use: Array<GpuRow>;
  }
  interface Snapshot {
    taken_at: number;
    incarnation: string;
    revision: number;
    jobs: Array<JobView>;
    pools: Array<PoolView>;
    offers: Array<OfferView>;
    rules: Array<Filter | CapRow | GuaranteeRow | PriceTerm | PreemptRule | QueueTerms | Opening | DatasetRule | LinkRule>;
    policy_version: number;
    spend: Array<SpendView>;
    burst_paused: boolean;
    recent_gpus: Record<string, number>;
    away: Array<string>;
  }
  interface SoldOut {
    kind: "sold-out";
    provider: string;
    left?: number;
    needs?: number;
    stock?: string;
    unit?: string;
    limit?: number;
    taken?: number;
  }
  interface SpendView {
    policy: string;
    period: string;
    spent_usd: number;
    committed_usd: number;
    share: string;
  }
  interface Spending {
    cap: BudgetRow;
    since: number;
    points: Array<SpentPoint>;
  }
  interface SpentPoint {
    at: number;
    usd: number;
  }
  interface Spot {
    site: string;
    region: string;
  }
  interface SpotTooLate {
    kind: "spot-too-late";
    finish_at: number;
    deadline_at: number;
  }
  interface StageReport {
    stage: string;
    completed: boolean;
    objective_usd: number | null;
    bound_usd: number | null;
    work: number;
    note: string;
    columns: number;
    rows: number;
  }
  interface StatementRow {
    owner: string;
    queue: string;
    model: string;
    attempts: number;
    gpu_s: number;
    usd: number;
  }
  interface Stock {
    name: string;
    limit: number;
    each: number;
    used: number;
    unit: string;
  }
  interface Stopped {
    job: string;
    name: string;
    owner: string;
    gpus: number;
    would_end_at: number | null;
    saves: boolean;
    lost_gpu_s: number;
    lost_usd: number;
  }
  interface Submitted {
    jobs: Array<string>;
    name: string;
    repeated: boolean;
    array: string;
    tasks: number;
    pipeline: string;
    series: string;
    next_at: number | null;
    paused: string;
  }
  interface TeamRow {
    team: string;
    members: Array<string>;
    groups: Array<string>;
    admins: Array<string>;
    yours: boolean;
    queues: Array<QueueRights>;
  }
  interface TeamRule {
    type: "team";
    policy: string;
    team: string;
    members: Array<string>;
    groups: Array<string>;
    admins: Array<string>;
  }
  interface ToRent {
    kind: "to-rent";
    place: string;
    rent_at: number;
    cost_usd: number;
    machines?: number;
    home_finish_at?: number | null;
    start_by_at?: number | null;
    beside?: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
  }
  interface TokenAnswer {
    secret: string;
    name: string;
    role: string;
    site: string;
    expires_at: number | null;
    most: number;
  }
  interface TokenRow {
    name: string;
    role: string;
    site: string;
    default_queue: string;
    created_at: number;
    expires_at: number | null;
    status: string;
    id: string;
    scopes: Array<"read" | "submit" | "change" | "exec" | "manage">;
    last_used_at: number | null;
    most: number;
    used: number;
  }
  interface ToldDecision {
    row: DecisionRow;
    plan: Plan;
    names: Record<string, string>;
    pools: number;
    offers: number;
    policy_version: number;
  }
  interface TooLate {
    kind: "too-late";
    late_at: number;
    deadline_at: number;
    finish_at: number;
    probably?: boolean;
    again_s?: number;
  }
  interface Unapproved {
    kind: "unapproved";
    job: string;
    policy: string;
    above_usd: number;
    committed_usd: number;
  }
  interface Uncovered {
    kind: "uncovered";
  }
  interface Unfenced {
    kind: "unfenced";
    unknown?: boolean;
  }
  interface Untrusted {
    kind: "untrusted";
    site: string;
    trusts: Array<string>;
    owner: string;
  }
  interface UsageReport {
    whose: string;
    since: number;
    until: number;
    rows: Array<UsageRow>;
    total: UsageRow;
  }
  interface UsageRow {
    user: string;
    team: string;
    queue: string;
    site: string;
    model: string;
    month: string;
    day: string;
    gpu_s: number;
    rented_gpu_s: number;
    owned_usd: number;
    rented_usd: number;
    data_usd: number;
    usd: number;
    energy_kwh: number;
    power_usd: number;
    co2_kg: number;
    jobs: number;
    succeeded: number;
    wait_s: number | null;
    longest_wait_s: number | null;
    deadlines: number;
    deadlines_met: number;
    starts_told: number;
    starts_kept: number;
    finishes_told: number;
    finishes_kept: number;
    costs_told: number;
    costs_kept: number;
    answered: number;
    met: number;
  }
  interface Used {
    sampled_s?: number;
    cpu_s?: number;
    memory_peak_mib?: number;
    gpus_sampled_s?: number;
    gpus_busy_s?: number;
    gpu_memory_peak_mib?: number;
    idle_s?: number;
    power_sampled_s?: number;
    energy_kwh?: number;
    power_usd?: number;
    co2_kg?: number;
  }
  interface WaitReason {
    reason: string;
    jobs: number;
    gpus: number;
    first: string;
    first_at: number;
    because: string;
  }
  interface WaitUntil {
    type: "wait";
    at: number;
  }
  interface Waiting {
    job: string;
    kind: string;
    because?: string;
    expected_start_at?: number | null;
    expected_finish_at?: number | null;
    home_start_at?: number | null;
    home_finish_at?: number | null;
    home_usd?: number;
    change?: string;
    why?: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost | null;
    reason?: string;
    reserved?: Reservation | null;
  }
  interface WaitingNow {
    jobs: number;
    gpus: number;
    reasons: Array<WaitReason>;
    reserved: Array<ReservedGpus>;
  }
  interface WaitsLonger {
    kind: "waits-longer";
    policy: string;
    after_s: number;
    waited_s: number;
  }
  interface WhoAmI {
    name: string;
    role: string;
    site: string;
    sites: Array<string>;
    default_queue: string;
    groups: Array<string>;
    scopes: Array<string>;
    signed_in_by: string;
    expires_at: number | null;
    teams: Array<string>;
    open: boolean;
    queues: Array<QueueRights>;
  }
  interface Widens {
    kind: "widens";
    nodes: number;
    gpus: number;
    saves_s: number;
  }
  interface Window {
    days: Array<number>;
    from_minute: number;
    to_minute: number;
    first_at: number | null;
    until_at: number | null;
  }
  interface WithData {
    kind: "with-data";
    why: Fits | Rents | MakesRoom | Narrows | Widens | Proposed | Running | NotBefore | OwedGuarantee | Displaces | NoRoom | ToRent | NoSites | Nowhere | LateUnrented | Held | BetterElsewhere | CheaperElsewhere | RentalAwaited | Behind | CapReached | Uncovered | NoDeadline | WaitsLonger | InTimeAtHome | TooLate | SpotTooLate | Unapproved | GainsLess | SoldOut | RentLater | Rentable | Cheaper | NoneCheaper | GreedyAlone | Booting | InUse | Busy | FitsNow | InForm | WithData | Closed | OutsideHours | ClosesSoon | RentingPaused | HomeAway | OfferAvoided | SavedAt | OtherSites | SiteExcluded | SiteRefused | OtherKinds | LabelsMissing | LendsToOthers | Untrusted | AbilityMissing | Unfenced | RunTooLong | OtherModels | GpuMemory | OtherParts | GpusShared | GpusWhole | NotOnOneHost | NotLabelled | NoLicense | GpusPerNode | CpusPerNode | MemoryPerNode | GangTooLarge | OtherMarket | Denied | NoRightToRent | OnlyAdvises | DataKept | NoBurstPolicy | PolicyOff | PolicyHours | PriceLimit | NoMaxDuration | MaxCost;
    brought?: Brought | null;
    heard_s?: number;
  }
  /** What GET answers, by path. */
  interface Answers {
    "/v1/jobs": JobPage;
    "/v1/jobs/{id}": JobDetail;
    "/v1/jobs/{id}/array": ArrayDetail;
    "/v1/jobs/{id}/events": Array<Event>;
    "/v1/jobs/{id}/outputs/files": OutputList;
    "/v1/jobs/{id}/gpus": Array<GpuCurve>;
    "/v1/jobs/{id}/forecasts": Array<ForecastMove>;
    "/v1/jobs/{id}/explain": Explanation;
    "/v1/series": Array<SeriesRow>;
    "/v1/series/{name}": SeriesDetail;
    "/v1/services": Array<ServiceRow>;
    "/v1/services/{name}": ServiceDetail;
    "/v1/sites": Array<SiteRow>;
    "/v1/sites/{name}": SiteRow;
    "/v1/sites/{name}/statement": Array<StatementRow>;
    "/v1/queues": Array<QueueRow>;
    "/v1/offers": Array<OfferRow>;
    "/v1/leases": Array<LeaseRow>;
    "/v1/budgets": Array<BudgetRow>;
    "/v1/spending": Spending;
    "/v1/plan": PlanPage;
    "/v1/overview": Overview;
    "/v1/changes": Change;
    "/v1/waiting": WaitingNow;
    "/v1/alerts": Array<AlertRow>;
    "/v1/burst": BurstStatus;
    "/v1/policies": PolicySet;
    "/v1/policies/history": Array<PolicySet>;
    "/v1/decisions": Array<DecisionRow>;
    "/v1/decisions/{id}": RecordedDecision;
    "/v1/decisions/{id}/plan": PlanPage;
    "/v1/decisions/{id}/told": ToldDecision;
    "/v1/recorded/jobs": RecordedJobs;
    "/v1/recorded/world": RecordedWorld;
    "/v1/ledger": Array<LedgerEntry>;
    "/v1/usage": UsageReport;
    "/v1/tokens": Array<TokenRow>;
    "/v1/whoami": WhoAmI;
    "/v1/notifications": MyNotifications;
    "/v1/teams": Array<TeamRow>;
    "/v1/sign-in": SignInWay;
    "/healthz": Record<string, string>;
    "/readyz": Record<string, string>;
    "/v1/schemas/job": Record<string, any>;
    "/v1/openapi.json": Record<string, any>;
    "/agent/v1/specs/{hash}": JobSpec;
    "/agent/v1/inputs/{placement}": PlacementInputs;
  }
  /** What POST answers, by path. */
  interface Posted {
    "/v1/jobs": Submitted;
    "/v1/jobs/actions": Array<ActedOn>;
    "/v1/jobs/rerun": Submitted;
    "/v1/jobs/{id}/preview": Preview;
    "/v1/preview": Preview;
    "/v1/series/{name}/pause": SeriesDetail;
    "/v1/series/{name}/resume": SeriesDetail;
    "/v1/services": ServiceDetail;
    "/v1/services/{name}/promote": ServiceDetail;
    "/v1/services/{name}/rollback": ServiceDetail;
    "/v1/gateway": Routed;
    "/v1/sites/{name}/drain": Site;
    "/v1/sites/{name}/drain/preview": DrainPreview;
    "/v1/sites/{name}/undrain": Site;
    "/v1/sites/{name}/evict": Evicted;
    "/v1/sites/{name}/declare-dead": GivenUp;
    "/v1/policies": PolicyVerdict;
    "/v1/policies/validate": PolicyVerdict;
    "/v1/policies/diff": PolicyDiff;
    "/v1/policies/replay": PolicyReplay;
    "/v1/policies/rollback": PolicyVerdict;
    "/v1/decisions/{id}/replay": ReplayResult;
    "/v1/tokens": TokenAnswer;
    "/v1/tokens/{name}/rotate": TokenAnswer;
    "/v1/session": WhoAmI;
    "/v1/session/start": SessionStart;
    "/agent/v1/join": JoinAnswer;
    "/agent/v1/key": KeyAnswer;
  }
  /** Rows of GET /v1/changes, by topic. */
  interface Rows {
    sites: SiteLine;
    queues: QueueRow;
    leases: LeaseRow;
    budgets: BudgetRow;
    rent: RentLine;
    jobs: Mark;
    plan: Mark;
    policies: Mark;
    alerts: Mark;
  }
}
