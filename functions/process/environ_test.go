package process_test

import (
	"testing"

	"github.com/rouse-dev/rouse/functions/process"
)

func TestValue(t *testing.T) {
	env := []string{"A=1", "AB=2", "A=3=x", "B", "C="}
	for name, want := range map[string]string{"A": "3=x", "AB": "2", "B": "", "C": "", "D": "", "": ""} {
		if got := process.Variable(env, name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
