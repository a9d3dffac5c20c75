package jobs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

type line struct {
	at    int64
	size  int32
	model int32 // index in input.models
}

type input struct {
	lines  []line
	models []string
}

const (
	maxFaults = 100
	maxFault  = 256
)

type request struct {
	ID     *string         `json:"custom_id"`
	Method *string         `json:"method"`
	URL    *string         `json:"url"`
	Body   json.RawMessage `json:"body"`
}

const maxID = 512

type checker struct {
	cfg      Config
	endpoint string
	in       input
	faults   []store.Fault
	models   map[string]int32
	seed     maphash.Seed
	ids      map[uint64]int // hash of a custom_id → line
}

func newChecker(endpoint string, cfg Config) *checker {
	return &checker{cfg: cfg, endpoint: endpoint, models: map[string]int32{}, seed: maphash.MakeSeed(), ids: map[uint64]int{}}
}

// check reads a whole input, and returns its errors by line. It keeps none of its text.
func check(r io.Reader, endpoint string, cfg Config) (input, []store.Fault, error) {
	c := newChecker(endpoint, cfg)
	var at, next int64
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, min(64<<10, cfg.MaxLine+2)), cfg.MaxLine+2) // and the end of the line
	lines.Split(func(data []byte, end bool) (int, []byte, error) {
		n, token, err := bufio.ScanLines(data, end)
		if token != nil {
			at = next
		}
		next += int64(n)
		return n, token, err
	})
	number := 0
	for lines.Scan() && len(c.faults) < maxFaults {
		number++
		text := lines.Bytes()
		if mark := []byte("\ufeff"); number == 1 && bytes.HasPrefix(text, mark) { // a byte order mark
			text, at = text[len(mark):], at+int64(len(mark))
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(c.in.lines) == cfg.MaxLines {
			c.addFault("too_many_tasks", number, "", "the file has more than %d requests: make several batches of it", cfg.MaxLines)
			break
		}
		c.checkLine(number, at, text)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		c.addFault("line_too_long", number+1, "", "the line has more than %d bytes", cfg.MaxLine)
	case err != nil:
		return input{}, nil, fmt.Errorf("read the input: %w", err)
	case len(c.in.lines) == 0 && len(c.faults) == 0:
		c.addFault("empty_file", 0, "", "the file has no requests")
	}
	return c.in, c.faults, nil
}

func (c *checker) addFault(code string, line int, param, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.faults = append(c.faults, store.Fault{Code: code, Line: line, Param: param, Message: strings.ToValidUTF8(text[:min(len(text), maxFault)], "")})
}

func (c *checker) checkLine(number int, at int64, text []byte) {
	var q request
	if err := json.Unmarshal(text, &q); err != nil {
		c.addFault("invalid_json_line", number, "", "the line is no such JSON object: %v", api.Explain(err))
		return
	}
	switch {
	case q.ID == nil || *q.ID == "":
		c.addFault("missing_required_parameter", number, "custom_id", "custom_id is missing: want a text that no other line has")
	case len(*q.ID) > maxID:
		c.addFault("invalid_custom_id", number, "custom_id", "custom_id has %d bytes: want %d at most", len(*q.ID), maxID)
	case q.Method == nil || *q.Method != "POST":
		c.addFault("invalid_method", number, "method", "method is %.40q: want POST", text1(q.Method))
	case q.URL == nil || *q.URL != c.endpoint:
		c.addFault("invalid_url", number, "url", "url is %.80q: want %s, the endpoint of the batch", text1(q.URL), c.endpoint)
	case len(q.Body) == 0 || q.Body[0] != '{':
		c.addFault("missing_required_parameter", number, "body", "body is missing: want a JSON object")
	default:
		c.checkBody(number, at, text, &q)
	}
}

func (c *checker) checkBody(number int, at int64, text []byte, q *request) {
	asked, bad := parse.JSON(jsonfield.Open(q.Body))
	switch {
	case bad != nil:
		c.addFault("invalid_request", number, "body", "%s", bad.Message)
		return
	case asked.Model == "":
		c.addFault("missing_required_parameter", number, "body.model", "model is missing")
		return
	case asked.Stream:
		c.addFault("streaming_unsupported", number, "body.stream", "an answer in a file is no stream: leave stream out")
		return
	}
	hash := maphash.String(c.seed, *q.ID)
	if other := c.ids[hash]; other > 0 {
		c.addFault("duplicate_custom_id", number, "custom_id", "custom_id %.80q is that of line %d too: want one that no other line has", *q.ID, other)
		return
	}
	c.ids[hash] = number
	model, known := c.models[asked.Model]
	if !known {
		if len(c.in.models) == c.cfg.MaxModels {
			c.addFault("too_many_models", number, "body.model", "the file asks more than %d models: make several batches of it", c.cfg.MaxModels)
			return
		}
		model = int32(len(c.in.models))
		c.models[asked.Model] = model
		c.in.models = append(c.in.models, asked.Model)
	}
	c.in.lines = append(c.in.lines, line{at: at, size: int32(len(text)), model: model})
}

func text1(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
