package config

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestOlderSpelling checks that older spellings are accepted, and that the newer one wins.
func TestOlderSpelling(t *testing.T) {
	for name, tt := range map[string]struct {
		keys map[string]string
		want time.Duration
	}{
		"older": {map[string]string{"rouse.dev/gone-after": "7m"}, 7 * time.Minute},
		"newer": {map[string]string{"rouse.dev/unload-after": "8m"}, 8 * time.Minute},
		"both":  {map[string]string{"rouse.dev/gone-after": "7m", "rouse.dev/unload-after": "8m"}, 8 * time.Minute},
	} {
		var f api.Function
		for key, value := range tt.keys {
			if err := settingsOf(&f).annotate(key, value, func(k string) bool { _, has := tt.keys[k]; return has }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if f.UnloadAfter != tt.want {
			t.Errorf("%s: got %s, want %s", name, f.UnloadAfter, tt.want)
		}
	}
}
