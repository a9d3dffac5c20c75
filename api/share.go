package api

import (
	"slices"
	"strconv"
	"strings"
)

// DefaultShare is the share of each device that vLLM takes by default.
const DefaultShare = 0.9

// deviceShare is the part of each device that the runtime takes by its own options; 0: they don't say.
func (rt Runtime) deviceShare() float64 {
	if rt.Endpoint != "" { // of what runs already nobody knows the options
		return 0
	}
	switch rt.Kind {
	case RuntimeVLLM:
		if _, set := rt.option("--kv-cache-memory-bytes"); set {
			return 0
		}
		if text, set := rt.option("--gpu-memory-utilization"); set {
			return share(text)
		}
		return DefaultShare
	case RuntimeSGLang:
		text, _ := rt.option("--mem-fraction-static")
		return share(text)
	}
	return 0
}

// share reads a part of a whole; 0: it is none.
func share(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1) {
		return 0
	}
	return v
}

// option is the last value of an option, which may be written with underscores, or of an environment variable.
func (rt Runtime) option(name string) (value string, set bool) {
	words := slices.Concat(rt.Env, rt.Command, rt.Args)
	for k, word := range slices.Backward(words) {
		key, value, given := strings.Cut(word, "=")
		if strings.HasPrefix(key, "--") {
			key = strings.ReplaceAll(key, "_", "-")
		}
		if key != name {
			continue
		}
		if !given && k+1 < len(words) {
			value = words[k+1]
		}
		return value, true
	}
	return "", false
}
