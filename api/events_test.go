package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"github.com/rouse-dev/rouse/api"
)

var update = flag.Bool("update", false, "write the documents that are made from code")

// events lists all event types with their senders and occasions.
var events = []struct {
	name, from, when string
	data             any
}{
	{api.EventDemand, "an activator", "how many requests wait for a function and run, on each change, and again while there are any", api.Demand{}},
	{api.EventInstanceState, "an instance", "its state, memory and load, on each change", api.InstanceStatus{}},
	{api.EventDecision, "the autoscaler", "a decision, with its reason", api.Decision{}},
	{api.EventWoken, "an activator", "a wake has ended: its part of the trace", api.WakeTrace{}},
	{api.EventUsage, "an activator", "what was used through it, since a time that it names", api.Usage{}},
	{api.EventFunction, "who declares it", "a function was declared, or has changed", api.Function{}},
	{api.EventFunctionGone, "who removes it", "a function was removed", api.Function{}},
}

// TestUseThatCannotBe: sums of what is accepted do not overflow, and can be written as JSON.
func TestUseThatCannotBe(t *testing.T) {
	for _, u := range []api.Use{{}, {Requests: 1 << 62}, {Input: 1 << 62}, {Output: 1 << 62}, {GPUSeconds: 1e300}, {Input: -1}, {GPUSeconds: -1e-9}} {
		bad := u != api.Use{}
		u.Begun = time.Unix(1, 0)
		if err := (api.Usage{Function: "default/m", Activator: "a", Uses: []api.Use{u}}).Check(); (err != nil) != bad {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

// TestEventsAreDocumented compares docs/events.md and the schemas of the event data with the types.
func TestEventsAreDocumented(t *testing.T) {
	const dir = "../docs/events"
	var page strings.Builder
	page.WriteString(`# CloudEvents

The parts of Rouse tell each other what they see and decide by CloudEvents 1.0 with JSON data, and copy them to ` + "`K_SINK`" + `
([reference](reference.md)). The subject is ` + "`NAMESPACE/FUNCTION`" + `, the source the path of the sender. Data are levels, never
differences, so an event that is lost or comes twice does no harm. Durations are nanoseconds. Later versions may add fields. This page is made from ` + "`api`" + ` by ` + "`make keys`" + `.

| type | from | says | data |
|---|---|---|---|
`)
	for _, e := range events {
		fmt.Fprintf(&page, "| `%s` | %s | %s | [schema](events/%s.json) |\n", e.name, e.from, e.when, e.name)
		compareFile(t, filepath.Join(dir, e.name+".json"), schemaOf(t, e.name, e.data))
	}
	compareFile(t, "../docs/events.md", page.String())
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != len(events) {
		t.Errorf("%s has %d files, want %d: %v", dir, len(files), len(events), err)
	}
}

// schemaOf returns the JSON schema of an event's data; descriptions are the fields' comments.
func schemaOf(t *testing.T, name string, data any) string {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: true,
		Mapper: func(of reflect.Type) *jsonschema.Schema {
			if of == reflect.TypeFor[time.Duration]() {
				return &jsonschema.Schema{Type: "integer", Description: "nanoseconds"}
			}
			return nil
		},
	}
	if err := r.AddGoComments("github.com/rouse-dev/rouse/api", "."); err != nil {
		t.Fatal(err)
	}
	s := r.Reflect(data)
	mayLack(s, reflect.TypeOf(data))
	for name, def := range s.Definitions {
		if of := typeCalled(reflect.TypeOf(data), name); of != nil {
			mayLack(def, of)
		}
	}
	s.ID, s.Title = "", name
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	return text.String() + "\n"
}

// mayLack removes omitzero fields from the required ones: the reflector knows only omitempty.
func mayLack(s *jsonschema.Schema, of reflect.Type) {
	for f := range fields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "omitzero") {
			s.Required = slices.DeleteFunc(s.Required, func(n string) bool { return n == name })
		}
	}
}

// fields yields the fields of a struct; none for other types.
func fields(of reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for k := 0; of.Kind() == reflect.Struct && k < of.NumField(); k++ {
			if !yield(of.Field(k)) {
				return
			}
		}
	}
}

// typeCalled finds a type by name among the types that a type contains; nil: none.
func typeCalled(of reflect.Type, name string) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Name() == name || of == reflect.TypeFor[time.Time]() {
		return of
	}
	for f := range fields(of) {
		if found := typeCalled(f.Type, name); found != nil && found.Name() == name {
			return found
		}
	}
	return nil
}

// compareFile compares a generated file with want, or writes it.
func compareFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `make keys`", err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date, run `make keys` (-want +got):\n%s", path, diff)
	}
}
