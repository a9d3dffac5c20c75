package config

import "testing"

func TestNameOf(t *testing.T) {
	for model, want := range map[string]string{
		"Qwen2.5": "qwen2-5", "7b": "m-7b", "ünï": "uni", "Mein Modell (v1)": "mein-modell-v1", "a--b": "a-b", "-(": "", "é-é": "e-e",
	} {
		if got := NameOf(model); got != want {
			t.Errorf("%q: got %q, want %q", model, got, want)
		}
	}
}
