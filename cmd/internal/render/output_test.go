package render

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// TestReadable checks that a value prints as in JSON except for its durations, and that those can be parsed again.
func TestReadable(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	f := admin.Function{
		Function:  api.Function{Name: "a/b", Runtime: api.Runtime{Args: []string{"x"}}, Hold: api.Hold{MaxBytes: 7}},
		Instances: []api.InstanceStatus{{Instance: "i", Since: at, Memory: api.Memory{Host: 1 << 40}}},
		Activator: api.Activity{Waiting: 3},
	}
	want, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := jsonv2.Marshal(f, readable)
	if err != nil {
		t.Fatal(err)
	}
	if plain := regexp.MustCompile(`"0s"`).ReplaceAll(got, []byte("0")); string(plain) != string(want) {
		t.Errorf("got  %s\nwant %s", plain, want)
	}
	f.Function.SleepAfter, f.Function.Hold.Timeout = 90*time.Second, 5*time.Minute
	got, _ = jsonv2.Marshal([]admin.Function{f}, readable)
	for _, part := range []string{`"sleepAfter":"1m30s"`, `"timeout":"5m0s"`} {
		if !regexp.MustCompile(part).Match(got) {
			t.Errorf("%s is not in %s", part, got)
		}
	}
	if got, _ := jsonv2.Marshal(map[string]any{"d": time.Second, "n": nil, "l": []api.Decision(nil)}, readable); string(got) != `{"d":"1s","l":null,"n":null}` {
		t.Errorf("a map: got %s", got)
	}
}

// TestMeantFlag: a flag's value of another kind is refused with the kind that it wants.
func TestMeantFlag(t *testing.T) {
	for _, tt := range []struct{ arg, want string }{
		{"--n=x", `--n "x": want a whole number such as 10`}, {"--u=-1", `--u "-1": want a whole number such as 10`},
		{"--f=x", `--f "x": want a number such as 2.5`}, {"--b=x", `--b "x": want true or false`},
	} {
		c := &cobra.Command{Use: "c", Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true}
		c.Flags().Int("n", 0, "")
		c.Flags().Uint64("u", 0, "")
		c.Flags().Float64("f", 0, "")
		c.Flags().Bool("b", false, "")
		c.SetFlagErrorFunc(MeantFlag)
		c.SetArgs([]string{tt.arg})
		if err := c.Execute(); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.arg, err, tt.want)
		}
	}
}
