package api

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

type Embedded struct {
	Limit int `json:"limit"`
}

// TestDecode checks that errors name the field, what was there and what is wanted, without types of Go.
func TestDecode(t *testing.T) {
	for body, want := range map[string]string{
		`{"list":[{"limit":"x"}]}`:          "list.limit is a JSON string: want a whole number",
		`{"list":[{"limit":1.5}]}`:          "list.limit is a JSON number 1.5: want a whole number",
		`{"list":5}`:                        "list is a JSON number: want a list",
		`{"names":[5]}`:                     "names is a JSON number: want a string",
		`{"on":"yes"}`:                      "on is a JSON string: want true or false",
		`{"rate":"fast"}`:                   "rate is a JSON string: want a number",
		`[]`:                                "it is a JSON array: want an object",
		``:                                  "it is not whole: its JSON ends too early",
		`{"list"`:                           "it is not whole: its JSON ends too early",
		`{"list":nope}`:                     "it is not JSON: invalid character 'o' in literal null (expecting 'u') at byte 10",
		`{"lisst":[]}`:                      `unknown field "lisst"`,
		`{"end":"tomorrow"}`:                `tomorrow is no time: want one such as 2030-01-02T03:04:05Z`,
		`{"end":5}`:                         `a time is not a string: want one such as "2030-01-02T03:04:05Z"`,
		`{} {}`:                             "something follows the JSON value: remove it",
		`{"list":[{"limit":1}],"names":[]}`: "",
	} {
		var to struct {
			List  []struct{ Embedded } `json:"list"`
			Names []ModelName          `json:"names"`
			On    bool                 `json:"on"`
			Rate  float64              `json:"rate"`
			End   time.Time            `json:"end"`
		}
		got := ""
		if err := Decode(strings.NewReader(body), &to); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
}

func TestExplainYAML(t *testing.T) {
	var to struct {
		N    int
		Wait time.Duration
		List []ModelName
		Map  map[string]string
	}
	err := yaml.Unmarshal([]byte("n: x\nwait: 5y\nlist: {a: b}\nmap: [1]\n"), &to)
	const want = "line 1: `x` is of the YAML type str: want a whole number\n  line 2: `5y` is of the YAML type str: want a duration with a unit, such as 30s\n" +
		"  line 3: it is of the YAML type map: want a list\n  line 4: it is of the YAML type seq: want an object"
	if got := Explain(err); got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	other := errors.New("other")
	if Explain(other) != other || Explain(json.Unmarshal([]byte("{}"), &to)) != nil {
		t.Error("other errors are changed")
	}
}
