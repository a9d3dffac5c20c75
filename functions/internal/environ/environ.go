// Package environ reads environments that are lists of "KEY=VALUE", as os.Environ
// and os/exec have them. All functions are pure.
package environ

import (
	"slices"
	"strings"
)

// Value returns the value of a variable: of several settings the last, which is
// the one that a program gets; "" where there is none.
func Value(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}
