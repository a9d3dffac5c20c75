// Parts that views share.
import { useSignal } from '@preact/signals'
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
  const part = rows.slice(first, first + seen.value)
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div class="head" role="row" aria-rowindex={1}>
        {columns.map((c) => <span key={c.title} role="columnheader" class={c.class}>{c.title}</span>)}
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
