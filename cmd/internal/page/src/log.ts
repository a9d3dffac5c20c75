// The last requests, as the access log of the server has them, and what they say of the last minutes.
import { computed, signal } from '@preact/signals'
import { get } from './api'
import { info, now } from './store'
import type { Asked, Usage } from './types'

const most = 5000 // requests that the page keeps
const whole = 1000 // that the server keeps
const few = 50 // that are asked for first

// asked are the last requests, the newest first; null: not known yet.
export const asked = signal<Asked[] | null>(null)
export const inCluster = computed(() => !!info.value?.leader)

export const idOf = (r: Asked) => r.request || r.time

const same = (a: Asked, b: Asked) => a.time === b.time && a.request === b.request

// refreshRequests asks for the newest, and for all that the server keeps where those don't reach back to what is known.
export async function refreshRequests(abort?: AbortSignal) {
  const newest = async (n: number) => (await get<Asked[]>('/rouse/v1/requests?tail=' + n, abort)).reverse()
  const last = asked.value?.[0]
  let list = await newest(last ? few : whole)
  let known = last ? list.findIndex((r) => same(r, last)) : -1
  if (last && known < 0 && list.length === few) {
    list = await newest(whole)
    known = list.findIndex((r) => same(r, last))
  }
  if (known === 0) return
  asked.value = known < 0 ? list : [...list.slice(0, known), ...asked.value!].slice(0, most)
}

// Rates are of the last minute, and times of the last five.
export interface Rates { requests: number; tokens: number; first: number[]; failed: number; refused: number; seconds: number }

const minute = 60_000
const times = 5 * minute

// ratesOf adds up requests that ended before a time. Where the list is full, it may reach back less than a minute.
export function ratesOf(list: Asked[], at: number): Rates {
  const since = list.length >= whole ? Date.parse(list[list.length - 1]!.time) : 0
  const seconds = Math.max(1, Math.min(minute, at - since) / 1000)
  const r: Rates = { requests: 0, tokens: 0, first: [], failed: 0, refused: 0, seconds }
  for (const q of list) {
    const age = at - Date.parse(q.time)
    if (age > times) break
    if (age <= minute) {
      r.requests += 1 / seconds
      r.tokens += (q.output_tokens ?? 0) / seconds
    }
    if (q.status < 400 && q.ttft_ms !== undefined) r.first.push(q.ttft_ms)
    if (q.status >= 500) r.failed++
    else if (q.status >= 400) r.refused++
  }
  r.first.sort((a, b) => a - b)
  return r
}

// quantile is that of a sorted list; NaN: it is empty.
export const quantile = (list: number[], q: number) => list[Math.min(list.length - 1, Math.ceil(q * list.length) - 1)] ?? NaN

export const rates = computed(() => ratesOf(asked.value ?? [], now.value))

// used is what a cluster's functions used in the last minutes: its requests are in its activators' logs.
export const used = signal<Usage | null>(null)

export async function refreshUsed(abort?: AbortSignal) {
  used.value = await get<Usage>('/rouse/v1/usage?from=' + new Date(Date.now() - times).toISOString().slice(0, 19) + 'Z', abort)
}
