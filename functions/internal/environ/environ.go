// Package environ reads environments that are lists of "KEY=VALUE", as os.Environ and os/exec have them. All functions are pure.
package environ

import (
	"slices"
	"strings"
)

// Value returns the last value of a variable, which is the one that a program gets, or "".
func Value(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}
