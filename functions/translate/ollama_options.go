package translate

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// keptOptions maps Ollama's options to their names in a chat completion.
var keptOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "stop": "stop", "repeat_penalty": "repetition_penalty",
	"presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}

// hostOptions say how a model is run, which the function declares. num_keep matters only if a context is shifted.
var hostOptions = strings.Fields("num_batch num_ctx num_gpu main_gpu low_vram use_mmap use_mlock num_thread numa f16_kv vocab_only logits_all num_keep mirostat_tau mirostat_eta")

// neutralOptions has the values of options that have no effect. Other values are refused, except those of penalties,
// which are translated.
var neutralOptions = map[string]float64{"mirostat": 0, "tfs_z": 1, "typical_p": 1, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}

// ollamaOptions moves the options into the request. It refuses one that would change the answer and can't be translated.
func (r *request) ollamaOptions() {
	var all object
	r.take("options", &all)
	for name, raw := range all {
		if !all.has(name) || slices.Contains(hostOptions, name) {
			continue
		}
		if as, kept := keptOptions[name]; kept {
			r.object[as] = raw
			continue
		}
		var n float64
		if json.Unmarshal(raw, &n) != nil {
			r.refuse("options."+name, "options.%s is %.40s, which can't be kept here: leave it out", name, raw)
		}
		r.setOption(all, name, n)
	}
	if string(r.object["stop"]) == "[]" {
		r.remove("stop")
	}
}

// setOption sets an option with a number.
func (r *request) setOption(all object, name string, n float64) {
	switch name {
	case "num_predict", "top_k", "seed":
		switch {
		case n != math.Trunc(n) || math.Abs(n) > 1<<53:
			r.refuse("options."+name, "options.%s is %v: want a whole number", name, n)
		case name == "top_k":
			r.put("top_k", max(int64(n), -1))
		case name == "num_predict" && n > 0: // otherwise only the context limits it
			r.put("max_tokens", int64(n))
		case name == "seed" && n >= 0: // otherwise each answer has another one
			r.put("seed", int64(n))
		}
	case "repeat_last_n": // penalties apply to the whole context, as with -1
		for _, penalty := range []string{"repeat_penalty", "presence_penalty", "frequency_penalty"} {
			if n != -1 && all.has(penalty) && !isNeutral(penalty, all[penalty]) {
				r.refuse("options.repeat_last_n", "options.repeat_last_n is %v, which can't be kept beside a penalty: penalties are for all of the context, leave it out or send -1", n)
			}
		}
	default:
		if !isNeutral(name, all[name]) {
			r.refuse("options."+name, "options.%.40s is %v, which can't be kept here: leave it out", name, n)
		}
	}
}

// isNeutral reports whether the value of an option has no effect.
func isNeutral(name string, raw json.RawMessage) bool {
	neutral, known := neutralOptions[name]
	var n float64
	return known && json.Unmarshal(raw, &n) == nil && n == neutral
}
