package simulate

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Arrival is one request of a trace.
type Arrival struct {
	// since the trace's beginning
	At    time.Duration
	Model api.ModelName
	// in tokens
	Prompt, Output int
}

// Trace is requests in the order of their arrival.
type Trace []Arrival

// Models lists the models by name.
func (t Trace) Models() []api.ModelName {
	seen := make(map[api.ModelName]bool)
	var names []api.ModelName
	for _, a := range t {
		if !seen[a.Model] {
			seen[a.Model] = true
			names = append(names, a.Model)
		}
	}
	slices.Sort(names)
	return names
}

// Length returns the time of the last arrival.
func (t Trace) Length() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1].At
}

// Bounds of a trace.
const (
	mostTokens = 10_000_000
	mostRows   = 50_000_000
	mostTime   = 366 * 24 * time.Hour
)

var header = []string{"time", "model", "prompt_tokens", "output_tokens"}

type shape struct {
	name                        string
	time, model, prompt, output int // columns; model below 0: none
	// failed is a column that is 0 in rows to skip; below 0: none.
	failed int
}

// shapeOf recognises a header. Public traces have their published names:
//
//   - Azure LLM inference traces 2023 and 2024 (github.com/Azure/AzurePublicDataset):
//     TIMESTAMP,ContextTokens,GeneratedTokens
//   - BurstGPT (github.com/HPMLL/BurstGPT): Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type; rows
//     without response tokens are failures
func shapeOf(head []string) (shape, error) {
	at := func(names ...string) int {
		return slices.IndexFunc(head, func(h string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(h)))
		})
	}
	s := shape{failed: -1, time: at("time", "timestamp"), model: at("model"),
		prompt: at("prompt_tokens", "contexttokens", "request tokens"),
		output: at("output_tokens", "generatedtokens", "response tokens")}
	switch {
	case at("contexttokens") >= 0:
		s.name = "Azure"
	case at("request tokens") >= 0:
		s.name, s.failed = "BurstGPT", s.output
	default:
		s.name = "own"
	}
	if s.time < 0 || s.prompt < 0 || s.output < 0 || s.model < 0 && s.name != "Azure" {
		return s, fmt.Errorf("line 1: the header is %q: want %s, or that of an Azure LLM inference trace (TIMESTAMP,ContextTokens,GeneratedTokens) or of BurstGPT (Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type)",
			strings.Join(head, ","), strings.Join(header, ","))
	}
	return s, nil
}

// ReadTrace reads a trace as CSV; shapeOf has the headers. Times are seconds, durations such as "1m30s", or dates,
// relative to the first. A trace without models is dealt to spread models, each with twice as many requests as the
// next. Errors name the line.
func ReadTrace(r io.Reader, spread int) (Trace, error) {
	in := csv.NewReader(skipMark(r))
	in.ReuseRecord = true
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the trace is empty: want a line with " + strings.Join(header, ","))
	}
	if err != nil {
		return nil, err
	}
	s, err := shapeOf(head)
	if err != nil {
		return nil, err
	}
	var t Trace
	var zero time.Duration
	ds := dealer{n: max(1, spread)}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		a, skip, err := s.arrival(row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if skip {
			continue
		}
		if len(t) == 0 {
			zero = a.At
		}
		if s.model < 0 {
			a.Model = ds.deal()
		}
		if a.At -= zero; a.At > mostTime || a.At < -mostTime {
			return nil, fmt.Errorf("line %d: it is %s after the first: want at most a year", line, a.At)
		}
		if t = append(t, a); len(t) > mostRows {
			return nil, fmt.Errorf("line %d: want at most %d requests", line, mostRows)
		}
	}
	if len(t) == 0 {
		return nil, errors.New("the trace has a header and no requests")
	}
	slices.SortStableFunc(t, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	if first := t[0].At; first < 0 { // the rows were not in order
		for k := range t {
			t[k].At -= first
		}
	}
	return t, nil
}

// skipMark skips the byte order mark that spreadsheets write.
func skipMark(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if start, err := b.Peek(3); err == nil && string(start) == "\xef\xbb\xbf" {
		_, _ = b.Discard(3)
	}
	return b
}

func (s shape) arrival(row []string) (a Arrival, skip bool, err error) {
	if a.At, err = parseTime(row[s.time]); err != nil {
		return a, false, err
	}
	if a.Prompt, err = parseTokens("prompt", row[s.prompt]); err != nil {
		return a, false, err
	}
	if a.Output, err = parseTokens("output", row[s.output]); err != nil {
		return a, false, err
	}
	if s.failed >= 0 && a.Output == 0 {
		return a, true, nil
	}
	if s.model >= 0 {
		name := strings.TrimSpace(row[s.model])
		if name == "" || len(name) > 200 {
			return a, false, fmt.Errorf("model %q: want a name of 1 to 200 bytes", name)
		}
		a.Model = api.ModelName(strings.Clone(name))
	}
	return a, false, nil
}

func parseTokens(what, s string) (int, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64) // some files have 12.0
	if err != nil || v < 0 || v > mostTokens || v != math.Trunc(v) {
		return 0, fmt.Errorf("%s tokens %q: want a whole number from 0 to %d", what, s, mostTokens)
	}
	return int(v), nil
}

var layouts = []string{"2006-01-02 15:04:05.999999999", time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00"}

func parseTime(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(v) || math.Abs(v) > 9e9 {
			return 0, fmt.Errorf("time %q: want seconds, at most 9e9", s)
		}
		return time.Duration(v * float64(time.Second)), nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	for _, l := range layouts {
		if at, err := time.Parse(l, s); err == nil && at.Year() >= 1970 && at.Year() < 2200 {
			return time.Duration(at.UnixNano()), nil
		}
	}
	return 0, fmt.Errorf("time %q: want seconds (12.5), a duration (1m30s) or a date (2023-11-16 18:15:46.6805900)", s)
}

// dealer assigns models in turn: of seven requests the first model gets four, the second two.
type dealer struct{ n, count int }

func (d *dealer) deal() api.ModelName {
	d.count++
	k := 0
	for c := d.count; c%2 == 0 && k < d.n-1; c /= 2 {
		k++
	}
	return modelName(k)
}

func modelName(k int) api.ModelName { return api.ModelName(fmt.Sprintf("m%03d", k)) }

// Write writes t as CSV, in Rouse's own format.
func (t Trace) Write(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	for _, a := range t {
		row := []string{strconv.FormatFloat(a.At.Seconds(), 'f', 3, 64), string(a.Model), strconv.Itoa(a.Prompt), strconv.Itoa(a.Output)}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
