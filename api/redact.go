package api

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Hidden stands for a secret that is not shown.
const Hidden = "…"

// secretName matches names whose values are secrets, such as HF_TOKEN, --api-key and X-Amz-Signature.
const secretName = `(?i:(?:[\w.-]*[_.-])?(?:api|access|auth|secret)?(?:key|token|secret|password|passwd|pass|pwd|bearer|credentials?|signature|sig|authorization))`

// secrets are the places of secrets in a text; the first group of each stays.
var secrets = sync.OnceValue(func() (list []*regexp.Regexp) {
	for _, place := range []string{
		`(://)[^/?#\s@]+(@)`,
		`((?:^|[^\w.-])` + secretName + `(?:["']?=|:\s|["']:\s*))(?:Bearer\s+)?(?:"[^"]*"|'[^']*'|[^\s&"',;}]+)`,
		`((?:^|[\s"'])-` + secretName + `\s+)(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`,
		`(\b(?:sk-|hf_))[\w-]{16,}`, `(\brouse-)[a-z2-7]{40}\b`, // keys, whatever their names
	} {
		list = append(list, regexp.MustCompile(place))
	}
	return list
})

// hide replaces what may be a secret in the words of a command line: passwords and tokens in URLs, and values that are named
// as one.
func hide(words ...string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		for _, place := range secrets() {
			w = place.ReplaceAllString(w, "${1}"+Hidden+"${2}")
		}
		if i > 0 && !strings.HasPrefix(w, "-") && strings.HasPrefix(words[i-1], "-") && secrets()[2].MatchString(words[i-1]+" x") {
			w = Hidden
		}
		words[i] = w
	}
	return words
}

// Redacted is [Function.WithoutSecrets] for people: what may be a secret in its command, options and URLs is hidden too.
func (f Function) Redacted() Function {
	f = f.WithoutSecrets()
	rt := &f.Runtime
	rt.Command, rt.Args, f.Handler = hide(rt.Command...), hide(rt.Args...), hide(f.Handler...)
	rt.Model, rt.Endpoint = hide(rt.Model)[0], Endpoint(hide(string(rt.Endpoint))[0])
	rt.Adapters = slices.Clone(rt.Adapters)
	for k := range rt.Adapters {
		rt.Adapters[k].Path = hide(rt.Adapters[k].Path)[0]
	}
	return f
}
