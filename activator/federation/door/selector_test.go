package door

import "testing"

func TestSelector(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"gpu": "h100", "example.com/tier": "fast", "empty": ""}
	for text, want := range map[string]bool{
		"gpu": true, "!gpu": false, "other": false, "! other": true,
		"gpu=h100": true, "gpu == h100": true, "gpu=a100": false, "gpu!=h100": false, "gpu != a100": true, "other!=x": true, "other=x": false,
		"gpu in (a100, h100)": true, "gpu in(h100)": true, "gpu in (a100)": false, "gpu notin (a100,h100)": false, "gpu notin (a100)": true, "other notin (x)": true, "other in (x)": false,
		"example.com/tier=fast,gpu in (h100, h200), !other": true, "example.com/tier=fast,gpu": true, "gpu,other": false,
		"empty=": true, "empty": true, "empty!=": false, "empty in (,x)": true, "gpu=": false,
	} {
		s, err := parseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := s.matches(labels); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
	for _, text := range []string{"", ",", "a,", "a in", "a in ()x", "a in (b", "a b", "=b", "a==b==c", "a=b c", "a in ((b))", "-a", "a=b/c", "a>1", "!a=b", "a in (b c)"} {
		if s, err := parseSelector(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}
