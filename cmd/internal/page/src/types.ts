// What the administrative API says: package api/admin and api. Durations are nanoseconds, amounts bytes.

export type State = 'starting' | 'awake' | 'draining' | 'asleep' | 'unhealthy' | 'gone'

export interface Memory { host: number; devices?: number; perDevice?: number; share?: number }

export interface Instance {
  instance: string
  state: State
  level?: number
  stage?: string
  progress?: number
  since: string
  node?: string
  devices?: string[]
  running?: number
  memory: Memory
  granted?: boolean
  message?: string
}

export interface Override { replicas: number; until: string; by?: string }

export interface Summary {
  name: string
  service?: string
  model: string
  runtime: string
  source?: string
  state: State
  waiting?: number
  running?: number
  desired?: number
  min?: number
  max: number
  priority?: number
  scale?: Override
  waits?: string
  failed?: string
  failures?: number
  lastError?: string
  retryAt?: string
  lastRequest?: string
  need: Memory
  instances?: Instance[]
  clusters?: string[]
}

export interface Device {
  id: string
  node?: string
  name: string
  others?: number
  capacity: number
  total: number
  awake: number
  rising: number
  reserved: number
  asleep: number
  leaving: number
  free: number
}

export interface Decision { at: string; function: string; instance?: string; action: string; reason: string; error?: string }

export interface Held {
  at: string
  instance: string
  function?: string
  node?: string
  devices?: string[]
  state: State
  host?: number
  perDevice?: number
}

export interface History { since: string; seq: number; whole?: boolean; held?: Held[]; changes?: Held[]; decisions?: Decision[] }

export interface Span { id: string; parent: string; name: string; part: string; who?: string; after: number; took: number; note?: string }

export interface Wake {
  function: string
  instance: string
  trace: string
  root: string
  path?: string
  by?: string
  activator?: string
  cluster?: string
  reason?: string
  start: string
  total: number
  spans: Span[] | null
}

export interface Usage { since: string; until: string; rows: UsageRow[] | null }

export interface UsageRow {
  function?: string
  tenant?: string
  key?: string
  state: string
  requests: number
  inputTokens: number
  cachedTokens: number
  outputTokens: number
  gpuSeconds: number
}

export interface Cluster {
  name: string
  state: string
  front?: boolean
  since?: string
  agents?: { name: string; version?: string; way?: number; since: string; links: number }[]
  functions?: string[]
  awake?: number
  running: number
  refused?: string[]
  rejected?: string
}

export interface Asked {
  time: string
  request?: string
  client?: string
  tenant?: string
  key?: string
  method?: string
  path?: string
  model?: string
  function?: string
  instance?: string
  status: number
  code?: string
  duration_ms?: number
  hold_ms?: number
  wake_ms?: number
  ttft_ms?: number
  stream?: boolean
  input_tokens?: number
  cached_tokens?: number
  output_tokens?: number
  gpu_seconds?: number
  attempts?: number
  resumed?: number
  fallback?: string
  moved?: number
}

// Pick is why an instance was chosen for a request.
export interface Pick {
  function: string
  instance: string
  activator?: string
  after?: string
  at: string
  by: string
  known?: number
  prompt?: number
  running: number
  slots: number
  gpuSeconds?: number
}

// Info is what the server says of itself; leader is that of a cluster.
export interface Info { version: string; url: string; keys?: boolean; started: string; pid?: number; leader?: string }

// Key is a client's key; its secret is nowhere.
export interface Key {
  name: string
  tenant?: string
  expires?: string
  models?: string[]
  requestsPerMinute?: number
  tokensPerMinute?: number
  tokensPerDay?: number
  tokensPerMonth?: number
  gpuSecondsPerDay?: number
  gpuSecondsPerMonth?: number
  concurrent?: number
}

// Found is a model of the hub, or of Ollama's library.
export interface Found { model: string; downloads?: number; gated?: boolean; quants?: string[]; size?: number }

export interface Adapter { name: string; path?: string; loaded: string[]; standby?: string[] }
