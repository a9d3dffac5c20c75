package config

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

func TestForeseen(t *testing.T) {
	none := func(string) bool { return false }
	for _, tc := range []struct {
		key, value string
		want       api.Function
		err        string
	}{
		{key: "rouse.dev/prewake", value: "false", want: api.Function{NoPrewake: true}},
		{key: "rouse.dev/prewake", value: "true"},
		{key: "rouse.dev/prewake", value: "often", err: "want true or false"},
		{key: "rouse.dev/rehearse", value: "always", want: api.Function{Rehearse: api.RehearseAlways}},
		{key: "rouse.dev/rehearse", value: "yes", err: `"yes": want measured, always or never`},
	} {
		var f api.Function
		err := settingsOf(&f).annotate(tc.key, tc.value, none)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %s: got %v, want %q", tc.key, tc.value, err, tc.err)
			}
		} else if err != nil || f.NoPrewake != tc.want.NoPrewake || f.Rehearse != tc.want.Rehearse {
			t.Errorf("%s: %s: got %+v, %v", tc.key, tc.value, f, err)
		}
	}
}
