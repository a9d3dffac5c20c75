// Conversations of the playground: what is asked of /v1/chat/completions, and how its stream becomes turns.
import { signal, type Signal } from '@preact/signals'
import { clientKey, events, functionPath, get, refusal, Refused, token } from './api'
import { short } from './format'
import { again, functions, info } from './store'

export interface Call { id: string; name: string; args: string; result?: string }

export interface Turn {
  role: 'user' | 'assistant'
  text: string
  thinking?: string
  images?: string[] // data URLs
  calls?: Call[]
  times?: Times
  error?: Fault
  stop?: string // why it ended, where that is not its own end
}

export interface Fault { message: string; status?: number; code?: string; request?: string; retry?: string }

// Times are in ms, from the request.
export interface Times { began: number; hold?: number; wake?: number; first?: number; end?: number; tokens: number; stage?: string }

// Pane is one conversation. Its turns are what is shown and what is sent.
export interface Pane { model: Signal<string>; turns: Signal<Turn[]>; running: Signal<boolean>; abort: AbortController | null }

export const newPane = (): Pane => ({ model: signal(''), turns: signal<Turn[]>([]), running: signal(false), abort: null })

// Settings go with every request. Tools are JSON, checked by whoever asks.
export interface Settings { system: string; temperature: number; most: number; tools: unknown[]; choice: string }

export const needsKey = signal(false)
// auth goes with what a client asks. `kn rouse ui`, which serves the page of a cluster, wants the page's token too; others never see it.
export const auth = (): Record<string, string> => ({ ...(clientKey() && { Authorization: 'Bearer ' + clientKey() }), ...(info.value?.leader && { 'X-Rouse-Page': token() }) })

// readTools says what a text is as tools: a list, or one of them. The error is for people.
export function readTools(text: string): { tools: unknown[]; error: string } {
  if (!text.trim()) return { tools: [], error: '' }
  try {
    const value: unknown = JSON.parse(text)
    const tools = (Array.isArray(value) ? value : [value]).map((t) => (t && typeof t === 'object' && 'type' in t ? t : { type: 'function', function: t }))
    const bad = tools.findIndex((t) => typeof (t as { function?: { name?: unknown } }).function?.name !== 'string')
    return bad < 0 ? { tools, error: '' } : { tools: [], error: `Tool ${bad + 1} has no function with a name.` }
  } catch (err) {
    return { tools: [], error: 'This is no JSON: ' + (err as Error).message }
  }
}

// open are the calls of a conversation's last answer that have no result yet.
export const open = (p: Pane): Call[] => called(p.turns.value[p.turns.value.length - 1]).filter((c) => c.result === undefined)

// called are the calls of an answer that can be carried out: of one that was cut they are not whole.
export const called = (t: Turn | undefined): Call[] => (t && !t.stop && !t.error && t.calls) || []

// messages are the turns as the API has them. An answer that failed is not among them.
function messages(turns: Turn[], system: string): unknown[] {
  const list: unknown[] = system ? [{ role: 'system', content: system }] : []
  for (const t of turns) {
    if (t.error) continue
    if (t.role === 'user') {
      list.push({ role: 'user', content: t.images?.length ? [{ type: 'text', text: t.text }, ...t.images.map((url) => ({ type: 'image_url', image_url: { url } }))] : t.text })
      continue
    }
    list.push({ role: 'assistant', content: t.text || null, ...(called(t).length && { tool_calls: called(t).map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.args } })) }) })
    for (const c of called(t)) list.push({ role: 'tool', tool_call_id: c.id, content: c.result ?? '' })
  }
  return list
}

// ask adds what was said to a conversation, and answers it. Without anything said it goes on from where it is: with results of tools,
// or once more after a failure.
export async function ask(p: Pane, model: string, s: Settings, said?: Turn) {
  const before = p.turns.value.filter((t) => !t.error)
  if (said) before.push(said)
  const turn: Turn = { role: 'assistant', text: '', times: { began: performance.now(), tokens: 0 } }
  const show = () => (p.turns.value = [...before, { ...turn, calls: turn.calls && [...turn.calls], times: { ...turn.times! } }])
  show()
  const abort = (p.abort = new AbortController())
  p.running.value = true
  try {
    await stream(turn, { model, messages: messages(before, s.system), temperature: s.temperature, ...(s.most > 0 && { max_tokens: s.most }),
      ...(s.tools.length && { tools: s.tools, tool_choice: s.choice }), stream: true, stream_options: { include_usage: true } }, abort.signal, show)
  } catch (err) {
    if (err instanceof Refused && err.status === 401) {
      if (err.fault.code === 'sign_in') again()
      else needsKey.value = true
    }
    turn.error = abort.signal.aborted ? { message: 'stopped by you' } : err instanceof Refused ? { ...err.fault, message: err.message, status: err.status } : { message: (err as Error).message }
    turn.error.message = (await reason(model, turn.error.code)) || turn.error.message
  } finally {
    turn.times!.end = performance.now() - turn.times!.began
    p.running.value = false
    show()
  }
}

// reason is why a model could not be brought up, which the front door tells nobody, for who may see it; else it is empty.
async function reason(model: string, code?: string): Promise<string> {
  const f = functions.value.find((f) => (f.model || short(f.name)) === model)
  if (!f || (code !== 'start_failed' && code !== 'unhealthy')) return ''
  return get<{ lastError?: string }>(functionPath(f.name)).then((v) => v.lastError ?? '', () => '')
}

async function stream(turn: Turn, body: unknown, abort: AbortSignal, show: () => void) {
  const t = turn.times!
  const resp = await fetch('/v1/chat/completions', { method: 'POST', signal: abort, cache: 'no-store', headers: { ...auth(), 'Content-Type': 'application/json' }, body: JSON.stringify(body) })
  if (!resp.ok) throw await refusal(resp)
  for (const m of (resp.headers.get('Server-Timing') ?? '').matchAll(/(hold|wake);dur=([\d.]+)/g)) t[m[1] as 'hold' | 'wake'] = Number(m[2])
  let begun = 0 // when the wait began, as the last comment says; 0: nothing waits
  const counter = setInterval(() => {
    if (!begun) return
    t.hold = Date.now() - begun
    show()
  }, 500)
  try {
    for await (const e of events(resp)) {
      if (e.name === ':') {
        const m = /^rouse stage=(\S+) waited=([\d.]+)s/.exec(e.data)
        if (m) {
          t.stage = m[1]
          t.hold = Number(m[2]) * 1000
          begun = Date.now() - t.hold
        }
      } else if (e.data === '[DONE]') {
        return
      } else {
        begun = 0
        take(turn, JSON.parse(e.data))
      }
      show()
    }
  } finally {
    clearInterval(counter)
  }
  throw new Error('the answer ended before it was whole')
}

interface Chunk {
  choices?: { delta?: { content?: string; reasoning_content?: string; tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[] }; finish_reason?: string | null }[]
  usage?: { completion_tokens?: number }
  error?: { message?: string; code?: string }
}

// take adds a chunk to an answer.
function take(turn: Turn, c: Chunk) {
  if (c.error) throw new Refused(0, c.error.message ?? 'the model failed', { code: c.error.code })
  const t = turn.times!
  const choice = c.choices?.[0]
  const d = choice?.delta
  if (d?.content || d?.reasoning_content || d?.tool_calls?.length) {
    t.first ??= performance.now() - t.began
    t.tokens++
  }
  turn.text += d?.content ?? ''
  if (d?.reasoning_content) turn.thinking = (turn.thinking ?? '') + d.reasoning_content
  for (const part of d?.tool_calls ?? []) {
    const calls = (turn.calls ??= [])
    const k = part.index ?? calls.length
    const call = (calls[k] ??= { id: '', name: '', args: '' })
    if (part.id) call.id = part.id
    call.name += part.function?.name ?? ''
    call.args += part.function?.arguments ?? ''
  }
  if (choice?.finish_reason === 'length') turn.stop = 'It was cut at the most tokens that it may have.'
  if (c.usage?.completion_tokens) t.tokens = c.usage.completion_tokens
}
