import { computed, signal } from '@preact/signals'
import { readTools, type Settings } from '../chat'

const system = signal('')
const temperature = signal(0)
const most = signal(0)
const toolText = signal('')
const choice = signal('auto')
const read = computed(() => readTools(toolText.value))

// settings are those of the next request; toolFault says why it can't be made.
export const settings = computed<Settings>(() => ({ system: system.value.trim(), temperature: temperature.value, most: most.value, tools: read.value.tools, choice: choice.value }))
export const toolFault = computed(() => read.value.error)

const example = JSON.stringify([{ type: 'function', function: { name: 'get_weather', description: 'The weather of a city now', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }], null, 2)

// SettingsView is what goes with a question besides it.
export function SettingsView() {
  const n = read.value.tools.length
  const said = [system.value.trim() && 'system prompt', n && `${n} ${n > 1 ? 'tools' : 'tool'}`, most.value && `${most.value} tokens at most`, temperature.value && `temperature ${temperature.value}`].filter(Boolean).join(', ')
  return (
    <details class="settings">
      <summary>Settings and tools{said && <small> {said}</small>}{read.value.error && <em class="bad"> the tools can't be read</em>}</summary>
      <div class="fields">
        <label class="field">Temperature <input type="number" min="0" max="2" step="0.1" value={temperature.value} onInput={(e) => (temperature.value = e.currentTarget.valueAsNumber || 0)} /></label>
        <label class="field">Tokens at most <input type="number" min="1" placeholder="any" value={most.value || ''} onInput={(e) => (most.value = e.currentTarget.valueAsNumber || 0)} /></label>
        <label class="field">Tools are <select value={choice.value} onChange={(e) => (choice.value = e.currentTarget.value)}><option value="auto">used as the model likes</option><option value="required">always used</option><option value="none">never used</option></select></label>
      </div>
      <div class="fields two">
        <label>System prompt <textarea rows={5} value={system.value} onInput={(e) => (system.value = e.currentTarget.value)} /></label>
        <div>
          <label>Tools, as JSON <textarea rows={5} class="json" spellcheck={false} value={toolText.value} aria-invalid={!!read.value.error} aria-describedby="tool-fault" onInput={(e) => (toolText.value = e.currentTarget.value)} /></label>
          <span id="tool-fault" class="bad" role="status">{read.value.error}</span>
          {!toolText.value && <button onClick={() => (toolText.value = example)}>An example</button>}
        </div>
      </div>
    </details>
  )
}
