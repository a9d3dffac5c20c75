package activator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestModelPages: Anthropic's clients page through the models; OpenAI's get all of them.
func TestModelPages(t *testing.T) {
	b := startBench(t, nil)
	for _, name := range []api.ModelName{"a", "b", "c", "d"} {
		b.a.PutFunction(api.Function{Name: api.FunctionName("default/" + name), Model: name}.WithDefaults())
	}
	for query, want := range map[string]string{
		"":                          "abcd a d false",
		"?limit=3":                  "abc a c true",
		"?limit=3&after_id=c":       "d d d false",
		"?limit=2&before_id=d":      "bc b c true",
		"?limit=2&before_id=":       "ab a b true",
		"?limit=2&before_id=c":      "ab a b false",
		"?limit=4&after_id=a":       "bcd b d false",
		"?limit=1&after_id=d":       "   false",
		"?limit=0":                  "limit is ",
		"?limit=many":               "limit is ",
		"?limit=1001":               "limit is ",
		"?after_id=nope":            "there is no model ",
		"?after_id=a&before_id=c":   "before_id and after_id are both there: want one of them",
		"?before_id=nope&after_id=": "there is no model ",
	} {
		resp, body := b.get("/v1/models" + query)
		var list struct {
			Data        []model
			First, Last string
			More        *bool
			Error       struct{ Message string }
		}
		body = strings.NewReplacer("first_id", "first", "last_id", "last", "has_more", "more").Replace(body)
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%s: %s %v", query, body, err)
		}
		got := list.Error.Message
		for _, m := range list.Data {
			got += string(m.ID)
		}
		if list.More != nil {
			got += " " + list.First + " " + list.Last + map[bool]string{true: " true", false: " false"}[*list.More]
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s %q, want %q", query, resp.Status, got, want)
		}
	}
}
