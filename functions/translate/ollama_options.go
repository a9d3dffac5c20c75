package translate

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// keptOptions are those of Ollama's that have a place in a chat completion, with its name.
var keptOptions = map[string]string{
	"temperature": "temperature", "top_p": "top_p", "min_p": "min_p", "stop": "stop", "repeat_penalty": "repetition_penalty",
	"presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}

// hostOptions say how a model is run, and not what it says: that is the function's to declare. num_keep counts only
// where a context is shifted.
var hostOptions = []string{
	"num_batch", "num_ctx", "num_gpu", "main_gpu", "low_vram", "use_mmap", "use_mlock", "num_thread", "numa", "f16_kv", "vocab_only", "logits_all", "num_keep",
	"mirostat_tau", "mirostat_eta",
}

// neutralOptions are those that nothing here can do, with the value that asks for nothing.
var neutralOptions = map[string]float64{"mirostat": 0, "tfs_z": 1, "typical_p": 1}

// options moves the options into the request. One that would change the answer and can't be kept is an error.
func options(in object) error {
	var all object
	if err := in.take("options", &all); err != nil {
		return err
	}
	for name, raw := range all {
		if !all.has(name) || slices.Contains(hostOptions, name) {
			continue
		}
		if as, kept := keptOptions[name]; kept {
			in[as] = raw
			continue
		}
		n, err := number(name, raw)
		if err != nil {
			return err
		}
		if err := option(in, all, name, n); err != nil {
			return err
		}
	}
	if string(in["stop"]) == "[]" {
		delete(in, "stop")
	}
	return nil
}

// number is the value of an option. What has none is not known: there all are told.
func number(name string, raw json.RawMessage) (n float64, err error) {
	if err := json.Unmarshal(raw, &n); err != nil {
		return 0, api.BadRequest("options."+name, "options.%s is %.40s, which can't be kept here: leave it out", name, raw)
	}
	return n, nil
}

// option is one with a number.
func option(in, all object, name string, n float64) error {
	switch name {
	case "num_predict", "top_k", "seed":
		if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
			return api.BadRequest("options."+name, "options.%s is %v: want a whole number", name, n)
		}
		switch {
		case name == "top_k":
			in.put("top_k", max(int64(n), -1))
		case name == "num_predict" && n > 0: // else there is no limit but the context
			in.put("max_tokens", int64(n))
		case name == "seed" && n >= 0: // else each answer has another one
			in.put("seed", int64(n))
		}
		return nil
	case "repeat_last_n": // penalties are for the whole context, as with -1
		if n != -1 && penalized(all) {
			return api.BadRequest("options.repeat_last_n", "options.repeat_last_n is %v, which can't be kept beside a penalty: penalties are for all of the context, leave it out or send -1", n)
		}
		return nil
	}
	if neutral, known := neutralOptions[name]; known && n == neutral {
		return nil
	}
	return api.BadRequest("options."+name, "options.%.40s is %v, which can't be kept here: leave it out", name, n)
}

// penalized says whether options have a penalty.
func penalized(options object) bool {
	for name, neutral := range map[string]float64{"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0} {
		if n := neutral; options.has(name) && (json.Unmarshal(options[name], &n) != nil || n != neutral) {
			return true
		}
	}
	return false
}
