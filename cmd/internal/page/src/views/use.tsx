import { useSignal } from '@preact/signals'
import { call, functionPath } from '../api'
import { Copy } from '../parts'
import { info } from '../store'
import type { Summary } from '../types'

// Use is how clients reach a function, and how it is declared, to copy.
export function Use({ f }: { f: Summary }) {
  const declared = useSignal('')
  const base = (info.value?.leader ? 'http://rouse.knative-serving' : info.value?.url || location.origin) + '/v1'
  const key = info.value?.keys ? ` \\\n  -H "Authorization: Bearer $ROUSE_KEY"` : ''
  const body = JSON.stringify({ model: f.model, messages: [{ role: 'user', content: 'Hello' }] }).replaceAll("'", "'\\''")
  const read = async () => {
    if (declared.value) return
    const [namespace, name] = f.name.split('/')
    if (info.value?.leader) declared.value = `kubectl get ksvc -n ${namespace} ${f.service?.split('/')[1] ?? name} -o yaml`
    else declared.value = await call(functionPath(f.name, '/manifest')).then((r) => r.text(), (err: Error) => '# ' + err.message)
  }
  return (
    <section aria-label="Use it">
      <h2>Use it</h2>
      <div class="halves">
        <Copy title="Base URL" text={base} />
        <Copy title="curl" text={`curl ${base}/chat/completions${key} \\\n  -H "Content-Type: application/json" \\\n  -d '${body}'`} />
      </div>
      <details onToggle={(e) => e.currentTarget.open && void read()}>
        <summary>{info.value?.leader ? 'How it is declared' : 'Its manifest, for rouse up -f and kubectl apply -f'}</summary>
        {declared.value && <Copy title="Manifest" text={declared.value} />}
      </details>
    </section>
  )
}
