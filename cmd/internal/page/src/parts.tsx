// Parts that views share.
import { useSignal, type Signal } from '@preact/signals'
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import { word } from './format'
import { busy, order, say } from './store'
import type { State, Summary } from './types'
import { short } from './format'

export const StateWord = ({ state, more }: { state: State | 'failed'; more?: string }) => (
  <span class={'state ' + state}><i aria-hidden="true" />{word(state)}{more && <small> {more}</small>}</span>
)

// link is the address of a function's view.
export const link = (name: string) => '#/f/' + name.split('/').map(encodeURIComponent).join('/')

// Orders are the buttons of what can be done with a function as it is.
export function Orders({ f, all }: { f: Summary; all?: boolean }) {
  if (f.clusters) return null
  const wait = busy.value.has(f.name)
  const does = (path: string, done: string) => async () => {
    if (await order(f.name, path)) say(`${short(f.name)} ${done}`)
  }
  const up = ['awake', 'draining', 'starting'].includes(f.state)
  const button = (text: string, path: string, done: string, off: boolean) => (
    <button disabled={wait || off} onClick={does(path, done)} aria-label={`${text} ${short(f.name)}`}>{text}</button>
  )
  return (
    <span class="orders">
      {(all || !up) && button('Wake', '/wake', 'is awake', f.state === 'awake')}
      {(all || up) && button('Sleep', '/sleep', 'is asleep', f.state === 'asleep' || f.state === 'gone')}
      {all && button('Sleep deeper', '/sleep?level=2', 'is asleep at level 2', f.state === 'gone')}
      {button('Unload', '/stop', 'is unloaded', f.state === 'gone')}
    </span>
  )
}

// Column is one of a table. Those that are not narrow are left out on a small screen.
export interface Column<T> {
  title: string
  class?: string
  cell: (row: T) => ComponentChildren
  by?: (row: T) => number | string // what the rows can be ordered by; numbers begin with the largest
}

export interface Order { title: string; back: boolean }

// ordered are rows by what was chosen of the columns; null leaves them as they are.
export function ordered<T>(rows: T[], columns: Column<T>[], order: Order | null): T[] {
  const by = order && columns.find((c) => c.title === order.title)?.by
  if (!by) return rows
  const keys = new Map(rows.map((r) => [r, by(r)]))
  return [...rows].sort((a, b) => {
    const x = keys.get(a)!
    const y = keys.get(b)!
    const n = typeof x === 'number' && typeof y === 'number' ? y - x : String(x).localeCompare(String(y))
    return order.back ? -n : n
  })
}

const step = 4 // rows by which what is in the document moves on

// VirtualTable has only the rows in the document that are seen, and says to assistive technology how many there are.
export function VirtualTable<T>({ label, rows, columns, id, height, empty }: {
  label: string
  rows: T[]
  columns: Column<T>[]
  id: (row: T) => string
  height: number // of a row, px
  empty: ComponentChildren
}) {
  const box = useRef<HTMLDivElement>(null)
  const from = useSignal(0)
  const seen = useSignal(30)
  const order = useSignal<Order | null>(null)
  const list = ordered(rows, columns, order.value)
  const choose = (title: string) => { // one way, the other, and as they were
    const o = order.value
    order.value = o?.title !== title ? { title, back: false } : o.back ? null : { title, back: true }
    if (box.current) box.current.scrollTop = 0
  }
  const look = () => {
    const b = box.current
    if (!b) return
    from.value = Math.max(0, Math.floor(b.scrollTop / height / step) * step - 6)
    seen.value = Math.ceil(b.clientHeight / height) + 12 + step
  }
  useLayoutEffect(() => {
    look()
    const o = new ResizeObserver(look)
    o.observe(box.current!)
    return () => o.disconnect()
  }, [])
  const first = Math.min(from.value, Math.max(0, rows.length - 1))
  const part = list.slice(first, first + seen.value)
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div class="head" role="row" aria-rowindex={1}>
        {columns.map((c) => {
          const way = rows.length > 0 && order.value?.title === c.title ? (typeof c.by!(rows[0]!) === 'number') === order.value.back ? 'ascending' : 'descending' : undefined
          return (
            <span key={c.title} role="columnheader" class={c.class} aria-sort={way}>
              {c.by && rows.length > 0 ? <button class="sort" onClick={() => choose(c.title)}>{c.title}{way && <i aria-hidden="true">{way === 'ascending' ? '▴' : '▾'}</i>}</button> : c.title}
            </span>
          )
        })}
      </div>
      <div class="body" ref={box} onScroll={look} role={rows.length ? 'rowgroup' : undefined} tabIndex={rows.length ? 0 : undefined}>
        {rows.length === 0 && <div class="empty">{empty}</div>}
        <div class="rows" role="presentation" style={{ height: rows.length * height + 'px' }}>
          {part.map((row, k) => (
            <div key={id(row)} class="row" role="row" aria-rowindex={first + k + 2} style={{ height: height + 'px', transform: `translateY(${(first + k) * height}px)` }}>
              {columns.map((c) => <span key={c.title} role="cell" class={c.class}>{c.cell(row)}</span>)}
            </div>
          ))}
        </div>
      </div>
    </div>
  )
}

// Chips are choices of which one is made, with how many there are of each; the empty one is all.
export function Chips({ label, all, counts, chosen, choose, name = (s) => s }: {
  label: string
  all: number
  counts: [string, number][]
  chosen: string
  choose: (value: string) => void
  name?: (value: string) => string
}) {
  return (
    <div class="chips" role="group" aria-label={label}>
      <button aria-pressed={chosen === ''} onClick={() => choose('')}>all {all}</button>
      {counts.filter(([s, n]) => n || chosen === s).map(([s, n]) => (
        <button key={s} aria-pressed={chosen === s} onClick={() => choose(chosen === s ? '' : s)}>{name(s)} {n}</button>
      ))}
    </div>
  )
}

// Search is a field for words, all of which are looked for.
export const Search = ({ text, label }: { text: Signal<string>; label: string }) => (
  <input type="search" placeholder="Search" aria-label={label} value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
)

// matcher says whether a text has all words of another.
export function matcher(search: string): (text: string) => boolean {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  return (text) => !words.length || words.every((w) => text.toLowerCase().includes(w))
}

// Copy is a text that a click takes.
export function Copy({ title, text }: { title: string; text: string }) {
  const done = useSignal('')
  const verb = done.value === text ? 'Copied' : 'Copy'
  const copy = () => navigator.clipboard.writeText(text).then(() => { done.value = text; say(title + ' copied') }, () => say('The browser lets nothing be copied here: select the text.', true))
  return (
    <div class="copy">
      <p>{title} <button onClick={copy} aria-label={verb + ' ' + title}>{verb}</button></p>
      <pre tabIndex={0} aria-label={title} role="group">{text}</pre>
    </div>
  )
}

// Progress is how far the start of a function's instance is, such as the fetch of its model.
export function Progress({ f }: { f: Summary }) {
  const i = f.instances?.find((i) => i.state === 'starting' && i.stage)
  if (!i) return null
  return <label class="progress"><progress max={1} value={i.progress || undefined} /> {i.stage}{i.progress ? ` ${Math.round(i.progress * 100)} %` : ''} <small>{i.message}</small></label>
}

// Dialog is above all else until it is closed, by a button that calls closest or by Escape.
export function Dialog({ title, closed, children }: { title: string; closed: () => void; children: ComponentChildren }) {
  const at = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => at.current!.showModal(), [])
  return <dialog ref={at} aria-label={title} onClose={closed}><h2>{title}</h2>{children}</dialog>
}

export const closest = (e: Event) => (e.currentTarget as Element).closest('dialog')!.close()

// usePoll calls do at once and then at an interval, while the page is seen. What is thrown is shown by what it returns.
export function usePoll(do_: (signal: AbortSignal) => Promise<void>, ms: number, about: unknown = null): JSX.Element | null {
  const failed = useSignal('')
  useEffect(() => {
    const abort = new AbortController()
    let timer = 0
    const turn = async () => {
      if (!document.hidden) {
        try {
          await do_(abort.signal)
          failed.value = ''
        } catch (err) {
          if (abort.signal.aborted) return
          failed.value = (err as Error).message
        }
      }
      if (!abort.signal.aborted) timer = setTimeout(turn, ms) as unknown as number
    }
    void turn()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [about])
  return failed.value ? <p class="banner bad" role="alert">{failed.value}</p> : null
}
