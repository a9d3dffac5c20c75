import { signal, useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { call, functionPath, lines } from '../api'
import { short } from '../format'
import { matcher, Search } from '../parts'
import { functions } from '../store'

const keptLines = 1000

// Follow shows what a path of logs gives, as it comes.
export function Follow({ path, label, search = '' }: { path: string; label: string; search?: string }) {
  const text = useSignal<string[]>([])
  const box = useRef<HTMLPreElement>(null)
  useEffect(() => {
    const abort = new AbortController()
    text.value = []
    let fresh: string[] = []
    let drawing = 0
    const draw = () => {
      drawing = 0
      text.value = [...text.value, ...fresh].slice(-keptLines)
      fresh = []
    }
    const add = (line: string) => {
      fresh.push(line)
      drawing ||= setTimeout(draw, 100) as unknown as number
    }
    const read = async () => {
      const resp = await call(path, { signal: abort.signal })
      for await (const line of lines(resp)) add(line)
      add('(the output has ended)')
    }
    read().catch((err: Error) => abort.signal.aborted || add('(' + err.message + ')'))
    return () => {
      clearTimeout(drawing)
      abort.abort()
    }
  }, [path])
  const matches = matcher(search)
  const shown = text.value.filter(matches)
  useEffect(() => {
    const b = box.current
    if (b) b.scrollTop = b.scrollHeight
  }, [text.value])
  return <pre ref={box} class="logs" tabIndex={0} role="log" aria-label={label}>{shown.join('\n') || (text.value.length ? 'No line matches.' : 'Nothing was printed yet.')}</pre>
}

// Logs follows what a function's instances print, while it is open.
export function Logs({ name }: { name: string }) {
  const open = useSignal(false)
  return (
    <section aria-label="Logs">
      <h2>Logs <button aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? 'Close' : 'Follow'}</button></h2>
      {open.value && <Follow path={functionPath(name, '/logs?tail=200&follow=true')} label={'Output of ' + short(name)} />}
    </section>
  )
}

const search = signal('')

// LogsView follows what all instances print. It begins anew when another function has something to print.
export function LogsView() {
  const names = functions.value.filter((f) => !f.clusters && (f.instances?.length || f.lastError)).map((f) => f.name).join()
  return (
    <div class="fill">
      <div class="bar"><h1>Logs</h1><Search text={search} label="Search the lines" /><p class="faint">Of all functions: what their model servers print, live.</p></div>
      <Follow key={names} path="/rouse/v1/functions/logs?tail=200&follow=true" label="Output of all functions" search={search.value} />
    </div>
  )
}
