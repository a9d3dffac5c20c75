package constrain_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// TestCorpus runs a folder of real schemas, ROUSE_SCHEMAS, through grammar and validator. A file is a schema, which
// is run with each of its definitions, or an object with a schema and tests, as in collections of them.
func TestCorpus(t *testing.T) {
	folder := os.Getenv("ROUSE_SCHEMAS")
	if folder == "" {
		t.Skip("ROUSE_SCHEMAS names no folder of schemas")
	}
	var files []string
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no schemas, %v", folder, err)
	}
	c := newCheck(t)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Schema json.RawMessage `json:"schema"`
			Tests  []instance      `json:"tests"`
		}
		if json.Unmarshal(data, &file) != nil || file.Schema == nil || file.Tests == nil {
			file.Schema, file.Tests = data, nil
		}
		c.schema(filepath.Base(name), file.Schema, file.Tests)
		for _, d := range definitions(file.Schema) {
			c.schema(filepath.Base(name), d, nil)
		}
	}
	c.report()
}

// definitions returns the schemas that a schema defines, each with the others that it refers to.
func definitions(source json.RawMessage) (all []json.RawMessage) {
	var top map[string]json.RawMessage
	var defs map[string]json.RawMessage
	if json.Unmarshal(source, &top) != nil || json.Unmarshal(top["definitions"], &defs) != nil {
		return nil
	}
	reference := regexp.MustCompile(`"#/definitions/([^"/]+)"`)
	escape, unescape := strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")
	for name := range defs {
		needed := map[string]json.RawMessage{name: defs[name]}
		for queue := []string{name}; len(queue) > 0; {
			for _, m := range reference.FindAllSubmatch(defs[queue[0]], -1) {
				to, err := url.PathUnescape(string(m[1]))
				to = unescape.Replace(to)
				if _, known := needed[to]; err == nil && !known && defs[to] != nil {
					needed[to] = defs[to]
					queue = append(queue, to)
				}
			}
			queue = queue[1:]
		}
		one := map[string]any{"$ref": "#/definitions/" + url.PathEscape(escape.Replace(name)), "definitions": needed}
		if top["$schema"] != nil {
			one["$schema"] = top["$schema"]
		}
		if b, err := json.Marshal(one); err == nil {
			all = append(all, b)
		}
	}
	return all
}

// instance is a value and whether a schema allows it.
type instance struct {
	Description string          `json:"description"`
	Data        json.RawMessage `json:"data"`
	Valid       bool            `json:"valid"`
}

// check counts the results of schemas.
type check struct {
	t          *testing.T
	vocabulary *constrain.Vocabulary
	walks      int

	taken, refused, other int // other: the validator does not take the schema
	texts                 int
	right, narrower       int // valid instances that the grammar allows, and does not
	forbidden             int // invalid ones that it does not allow
	judged                []judged
	reasons               map[string]int
	steps, bytes          []int64
}

func newCheck(t *testing.T) *check {
	return &check{t: t, vocabulary: constrain.NewVocabulary(english), walks: 10, reasons: map[string]int{}}
}

// schema checks one schema: texts of its grammar are valid, and invalid instances are no texts of it.
func (c *check) schema(name string, source json.RawMessage, tests []instance) {
	c.t.Helper()
	budget := constrain.NewBudget()
	var g constrain.Grammar
	form, err := constrain.Schema(c.t.Context(), budget, source)
	if err == nil {
		g, err = constrain.Compile(c.t.Context(), budget, form, c.vocabulary)
	}
	var known *constrain.FormError
	if errors.As(err, &known) {
		c.refused++
		c.reasons[reason(known.Message)]++
		return
	}
	if err != nil {
		c.t.Errorf("%s: %v", name, err)
		return
	}
	full := constrain.NewBudget()
	c.steps, c.bytes = append(c.steps, full.Steps-budget.Steps), append(c.bytes, full.Bytes-budget.Bytes)
	for _, i := range tests {
		text := compactOf(i.Data)
		takes := accepts(g, english, text)
		switch {
		case takes && !i.Valid:
			c.t.Errorf("%s: %.300s has %.200s, which is invalid: %s", name, source, text, i.Description)
		case takes:
			c.right++
		case i.Valid:
			c.narrower++
		default:
			c.forbidden++
		}
	}
	other, err := compileOther(source)
	if err != nil {
		c.other++ // look-ahead, for example, which Ajv supports
	}
	c.taken++
	j := judged{Name: name, Schema: source}
	defer func() { c.judged = append(c.judged, j) }()
	r := rand.New(rand.NewPCG(uint64(c.taken), 1))
	for range c.walks {
		text, done := speak(c.t, g, english, r, 400)
		if !done {
			continue
		}
		c.texts++
		j.Texts = append(j.Texts, text)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err == nil && other != nil {
			err = other.Validate(v)
		}
		if err != nil {
			c.t.Errorf("%s: %.1000s: %.400s: %v", name, source, text, err)
			return
		}
	}
}

// compactOf returns JSON without blanks, with unescaped characters.
func compactOf(data json.RawMessage) string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(data)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return string(data)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// compileOther compiles a schema with the other validator. It checks formats, and reads no other documents.
func compileOther(source json.RawMessage) (s *jsonschema.Schema, err error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(source)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
}

// reason returns a refusal without the details of one schema.
func reason(message string) string {
	words := strings.Fields(message)
	for i, w := range words {
		if strings.ContainsAny(w, `"`) || strings.Trim(w, "0123456789") == "" {
			words[i] = "…"
		}
	}
	return strings.Join(words[:min(len(words), 14)], " ")
}

func (c *check) report() {
	c.t.Helper()
	type count struct {
		reason string
		n      int
	}
	var all []count
	for r, n := range c.reasons {
		all = append(all, count{r, n})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].n > all[j].n })
	for _, r := range all[:min(len(all), 60)] {
		c.t.Logf("%6d refused: %s", r.n, r.reason)
	}
	for _, l := range [][]int64{c.steps, c.bytes} {
		sort.Slice(l, func(i, j int) bool { return l[i] < l[j] })
		if n := len(l); n > 0 {
			c.t.Logf("budget: half take %d, 99 %% %d, 99.9 %% %d, all %d", l[n/2], l[n*99/100], l[n*999/1000], l[n-1])
		}
	}
	c.t.Logf("%d taken, %d refused, %d that the validator refuses; %d texts; valid instances: %d have a text, %d have none; %d invalid ones have none",
		c.taken, c.refused, c.other, c.texts, c.right, c.narrower, c.forbidden)
	secondOpinion(c.t, c.judged)
}
