import { computed, signal, useSignal } from '@preact/signals'
import { useRef } from 'preact/hooks'
import { clientKey, events, refusal, Refused, setClientKey } from '../api'
import { doing, millis, short } from '../format'
import { StateWord } from '../parts'
import { functions, info } from '../store'

interface Turn { role: 'user' | 'assistant'; text: string; times?: Times; error?: string }

// Times are in ms, from the request.
interface Times { began: number; hold?: number; wake?: number; first?: number; end?: number; tokens: number; stage?: string }

interface Pane { model: ReturnType<typeof signal<string>>; turns: ReturnType<typeof signal<Turn[]>>; abort: AbortController | null }

const pane = (): Pane => ({ model: signal(''), turns: signal<Turn[]>([]), abort: null })
const panes = [pane(), pane()]
const two = signal(false)
const running = signal(0)
const needsKey = signal(false)
const listed = signal<string[]>([])
const tick = signal(0)
const temperature = signal(0)

const models = computed(() => (functions.value.length ? functions.value.map((f) => f.model || short(f.name)) : listed.value))

// list asks for the models where this page may not see the functions.
async function list() {
  const resp = await fetch('/v1/models', { headers: auth(), cache: 'no-store' })
  if (resp.ok) listed.value = (await resp.json()).data.map((m: { id: string }) => m.id)
  needsKey.value = resp.status === 401
}

const auth = (): Record<string, string> => (clientKey() ? { Authorization: 'Bearer ' + clientKey() } : {})

async function ask(p: Pane, prompt: string) {
  const before = (p.turns.value ?? []).filter((t) => !t.error)
  const turn: Turn = { role: 'assistant', text: '', times: { began: performance.now(), tokens: 0 } }
  const show = () => (p.turns.value = [...before, { role: 'user', text: prompt }, { ...turn, times: { ...turn.times! } }])
  show()
  const abort = (p.abort = new AbortController())
  running.value++
  const clock = setInterval(() => tick.value++, 100)
  try {
    await stream(p, turn, [...before.map((t) => ({ role: t.role, content: t.text })), { role: 'user', content: prompt }], abort.signal, show)
  } catch (err) {
    if (err instanceof Refused && err.status === 401) needsKey.value = true
    turn.error = abort.signal.aborted ? 'stopped' : (err as Error).message
  } finally {
    clearInterval(clock)
    turn.times!.end = performance.now() - turn.times!.began
    running.value--
    show()
  }
}

async function stream(p: Pane, turn: Turn, messages: unknown[], signal: AbortSignal, show: () => void) {
  const t = turn.times!
  const resp = await fetch('/v1/chat/completions', {
    method: 'POST', signal, cache: 'no-store',
    headers: { ...auth(), 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: p.model.value || models.value[0], messages, stream: true, temperature: temperature.value, stream_options: { include_usage: true } }),
  })
  if (!resp.ok) throw await refusal(resp)
  for (const m of (resp.headers.get('Server-Timing') ?? '').matchAll(/(hold|wake);dur=([\d.]+)/g)) t[m[1] as 'hold' | 'wake'] = Number(m[2])
  for await (const e of events(resp)) {
    if (e.name === ':') {
      const m = /^rouse stage=(\S+) waited=([\d.]+)s/.exec(e.data)
      if (m) {
        t.stage = m[1]
        t.hold = Number(m[2]) * 1000
      }
    } else if (e.data === '[DONE]') {
      return
    } else {
      piece(turn, JSON.parse(e.data))
    }
    show()
  }
  throw new Error('the answer ended before it was whole')
}

interface Chunk { choices?: { delta?: { content?: string; reasoning_content?: string } }[]; usage?: { completion_tokens?: number }; error?: { message?: string } }

function piece(turn: Turn, c: Chunk) {
  if (c.error) throw new Error(c.error.message ?? 'the model failed')
  const t = turn.times!
  const d = c.choices?.[0]?.delta
  const text = d?.content ?? d?.reasoning_content
  if (text) {
    t.first ??= performance.now() - t.began
    t.tokens++
    turn.text += text
  }
  if (c.usage?.completion_tokens) t.tokens = c.usage.completion_tokens
}

function TimesOf({ t }: { t: Times }) {
  if (!t.end) tick.value // redrawn while it runs
  const so = t.end ?? performance.now() - t.began
  const hold = t.hold ?? (t.first === undefined ? so : 0)
  const rate = t.first !== undefined && t.tokens > 1 && so > t.first ? (t.tokens - 1) / ((so - t.first) / 1000) : 0
  const part = (ms: number) => ({ flexBasis: Math.max(0.5, (ms / Math.max(so, 1)) * 100) + '%' })
  const first = t.first === undefined ? 0 : Math.max(0, t.first - hold)
  return (
    <div class="times">
      <div class="ledger thin" aria-hidden="true">
        <i class="hold" style={part(hold)} />{t.first !== undefined && <><i class="first" style={part(first)} /><i class="tokens" style={part(so - t.first)} /></>}
      </div>
      <span><b class="hold">hold</b> {millis(hold)}{t.first === undefined && t.stage ? `, ${t.stage}` : ''}</span>
      {t.wake !== undefined && <span>wake {millis(t.wake)}</span>}
      {t.first !== undefined && <span><b class="first">first token</b> {millis(t.first)}</span>}
      {t.first !== undefined && <span><b class="tokens">{t.tokens} tokens</b>{rate > 0 && `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s`}</span>}
    </div>
  )
}

function PaneView({ p, n }: { p: Pane; n: number }) {
  const model = p.model.value || models.value[0] || ''
  const f = functions.value.find((f) => (f.model || short(f.name)) === model)
  return (
    <section class="pane" aria-label={`Conversation ${n + 1}`}>
      <div class="bar">
        <label class="field">Model <select value={model} onChange={(e) => { p.model.value = e.currentTarget.value; p.turns.value = [] }}>{models.value.map((m) => <option key={m} value={m}>{m}</option>)}</select></label>
        {f && <StateWord state={f.state} more={doing(f)} />}
      </div>
      <div class="turns" role="log" aria-label="Answers" tabIndex={0}>
        {(p.turns.value ?? []).map((t, k) => (
          <div key={k} class={'turn ' + t.role}>
            <span class="unseen">{t.role === 'user' ? 'You: ' : model + ': '}</span>
            <p>{t.text}{t.error && <em class="bad"> {t.error}</em>}</p>
            {t.times && <TimesOf t={t.times} />}
          </div>
        ))}
        {!p.turns.value?.length && <p class="empty">{model ? `Ask ${model} something. If it is not awake, it is woken for you.` : 'There is no model to ask.'}</p>}
      </div>
    </section>
  )
}

export function Playground() {
  const text = useSignal(info.value && models.value[0] === 'pico' ? 'echo hello world' : '')
  const key = useRef<HTMLInputElement>(null)
  const asked = useRef(false)
  if (!asked.current) {
    asked.current = true
    list().catch(() => {})
  }
  const shown = two.value ? panes : panes.slice(0, 1)
  const send = () => {
    if (!text.value.trim() || running.value || !models.value.length) return
    const prompt = text.value
    text.value = ''
    for (const p of shown) void ask(p, prompt)
  }
  return (
    <div class="fill play">
      <div class="bar">
        <h1>Playground</h1>
        <label class="check"><input type="checkbox" checked={two.value} onChange={(e) => (two.value = e.currentTarget.checked)} /> Two models side by side</label>
        <label class="field">Temperature <input type="number" min="0" max="2" step="0.1" value={temperature.value} onInput={(e) => (temperature.value = e.currentTarget.valueAsNumber || 0)} /></label>
        <button onClick={() => { for (const p of panes) p.turns.value = [] }} disabled={running.value > 0}>Clear</button>
      </div>
      {needsKey.value && (
        <form class="banner" onSubmit={(e) => { e.preventDefault(); setClientKey(key.current!.value.trim()); needsKey.value = false; list().catch(() => {}) }}>
          <label class="field">This server wants a client's key <input ref={key} type="password" autocomplete="off" required /></label> <button>Use it</button> <span class="faint">It is kept for this tab only.</span>
        </form>
      )}
      <div class={'panes' + (two.value ? ' two' : '')}>{shown.map((p, n) => <PaneView key={n} p={p} n={n} />)}</div>
      <form class="ask" onSubmit={(e) => { e.preventDefault(); send() }}>
        <textarea rows={2} aria-label="Prompt" placeholder="Ask" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)}
          onKeyDown={(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send() } }} />
        {running.value ? <button type="button" onClick={() => panes.forEach((p) => p.abort?.abort())}>Stop</button> : <button class="main" disabled={!models.value.length}>Send</button>}
      </form>
    </div>
  )
}
