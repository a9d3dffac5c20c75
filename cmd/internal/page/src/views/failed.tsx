import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { functionPath, get } from '../api'
import { ago, brief, clock, short } from '../format'
import { link } from '../parts'
import { now, order, say } from '../store'
import type { Summary } from '../types'

// remedies are what helps where a reason has some words; the first that matches is said.
const remedies: [RegExp, string][] = [
  [/out of memory|OutOfMemory|no available memory/i, 'Its server takes more than there is: lower what it takes by its own options (--max-model-len, --gpu-memory-utilization), or declare what it needs as rouse.dev/device-memory.'],
  [/needs .* of host memory/, 'Lower rouse.dev/memory to what it needs, or let models use more of the host: rouse up --memory.'],
  [/needs \d+ GPUs?\b/, 'Declare fewer GPUs, or run it where there are so many.'],
  [/needs .*(on each of|on one node)/, 'Lower rouse.dev/device-memory to what it needs, take a smaller or quantized model, or spread it over more GPUs.'],
  [/executable file not found|not found in \$PATH|no such program|is not installed/i, 'Install the program that serves it, or name the one that is there in the container\'s command.'],
  [/GGUF/, 'Fetch or copy the model\'s file again, or name another one.'],
  [/no space left/i, 'Free some disk, or keep models elsewhere: ROUSE_CACHE names the folder.'],
  [/\b(401|403)\b|unauthorized|gated/i, 'The source wants a right that the server lacks: give it one, such as HF_TOKEN in its environment.'],
  [/no such file|does not exist|not found/i, 'Put the file where it is looked for, or declare the function with the right path.'],
  [/permission denied/i, 'Let the user that runs rouse read it.'],
  [/address already in use|another process .* port/i, 'End the other program that has the port.'],
  [/timed? ?out|deadline|took longer|limit of/i, 'If it only needs longer, raise rouse.dev/start-timeout; else its logs say what it waits for.'],
]

const remedy = (reason: string) => remedies.find(([words]) => words.test(reason))?.[1] ?? 'Its logs say what it printed last.'

// Reason is why a function failed, in full: lists have the end of it only.
export function Reason({ f }: { f: Summary }) {
  const said = f.failed || f.lastError || ''
  const whole = useSignal('')
  useEffect(() => {
    whole.value = ''
    if (!said.startsWith('…')) return
    const abort = new AbortController()
    get<{ impossible?: string; lastError?: string; activator?: { failed?: string } }>(functionPath(f.name), abort.signal)
      .then((v) => (whole.value = v.lastError?.endsWith(said.slice(1)) ? v.lastError : v.impossible || v.lastError || v.activator?.failed || ''), () => {})
    return () => abort.abort()
  }, [f.name, said])
  return <span class="bad">{brief(whole.value || said)}</span>
}

// Failure is the reason, what to do about it, and when it is tried again.
export function Failure({ f }: { f: Summary }) {
  const next = Date.parse(f.retryAt ?? '')
  const again = !f.clusters && !!f.failures // else another try changes nothing
  return (
    <>
      <Reason f={f} />
      <p class="remedy">
        <b>What to do</b> {remedy(f.failed || f.lastError || '')}{' '}
        {again && (next > now.value ? `It is tried again for requests from ${clock(f.retryAt!)} on. ` : 'The next request tries again. ')}
        {again && <button onClick={async () => { if (await order(f.name, '/wake')) say(`${short(f.name)} is awake`) }}>Try now</button>}
      </p>
    </>
  )
}

// FailedList is what has failed, with everything about it.
export function FailedList({ all, most }: { all: Summary[]; most: number }) {
  if (!all.length) return null
  return (
    <section class="waiting failed" aria-label="What has failed">
      <h2>Failed</h2>
      <ul>
        {all.slice(0, most).map((f) => (
          <li key={f.name}>
            <a href={link(f.name)}>{short(f.name)}</a> <small>{[f.failures && `${f.failures} in a row`, f.lastRequest && `last asked ${ago(f.lastRequest, now.value)}`].filter(Boolean).join(', ')}</small>
            <Failure f={f} />
          </li>
        ))}
      </ul>
      {all.length > most && <p><a href="#/functions">and {all.length - most} more</a></p>}
    </section>
  )
}
