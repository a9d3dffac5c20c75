package kn

import "testing"

func TestSupported(t *testing.T) {
	for version, want := range map[string]bool{
		"": true, "devel": true, "1.24.0": true, "v1.24.4": true, "1.23.1": true, "1.25.0": true, "0.51.0": true, "v0.50.2": true,
		"1.22.9": false, "1.26.0": false, "0.44.0": false, "2.0.0": false, "latest": false, "1": false,
	} {
		if err := supported(version, false); (err == nil) != want {
			t.Errorf("supported(%q) = %v, want it to pass: %t", version, err, want)
		}
		if err := supported(version, true); err != nil {
			t.Errorf("supported(%q, any) = %v, want nil", version, err)
		}
	}
}
