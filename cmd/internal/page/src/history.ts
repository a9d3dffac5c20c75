// What was held of each device and what was decided, in the time that the server keeps: /rouse/v1/history.
import { signal } from '@preact/signals'
import { get } from './api'
import { short } from './format'
import type { Decision, Device, Held, History } from './types'

export interface Change extends Held { t: number }
export interface Past { since: number; begin: Change[]; changes: Change[]; decisions: (Decision & { t: number })[] }

export const past = signal<Past | null>(null)
let seq = 0

const timed = <T extends { at: string }>(list: T[] | undefined) => (list ?? []).map((x) => ({ ...x, t: Date.parse(x.at) }))

// refresh asks for what is newer than what is known.
export async function refresh(abort?: AbortSignal) {
  const h = await get<History>('/rouse/v1/history?after=' + seq, abort)
  const old = h.whole ? null : past.value
  seq = h.seq
  if (old && !h.changes?.length && !h.decisions?.length) return
  past.value = {
    since: Date.parse(h.since),
    begin: old ? old.begin : timed(h.held),
    changes: [...(old?.changes ?? []), ...timed(h.changes)],
    decisions: [...(old?.decisions ?? []), ...timed(h.decisions)],
  }
}

export const isHost = (d: Device) => d.id === 'host' || d.id.endsWith('/host')

// on is what a holder has of a device.
export const on = (d: Device, h: Held) =>
  isHost(d) ? ((h.node ?? '') === (d.node ?? '') ? h.host ?? 0 : 0) : h.devices?.includes(d.id) ? h.perDevice ?? 0 : 0

export type Kind = 'awake' | 'starting' | 'asleep'
export const kinds: Kind[] = ['awake', 'starting', 'asleep']
export const kindOf = (h: Held): Kind => (h.state === 'asleep' ? 'asleep' : h.state === 'starting' ? 'starting' : 'awake')
export const otherPrograms = 'other programs'
export const holder = (h: Held) => (h.function ? short(h.function) : otherPrograms)

// walk calls at after the beginning and after each change up to a time, and returns what all instances hold then.
function walk(p: Past, until: number, at: (t: number, held: Map<string, Change>, c: Change | null) => void = () => {}): Map<string, Change> {
  const held = new Map<string, Change>()
  for (const h of p.begin) held.set(h.instance, h)
  at(p.since, held, null)
  for (const c of p.changes) {
    if (c.t > until) break
    if (c.state === 'gone') held.delete(c.instance)
    else held.set(c.instance, c)
    at(c.t, held, c)
  }
  return held
}

// heldAt is what was held at a time.
export const heldAt = (p: Past, time: number): Change[] => [...walk(p, time).values()]

// Step has, for each band (layer * 3 + kind), what lies below it: sums[band], and above: sums[band + 1].
export interface Step { t: number; sums: number[] }
export interface Layers { names: string[]; steps: Step[]; peak: number }

const most = 9 // holders that are drawn apart

// layersOf is who held what of a device from one time to another, as steps, at most one in each of columns pieces of the time.
export function layersOf(p: Past, d: Device, from: number, to: number, columns: number): Layers {
  const amount = new Map<string, { name: string; kind: number; n: number }>() // by instance, of this device
  const weight = new Map<string, number>()
  let before = from
  const weigh = (t: number) => {
    if (t <= before) return
    for (const a of amount.values()) weight.set(a.name, (weight.get(a.name) ?? 0) + a.n * (t - before))
    before = t
  }
  const put = (c: Change): boolean => {
    const n = c.state === 'gone' ? 0 : on(d, c)
    if (!n && !amount.has(c.instance)) return false
    if (n) amount.set(c.instance, { name: holder(c), kind: kinds.indexOf(kindOf(c)), n })
    else amount.delete(c.instance)
    return true
  }
  const raw: { t: number; all: { name: string; kind: number; n: number }[] }[] = []
  const width = (to - from) / columns
  const note = (t: number) => {
    const at = Math.max(t, from)
    const last = raw[raw.length - 1]
    const all = [...amount.values()]
    if (last && Math.floor((at - from) / width) === Math.floor((last.t - from) / width)) last.all = all
    else raw.push({ t: at, all })
  }
  walk(p, to, (t, held, c) => {
    if (!c) for (const h of held.values()) put(h)
    else {
      weigh(t)
      if (!put(c)) return
    }
    note(t)
  })
  weigh(to)
  const byWeight = [...weight].sort((a, b) => b[1] - a[1]).map(([name]) => name)
  const names = byWeight.slice(0, most).sort()
  const more = byWeight.length - names.length
  if (more > 0) names.push(`${more} more`)
  let peak = 0
  const steps = raw.map(({ t, all }) => {
    const amounts = new Array<number>(names.length * 3).fill(0)
    for (const a of all) {
      const k = names.indexOf(a.name)
      const layer = k >= 0 ? k : names.length - 1
      if (layer < 0) continue
      amounts[layer * 3 + a.kind]! += a.n
    }
    const sums = [0]
    for (const n of amounts) sums.push(sums[sums.length - 1]! + n)
    peak = Math.max(peak, sums[sums.length - 1]!)
    return { t, sums }
  })
  return { names, steps, peak }
}

// colourOf is the number of a holder's colour: the same on every device, for as long as the page is there.
const colours = new Map<string, number>()
export const paint = 10

export function colourOf(name: string): number {
  let n = colours.get(name)
  if (n === undefined) {
    n = colours.size % paint
    colours.set(name, n)
  }
  return n
}
