package cli

import (
	"io"
	"os"
	"strings"
	"testing"
)

// standBy runs a process that stands by with that standard input, and gives its environment back afterwards.
func standBy(t *testing.T, in string) error {
	t.Helper()
	env := os.Environ()
	t.Cleanup(func() {
		os.Clearenv()
		for _, kv := range env {
			name, value, _ := strings.Cut(kv, "=")
			if err := os.Setenv(name, value); err != nil {
				t.Error(err)
			}
		}
	})
	cmd := Command()
	cmd.SetArgs(StandbyArgs())
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd.ExecuteContext(t.Context())
}

func TestStandbyEndsWithItsInput(t *testing.T) {
	if err := standBy(t, ""); err != nil {
		t.Errorf("the input ended without an order: %v, want no error", err)
	}
}

// An order is carried out as if the process had been started with it: here far
// enough to be refused for what is wrong with it.
func TestStandbyTakesArgumentsAndEnvironment(t *testing.T) {
	for in, want := range map[string]string{
		`{"args":["--log-level","loud"],"env":[]}`:                        `--log-level`,
		`{"args":["--instance","a"],"env":["ROUSE_FUNCTION={\"no\":1}"]}`: `unknown field "no"`,
		`{"args":["--unknown"],"env":[]}`:                                 "unknown flag",
		`{"args":[],"env":["=x"]}`:                                        "environment variable",
		"no order":                                                        "--standby: read the order",
	} {
		if err := standBy(t, in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("order %s: %v, want an error with %q", in, err, want)
		}
	}
}
