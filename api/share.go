package api

import (
	"slices"
	"strconv"
	"strings"
)

// DefaultShare is vLLM's default share of each device's memory.
const DefaultShare = 0.9

// deviceShare returns the share of each device set by the runtime's options; 0: unknown.
func (rt Runtime) deviceShare() float64 {
	if rt.Endpoint != "" { // the options of an external runtime are unknown
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

// share parses a fraction in (0, 1]; 0 if text is not one.
func share(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1) {
		return 0
	}
	return v
}

// option returns the last value of an option, possibly spelled with underscores, or of an environment variable.
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
