package jinja_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/jinja"
)

// now is the time that templates see in tests.
var now = time.Date(2025, 7, 4, 9, 5, 3, 0, time.UTC)

// python is Debian's Python, which has the packages.
const python = "/usr/bin/python3"

// oracle is Python's Jinja2 in a separate process (testdata/oracle.py).
type oracle struct {
	in  io.Writer
	out *bufio.Reader
}

// newOracle starts one; without Python's Jinja2 the test is skipped.
func newOracle(t testing.TB) *oracle {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import jinja2").CombinedOutput(); err != nil {
		t.Skipf("%s has no Jinja2 to compare with (install python3-jinja2): %v %s", python, err, out)
	}
	cmd := exec.CommandContext(context.Background(), python, "testdata/oracle.py")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process of Python's Jinja2: %v", err)
		}
	})
	return &oracle{in, bufio.NewReader(out)}
}

// answer is the result of a rendering: a text, a refusal by raise_exception, or an error.
type answer struct {
	Text    *string `json:"text"`
	Refused *string `json:"refused"`
	Error   string  `json:"error"`
}

func (a answer) String() string {
	switch {
	case a.Text != nil:
		return "text: " + *a.Text
	case a.Refused != nil:
		return "refused: " + *a.Refused
	}
	return "error: " + a.Error
}

// render renders with Python. variables is a JSON object.
func (o *oracle) render(t testing.TB, template, variables string) answer {
	t.Helper()
	line, err := json.Marshal(map[string]any{"template": template, "variables": json.RawMessage(variables)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	reply, err := o.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(reply, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// ours renders the template with this package. limit is set if one of our own limits ended the rendering.
func ours(t testing.TB, template, variables string) (a answer, limit error) {
	t.Helper()
	tmpl, err := jinja.Parse(template)
	if err != nil {
		return answer{Error: "parse: " + err.Error()}, nil
	}
	vars, err := variablesOf(variables)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tmpl.Render(t.Context(), vars, jinja.Options{Now: now})
	var raised *jinja.RaisedError
	var budget *jinja.BudgetError
	switch {
	case errors.As(err, &raised):
		return answer{Refused: &raised.Reason}, nil
	case errors.As(err, &budget):
		return answer{Error: err.Error()}, err
	case err != nil:
		return answer{Error: err.Error()}, nil
	}
	return answer{Text: &text}, nil
}

// variablesOf converts a JSON object to variables.
func variablesOf(object string) (map[string]any, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &raw); err != nil {
		return nil, err
	}
	vars := map[string]any{}
	for name, text := range raw {
		v, err := jinja.FromJSON(string(text), nil)
		if err != nil {
			return nil, err
		}
		vars[name] = v
	}
	return vars, nil
}
