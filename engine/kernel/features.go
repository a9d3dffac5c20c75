package kernel

import (
	"fmt"
	"os"
	"strings"
)

type level uint8

const generic level = 0 // plain Go

func (l level) String() string { return levelNames[l] }

// using is set before the first computation; tests change it.
var using, limitError = limited(supported(), os.Getenv("ROUSE_CPU"))

// limited ignores an unknown limit and returns an error for it.
func limited(has level, limit string) (level, error) {
	if limit == "" {
		return has, nil
	}
	for l, name := range levelNames {
		if name == limit {
			return min(has, level(l)), nil
		}
	}
	return has, fmt.Errorf("ROUSE_CPU is %q: want %s, or leave it unset", limit, strings.Join(levelNames[:], ", "))
}

// Features returns the vector instructions in use: the processor's best, or the limit in the environment variable
// ROUSE_CPU: generic; avx2 or avx512 on amd64; neon or dotprod on arm64. The error says that the variable holds
// something else.
func Features() (string, error) { return using.String(), limitError }
