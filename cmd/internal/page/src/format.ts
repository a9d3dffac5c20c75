import type { Instance, State, Summary } from './types'

// short is a function's name without the namespace that needs none.
export const short = (name: string) => (name.startsWith('default/') ? name.slice(8) : name)

export const word = (s: State | 'failed') => (s === 'gone' ? 'unloaded' : s)

// stateOf is a function's state, and failed where it has no instance and can have none.
export const stateOf = (f: Summary): State | 'failed' => (f.failed && f.state === 'gone' ? 'failed' : f.state)

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

export function bytes(n: number): string {
  let k = 0
  let v = Math.abs(n)
  while (v >= 1024 && k < units.length - 1) {
    v /= 1024
    k++
  }
  const digits = k > 0 && v < 100 ? 1 : 0
  return (n < 0 ? '−' : '') + v.toFixed(digits) + ' ' + units[k]
}

// duration writes nanoseconds.
export const duration = (ns: number) => millis(ns / 1e6)

export function millis(ms: number): string {
  if (ms < 1) return Math.round(ms * 1000) + ' µs'
  if (ms < 100) return ms.toFixed(1) + ' ms'
  if (ms < 1000) return Math.round(ms) + ' ms'
  if (ms < 60_000) return (ms / 1000).toFixed(ms < 10_000 ? 2 : 1) + ' s'
  const s = Math.round(ms / 1000)
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
}

// ago says how long before now a time was.
export function ago(time: string | undefined, now: number): string {
  const t = time ? Date.parse(time) : NaN
  if (!(t > 0)) return 'never'
  const s = Math.max(0, Math.round((now - t) / 1000))
  if (s < 2) return 'now'
  if (s < 60) return s + ' s ago'
  if (s < 3600) return Math.floor(s / 60) + ' min ago'
  if (s < 86_400) return Math.floor(s / 3600) + ' h ago'
  return Math.floor(s / 86_400) + ' d ago'
}

// Times and numbers are written without Intl, which takes a tenth of the first view to load.
const two = (n: number) => String(n).padStart(2, '0')
export const day = (t: Date) => [t.getFullYear(), t.getMonth() + 1, t.getDate()].map(two).join('-')

// clock is the time of day, with the date where that is another one.
export function clock(time: string): string {
  const t = new Date(time)
  const at = [t.getHours(), t.getMinutes(), t.getSeconds()].map(two).join(':')
  return t.toDateString() === new Date().toDateString() ? at : day(t) + ' ' + at
}

export const count = (n: number) => String(Math.round(n * 1000) / 1000).replace(/\d(?=(\d{3})+(\.|$))/g, '$&,')

// held is what instances have of the host's memory and of GPUs.
export function held(list: Instance[] | undefined): { host: number; gpu: number } {
  let host = 0
  let gpu = 0
  for (const i of list ?? []) {
    host += i.memory.host
    gpu += (i.memory.perDevice ?? 0) * (i.memory.devices ?? i.devices?.length ?? 0)
  }
  return { host, gpu }
}

export const up = (f: Summary, state: State) => (f.instances ?? []).filter((i) => i.state === state).length

// doing is a word on what a function's instances are about, beside the state.
export function doing(f: Summary): string {
  const i = f.instances?.find((i) => i.state === 'starting')
  if (i?.stage) return i.stage + (i.progress ? ` ${Math.round(i.progress * 100)} %` : '')
  const asleep = f.state === 'asleep' && f.instances?.find((i) => i.state === 'asleep')
  return asleep && asleep.level ? `level ${asleep.level}` : ''
}

// brief is a reason with the names of GPUs as short as people say them.
export const brief = (text: string) => text.replace(/\b(GPU-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]{22}\b/g, '$1')
