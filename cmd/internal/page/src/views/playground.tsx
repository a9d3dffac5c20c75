import { computed, signal, useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { setClientKey } from '../api'
import { ask, auth, needsKey, newPane, open, type Pane } from '../chat'
import { doing, short, stateOf } from '../format'
import { StateWord } from '../parts'
import { functions, say } from '../store'
import { settings, SettingsView, toolFault } from './settings'
import type { Summary } from '../types'
import { TurnView } from './turn'

const panes = [newPane(), newPane()]
const two = signal(false)
const listed = signal<string[]>([])
const images = signal<{ name: string; url: string }[]>([])
const mostImages = 4
const mostBytes = 8 << 20 // of an image

const modelName = (f: Summary) => f.model || short(f.name)
const models = computed(() => (functions.value.length ? functions.value.map(modelName) : listed.value))
const running = computed(() => panes.some((p) => p.running.value))
// modelOf is the model that a person has chosen, else one that is awake; beside it another one.
const modelOf = (p: Pane): string => {
  const awake = functions.value.find((f) => f.state === 'awake')
  const first = p.model.value || (awake ? modelName(awake) : models.value[0]) || ''
  return p.model.value || p === panes[0] ? first : models.value.find((m) => m !== modelOf(panes[0]!)) ?? first
}

// list asks for the models where this page may not see the functions.
async function list() {
  const resp = await fetch('/v1/models', { headers: auth(), cache: 'no-store' })
  if (resp.ok) listed.value = (await resp.json()).data.map((m: { id: string }) => m.id)
  needsKey.value = resp.status === 401
}

// attach reads images, to go with the next question.
async function attach(files: Iterable<File>) {
  for (const file of files) {
    if (!file.type.startsWith('image/')) say(`${file.name} is no image`, true)
    else if (file.size > mostBytes) say(`${file.name} is larger than 8 MiB`, true)
    else if (images.value.length >= mostImages) say(`A question has ${mostImages} images at most`, true)
    else {
      const url = await new Promise<string>((resolve, reject) => {
        const r = new FileReader()
        r.onload = () => resolve(r.result as string)
        r.onerror = () => reject(r.error)
        r.readAsDataURL(file)
      }).catch((err: Error) => void say(`${file.name}: ${err.message}`, true))
      if (url) images.value = [...images.value, { name: file.name, url }]
    }
  }
}

function PaneView({ p, n }: { p: Pane; n: number }) {
  const model = modelOf(p)
  const f = functions.value.find((f) => (f.model || short(f.name)) === model)
  const box = useRef<HTMLDivElement>(null)
  const turns = p.turns.value
  const low = useRef(true) // the reader is at the end, and stays there
  useEffect(() => {
    if (low.current && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [turns])
  return (
    <section class="pane" aria-label={`Conversation ${n + 1}`}>
      <div class="bar">
        <label class="field">Model <select value={model} disabled={p.running.value} onChange={(e) => { p.model.value = e.currentTarget.value; p.turns.value = [] }}>{models.value.map((m) => <option key={m} value={m}>{m}</option>)}</select></label>
        {f && <StateWord state={stateOf(f)} more={doing(f)} />}
      </div>
      <div class="turns" ref={box} role="log" aria-label="Answers" tabIndex={0} onScroll={(e) => { const b = e.currentTarget; low.current = b.scrollTop + b.clientHeight > b.scrollHeight - 40 }}>
        {turns.map((t, k) => <TurnView key={k} t={t} model={model} p={p} last={k === turns.length - 1} resume={() => void ask(p, model, settings.value)} />)}
        {!turns.length && <p class="empty">{model ? `Ask ${model} something. If it is not awake, it is woken for you.` : 'There is no model to ask.'}</p>}
      </div>
    </section>
  )
}

function Ask({ shown }: { shown: Pane[] }) {
  const text = useSignal(modelOf(panes[0]!) === 'pico' && !panes[0]!.turns.value.length ? 'echo hello world' : '')
  const file = useRef<HTMLInputElement>(null)
  const waits = shown.some((p) => open(p).length > 0)
  const why = waits ? 'The model waits for the result of a tool.' : toolFault.value && 'Nothing is sent while the tools can\'t be read: see the settings.'
  const send = () => {
    const prompt = text.value.trim()
    if (!prompt && !images.value.length || running.value || !models.value.length || why) return
    const urls = images.value.map((i) => i.url)
    text.value = ''
    images.value = []
    for (const p of shown) p.model.value = modelOf(p) // for the rest of the conversation
    for (const p of shown) void ask(p, modelOf(p), settings.value, { role: 'user', text: prompt, ...(urls.length && { images: urls }) })
  }
  return (
    <form class="ask" onSubmit={(e) => { e.preventDefault(); send() }} onDragOver={(e) => e.preventDefault()} onDrop={(e) => { e.preventDefault(); void attach(e.dataTransfer?.files ?? []) }}>
      {images.value.length > 0 && (
        <ul class="images" aria-label="Images of the question">
          {images.value.map((i) => <li key={i.url}><img src={i.url} alt={i.name} /><button type="button" aria-label={'Leave out ' + i.name} onClick={() => (images.value = images.value.filter((x) => x !== i))}>✕</button></li>)}
        </ul>
      )}
      {why && <p class="faint" role="status">{why}</p>}
      <div class="line">
        <textarea rows={2} aria-label="Prompt" placeholder="Ask; images can be pasted or dropped here" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} onPaste={(e) => void attach([...(e.clipboardData?.files ?? [])])}
          onKeyDown={(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send() } }} />
        <input ref={file} type="file" accept="image/*" multiple hidden aria-label="Images" onChange={(e) => { void attach([...(e.currentTarget.files ?? [])]); e.currentTarget.value = '' }} />
        <button type="button" onClick={() => file.current!.click()}>Image</button>
        {running.value ? <button type="button" onClick={() => panes.forEach((p) => p.abort?.abort())}>Stop</button> : <button class="main" disabled={!models.value.length || !!why}>Send</button>}
      </div>
    </form>
  )
}

export function Playground() {
  const key = useRef<HTMLInputElement>(null)
  useEffect(() => {
    list().catch(() => {})
  }, [])
  const shown = two.value ? panes : panes.slice(0, 1)
  return (
    <div class="fill play">
      <div class="bar">
        <h1>Playground</h1>
        <label class="check"><input type="checkbox" checked={two.value} onChange={(e) => (two.value = e.currentTarget.checked)} /> Two models side by side</label>
        <button onClick={() => { for (const p of panes) p.turns.value = [] }} disabled={running.value}>Clear</button>
      </div>
      {needsKey.value && (
        <form class="banner" onSubmit={(e) => { e.preventDefault(); setClientKey(key.current!.value.trim()); needsKey.value = false; list().catch(() => {}) }}>
          <label class="field">This server wants a client's key <input ref={key} type="password" autocomplete="off" required /></label> <button>Use it</button> <span class="faint">It is kept for this tab only.</span>
        </form>
      )}
      <SettingsView />
      <div class={'panes' + (two.value ? ' two' : '')}>{shown.map((p, n) => <PaneView key={n} p={p} n={n} />)}</div>
      <Ask shown={shown} />
    </div>
  )
}
