package runtime_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

func TestFailures(t *testing.T) {
	raw, err := os.ReadFile("testdata/failure.txt")
	if err != nil {
		t.Fatal(err)
	}
	r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
	var path, body string
	var status, cases int
	for i, line := range strings.Split(string(raw), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || kind == "#":
		case strings.HasPrefix(line, "/"):
			if path, body = kind, ""; rest != "" {
				status, err = strconv.Atoi(rest)
			}
			if err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
		case kind == "<":
			body = rest
		case kind == "=", kind == ">":
			cases++
			want := rest
			if kind == "=" {
				want = body
			}
			if got := strings.TrimSpace(string(r.Failure(path, status, []byte(body)))); got != want {
				t.Errorf("line %d: %s %d\n got %s\nwant %s", i+1, path, status, got, want)
			}
		default:
			t.Fatalf("line %d: %q is no line of a transcript", i+1, line)
		}
	}
	if cases < 20 {
		t.Errorf("%d cases, want those of the file", cases)
	}
}

// For any answer of a server, a client of the OpenAI API gets a readable error.
func FuzzFailure(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"a","code":1}}`, `{"error":"a"}`, `{"message":"a"}`, `{"detail":[{"loc":["body",1,"x"],"msg":"m"}]}`, `<`, "", "\xff"} {
		f.Add(400, s)
	}
	r := adapter(f, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
	f.Fuzz(func(t *testing.T, status int, body string) {
		var answer struct {
			Error struct {
				Message *string `json:"message"`
				Type    *string `json:"type"`
				Param   *string `json:"param"`
				Code    *string `json:"code"`
			} `json:"error"`
		}
		got := r.Failure("/v1/completions", status, []byte(body))
		if err := json.Unmarshal(got, &answer); err != nil || answer.Error.Message == nil || answer.Error.Type == nil {
			t.Errorf("%q becomes %q: %v", body, got, err)
		}
	})
}
