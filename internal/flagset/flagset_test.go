package flagset_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/internal/flagset"
)

type name string

type inner struct {
	Name name `flag:"name,n" help:"the <name> of it"`
}

type options struct {
	inner

	Deep struct {
		Wait time.Duration `flag:"wait" help:"how <long>"`
	}
	On     bool          `flag:"on" help:"on or off"`
	Count  int           `flag:"count" help:"how <many>"`
	Rate   float64       `flag:"rate" help:"a number"`
	Tail   int           `flag:"tail" least:"-1" help:"how <many>"`
	Grace  time.Duration `flag:"grace" least:"1ms" help:"how <long>"`
	List   []string      `flag:"list,l" help:"a value (repeatable)"`
	Commas []string      `flag:"commas" split:"" help:"values"`
	Other  map[string]string
}

// TestAdd checks that each field is set by its flag, and that defaults are the fields' values.
func TestAdd(t *testing.T) {
	var o options
	o.Name, o.Deep.Wait, o.Commas = "usual", time.Minute, []string{"x"}
	s := pflag.NewFlagSet("", pflag.ContinueOnError)
	flagset.Add(s, &o)
	if err := s.Parse(nil); err != nil || o.Name != "usual" || o.Deep.Wait != time.Minute {
		t.Fatalf("without flags: %+v (%v)", o, err)
	}
	if err := s.Set("wait", "soon"); err == nil || !strings.Contains(err.Error(), "such as 90s, 10m, 12h, 3d or 2w") {
		t.Errorf("--wait soon: got %v, want an error with units", err)
	}
	for _, wrong := range [][3]string{
		{"wait", "-1s", "want 0 or more"}, {"count", "-1", "want 0 or more"}, {"rate", "NaN", "want 0 or more"},
		{"tail", "-2", "want -1 or more"}, {"grace", "0", "want 1ms or more"},
	} {
		if err := s.Set(wrong[0], wrong[1]); err == nil || !strings.Contains(err.Error(), wrong[2]) {
			t.Errorf("--%s %s: got %v, want an error with %q", wrong[0], wrong[1], err, wrong[2])
		}
	}
	if f := s.Lookup("name"); f.Usage != "the `name` of it" || f.DefValue != "usual" || f.Shorthand != "n" {
		t.Fatalf("--name is %+v", f)
	}
	err := s.Parse([]string{"-n", "a", "--wait", "2d3s", "--on", "--count", "3", "--rate", "0.5", "--tail", "-1", "--grace", "2ms", "-l", "a,b", "-l", "c", "--commas", "a,b", "--commas", "c"})
	want := options{inner: inner{"a"}, On: true, Count: 3, Rate: 0.5, Tail: -1, Grace: 2 * time.Millisecond, List: []string{"a,b", "c"}, Commas: []string{"a", "b", "c"}}
	want.Deep.Wait = 48*time.Hour + 3*time.Second
	if err != nil || !reflect.DeepEqual(o, want) {
		t.Fatalf("got %+v (%v), want %+v", o, err, want)
	}
}

// TestAddRefuses checks that a field of a type that is no flag ends the program.
func TestAddRefuses(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a map was taken")
		}
	}()
	flagset.Add(pflag.NewFlagSet("", pflag.ContinueOnError), &struct {
		M map[string]string `flag:"m"`
	}{})
}
