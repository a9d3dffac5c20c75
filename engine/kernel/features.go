package kernel

import (
	"fmt"
	"os"
	"strings"
)

// A level is a set of the processor's vector instructions. All levels give the
// same bits. Each architecture has its own levels above generic, with their names in levelNames.
type level uint8

const generic level = 0 // plain Go

func (l level) String() string { return levelNames[l] }

// using is the level in use. It is set before the first computation and then only read; tests
// change it between computations.
var using, limitError = limited(supported(), os.Getenv("ROUSE_CPU"))

// limited returns the level to use: the processor's, but no more than limit; "" is
// no limit. It ignores an unknown limit and returns an error for it.
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

// Features returns the name of the vector instructions in use: the best of the processor, or the limit in the
// environment variable ROUSE_CPU: generic; avx2 or avx512 on amd64; neon or dotprod on arm64. The error says that the
// variable holds something else, which has no effect.
func Features() (string, error) { return using.String(), limitError }
