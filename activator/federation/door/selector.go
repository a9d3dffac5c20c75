package door

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// selector selects clusters by their labels, as in Kubernetes. All requirements must hold.
type selector []requirement

// requirement is one of: key, !key, key = value, key != value, key in (values), key notin (values).
type requirement struct {
	key    string
	not    bool
	values []string // nil: any value
}

// As in Kubernetes, a value may be empty, a key may not.
var (
	key        = `([A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)`
	value      = `((?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?)`
	existsForm = lazyregexp.New(`^(!?)\s*` + key + `$`)
	equalsForm = lazyregexp.New(`^` + key + `\s*(==?|!=)\s*` + value + `$`)
	inForm     = lazyregexp.New(`^` + key + `\s+(in|notin)\s*\(([^()]*)\)$`)
	valueForm  = lazyregexp.New(`^` + value + `$`)
)

// parseSelector parses a selector that is not empty.
func parseSelector(s string) (list selector, err error) {
	for _, part := range splitOutside(s) {
		part = strings.TrimSpace(part)
		if m := existsForm().FindStringSubmatch(part); m != nil {
			list = append(list, requirement{key: m[2], not: m[1] != ""})
		} else if m := equalsForm().FindStringSubmatch(part); m != nil {
			list = append(list, requirement{key: m[1], not: m[2] == "!=", values: []string{m[3]}})
		} else if m := inForm().FindStringSubmatch(part); m != nil {
			r := requirement{key: m[1], not: m[2] == "notin"}
			for v := range strings.SplitSeq(m[3], ",") {
				v = strings.TrimSpace(v)
				if !valueForm().MatchString(v) {
					return nil, fmt.Errorf("%q is no value of a label", v)
				}
				r.values = append(r.values, v)
			}
			list = append(list, r)
		} else {
			return nil, fmt.Errorf("%q: want KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUE, …) or KEY notin (VALUE, …), separated by commas", part)
		}
	}
	return list, nil
}

func splitOutside(s string) (parts []string) {
	depth, from := 0, 0
	for i, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

// matches takes a missing label for one without a value.
func (list selector) matches(labels map[string]string) bool {
	for _, r := range list {
		v, has := labels[r.key]
		if has && r.values != nil {
			has = slices.Contains(r.values, v)
		}
		if has == r.not {
			return false
		}
	}
	return true
}
