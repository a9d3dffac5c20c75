package process

import (
	"slices"
	"strings"
)

// Variable returns the last value of a variable in a list of "KEY=VALUE", which is the one that a program gets, or "".
func Variable(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}
