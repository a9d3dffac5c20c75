import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { called, open, type Call, type Fault, type Pane, type Times, type Turn } from '../chat'
import { millis } from '../format'

// TurnView is what somebody said, or an answer with how it came. last says that it is the conversation's last.
export function TurnView({ t, model, p, last, resume }: { t: Turn; model: string; p: Pane; last: boolean; resume: () => void }) {
  return (
    <div class={'turn ' + t.role}>
      <span class="unseen">{t.role === 'user' ? 'You: ' : model + ': '}</span>
      {t.thinking && <details class="thinking" open={!t.text}><summary>Thinking</summary><p>{t.thinking}</p></details>}
      {t.images?.map((url, k) => <img key={k} src={url} alt={`Image ${k + 1} of the question`} />)}
      {t.text && <p>{t.text}</p>}
      {t.calls?.map((c, k) => <CallView key={k} c={c} done={!last || p.running.value || !called(t).length} set={(text) => { c.result = text; p.turns.value = [...p.turns.value] }} />)}
      {last && !p.running.value && called(t).length > 0 && <button class="main" disabled={open(p).length > 0} onClick={resume}>Send the {called(t).length > 1 ? 'results' : 'result'}</button>}
      {t.stop && <p class="faint">{t.stop}</p>}
      {t.error && <FaultView f={t.error} again={last && !p.running.value ? resume : undefined} />}
      {t.times && <TimesOf t={t.times} />}
    </div>
  )
}

// pretty is JSON over several lines; what is no JSON yet, as it is.
function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return text
  }
}

// CallView shows a tool's call, and takes its result from whoever is asked to be the tool.
function CallView({ c, done, set }: { c: Call; done: boolean; set: (text: string) => void }) {
  return (
    <div class="call">
      <h2>Calls <code>{c.name}</code></h2>
      <pre>{pretty(c.args)}</pre>
      {done ? c.result !== undefined && <><h2>Result</h2><pre>{c.result}</pre></> : (
        <label>Result of {c.name}
          <textarea rows={2} value={c.result ?? ''} placeholder='What the tool gives, such as {"celsius": 21}' onInput={(e) => set(e.currentTarget.value)} />
        </label>
      )}
    </div>
  )
}

function FaultView({ f, again }: { f: Fault; again?: () => void }) {
  const about = [f.status && `status ${f.status}`, f.code, f.request, f.retry && `try again in ${f.retry} s`].filter(Boolean).join(' · ')
  return (
    <div class="fault" role="alert">
      <p class="bad">{f.message}</p>
      {about && <small>{about}</small>}
      {again && <button onClick={again}>Try again</button>}
    </div>
  )
}

// TimesOf is how long an answer was held, when its first token came, and how fast the others; it moves while it runs.
function TimesOf({ t }: { t: Times }) {
  const tick = useSignal(0)
  tick.value
  useEffect(() => {
    if (t.end !== undefined) return
    const clock = setInterval(() => tick.value++, 100)
    return () => clearInterval(clock)
  }, [t.end !== undefined])
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
      <span><b>hold</b> {millis(hold)}{t.first === undefined && t.stage ? `, ${t.stage}` : ''}</span>
      {!!t.wake && <span><b>wake</b> {millis(t.wake)}</span>}
      {t.first !== undefined && <span><b>first token</b> {millis(t.first)}</span>}
      {t.first !== undefined && <span><b>{t.tokens} tokens</b>{rate > 0 && `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s`}</span>}
    </div>
  )
}
