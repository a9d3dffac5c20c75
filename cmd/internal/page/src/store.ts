// What the page knows of the server, as the stream of /rouse/v1/watch says it.
import { computed, signal } from '@preact/signals'
import { call, events, functionPath, Refused } from './api'
import { short, word } from './format'
import type { Decision, Device, Info, Summary } from './types'

// Connection is connecting before the first stream, lost between two tries, and reconnecting during one.
export type Connection = 'connecting' | 'live' | 'lost' | 'reconnecting' | 'denied'

export const connection = signal<Connection>('connecting')
export const lostAt = signal(0)
export const info = signal<Info | null>(null)
export const devices = signal<Device[]>([])
export const decisions = signal<Decision[]>([])
export const ready = signal(false)

const known = new Map<string, Summary>()
const names = signal<string[]>([]) // in order
const version = signal(0)

// functions are all, by name.
export const functions = computed(() => {
  version.value
  return names.value.map((n) => known.get(n)!)
})

export const functionNamed = (name: string): Summary | undefined => {
  version.value
  return known.get(name)
}

// live is the clock of what says how long ago something was.
export const now = signal(Date.now())
setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, 1000)

// said is what a screen reader is told.
export const said = signal('')
const changes = new Map<string, string>() // the last of each function
let saying = 0

function tell(name: string, text: string) {
  changes.set(name, text)
  if (saying) return
  saying = setTimeout(() => {
    said.value = changes.size > 3 ? `${changes.size} functions have changed` : [...changes.values()].join('; ')
    changes.clear()
    saying = 0
  }, 1000) as unknown as number
}

let fresh: Set<string> | null = null
let drawing = 0
let sorted = true

// draw shows what has come, once a frame.
function draw() {
  if (drawing) return
  const now = () => {
    drawing = 0
    if (!sorted) {
      sorted = true
      names.value = [...known.keys()].sort()
    }
    version.value++
  }
  drawing = document.hidden ? (setTimeout(now, 100) as unknown as number) : requestAnimationFrame(now)
}

function put(list: Summary[]) {
  for (const f of list) {
    const old = known.get(f.name)
    if (!old) sorted = false
    else if (old.state !== f.state && ready.value) tell(f.name, `${short(f.name)} is ${word(f.state)}`)
    known.set(f.name, f)
    fresh?.add(f.name)
  }
}

function drop(list: Iterable<string>) {
  for (const name of list) if (known.delete(name)) sorted = false
}

const keptDecisions = 1000

function take(name: string, data: string) {
  if (name === ':') return
  const value = JSON.parse(data)
  switch (name) {
    case 'server':
      fresh = new Set()
      info.value = value
      decisions.value = []
      break
    case 'functions':
      put(value)
      break
    case 'gone':
      drop(value)
      break
    case 'devices':
      devices.value = value
      break
    case 'decisions':
      decisions.value = [...decisions.value, ...value].slice(-keptDecisions)
      break
    case 'ready':
      if (fresh) drop([...known.keys()].filter((n) => !fresh!.has(n)))
      fresh = null
      ready.value = true
      connection.value = 'live'
  }
  draw()
}

const patience = 25_000 // ms; the server says something every 15 s
let current: AbortController | null = null
let wake: (() => void) | null = null

// again connects anew at once.
export function again() {
  current?.abort()
  wake?.()
}

// follow keeps the stream, for as long as the page is there. A hidden page has none after a minute.
export async function follow() {
  let wait = 500
  let hiding = 0
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiding)
    if (document.hidden) hiding = setTimeout(() => current?.abort(), 60_000) as unknown as number
    else if (connection.value !== 'live') again()
  })
  addEventListener('online', () => connection.value === 'lost' && again())
  for (;;) {
    const abort = new AbortController()
    current = abort
    try {
      const resp = await call('/rouse/v1/watch', { signal: abort.signal })
      for await (const e of events(resp, patience, () => abort.abort())) {
        take(e.name, e.data)
        wait = 500
      }
    } catch (err) {
      if (err instanceof Refused && [401, 403, 404].includes(err.status)) connection.value = 'denied'
    }
    if (connection.value !== 'denied') {
      if (connection.value === 'live') lostAt.value = Date.now()
      connection.value = 'lost'
    }
    await new Promise<void>((resolve) => {
      wake = resolve
      if (connection.value !== 'denied' && !document.hidden) setTimeout(resolve, wait * (0.75 + Math.random() / 2))
    })
    wake = null
    wait = Math.min(wait * 2, 10_000)
    connection.value = connection.value === 'denied' ? 'connecting' : 'reconnecting'
  }
}

// notes are what the page says of an order that failed, or was carried out.
export const note = signal<{ text: string; bad: boolean } | null>(null)
let noted = 0

export function say(text: string, bad = false) {
  note.value = { text, bad }
  clearTimeout(noted)
  if (!bad) noted = setTimeout(() => (note.value = null), 4000) as unknown as number
}

// busy are the functions for which an order is under way.
export const busy = signal<ReadonlySet<string>>(new Set())

// order has something done to a function.
export async function order(name: string, path: string, body?: unknown): Promise<boolean> {
  busy.value = new Set(busy.value).add(name)
  try {
    const init: RequestInit = { method: 'POST' }
    if (body !== undefined) init.body = JSON.stringify(body)
    await call(functionPath(name, path), init)
    return true
  } catch (err) {
    say(`${short(name)}: ${(err as Error).message}`, true)
    return false
  } finally {
    const left = new Set(busy.value)
    left.delete(name)
    busy.value = left
  }
}
