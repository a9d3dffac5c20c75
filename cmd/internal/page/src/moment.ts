// The time that the page looks at: now, or a moment that somebody chose.
import { computed, signal } from '@preact/signals'
import { past } from './history'
import { now } from './store'

const minute = 60_000
export const spans = [{ ms: 15 * minute, name: '15 min' }, { ms: 60 * minute, name: '1 hour' }, { ms: 6 * 60 * minute, name: '6 hours' }, { ms: 24 * 60 * minute, name: '24 hours' }]

export const span = signal(60 * minute)
// moment is null while it is now.
export const moment = signal<number | null>(null)
const end = signal<number | null>(null) // of what is shown; null follows the clock

const least = 2 * minute
const step = 5000 // ms, by which what is shown moves on

// shown is from when to when.
export const shown = computed(() => {
  const to = end.value ?? Math.ceil(now.value / step) * step
  const first = Math.floor((past.value?.since ?? 0) / step) * step // nothing is known of what was before
  return { from: Math.max(to - span.value, Math.min(first, to - least)), to }
})

// look chooses a moment, and shows the time around it if it is not shown; null is now.
export function look(t: number | null) {
  if (t === null || t >= Date.now()) {
    moment.value = end.value = null
    return
  }
  moment.value = Math.round(t)
  const { from, to } = shown.value
  if (t >= from && t <= to) end.value ??= to
  else end.value = Math.min(t + span.value / 2, Math.ceil(Date.now() / step) * step)
}

export function widen(ms: number) {
  span.value = ms
  const t = moment.value
  end.value = null
  if (t !== null) look(t)
}

// next looks at the change after the moment (1), or before it (-1).
export function next(way: 1 | -1) {
  const list = past.value?.changes ?? []
  const t = moment.value ?? Date.now()
  const found = way > 0 ? list.find((c) => c.t > t) : list.findLast((c) => c.t < t)
  if (found) look(found.t)
}

// timeOfDay is the last time at which a clock showed HH:MM or HH:MM:SS; NaN: it is none.
export function timeOfDay(text: string): number {
  const m = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(text.trim())
  if (!m) return NaN
  const t = new Date()
  t.setHours(Number(m[1]), Number(m[2]), Number(m[3] ?? 0), 0)
  if (t.getTime() > Date.now()) t.setDate(t.getDate() - 1)
  return t.getTime()
}
