package constrain_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestMaskBench runs MaskBench's schemas and instances (github.com/guidance-ai/jsonschemabench,
// maskbench/data) through this package and llguidance, file by file. It fails if an invalid
// instance is accepted.
//
//	ROUSE_MASKBENCH          the folder of the files
//	ROUSE_MASKBENCH_EVERY    every n-th file (1)
//	ROUSE_MASKBENCH_VOCAB    a GGUF file with Llama 3's tokenizer, as in MaskBench
//	ROUSE_MASKBENCH_PYTHON   a Python with llguidance and numpy
//	ROUSE_MASKBENCH_OUT      the path of the report
func TestMaskBench(t *testing.T) {
	folder := os.Getenv("ROUSE_MASKBENCH")
	if folder == "" {
		t.Skip("ROUSE_MASKBENCH names no folder of MaskBench's data")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files, %v", folder, err)
	}
	every, err := strconv.Atoi(os.Getenv("ROUSE_MASKBENCH_EVERY"))
	if err != nil {
		every = 1
	}
	f, err := gguf.Open(os.Getenv("ROUSE_MASKBENCH_VOCAB"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := tokenizer.ReadVocab(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	b := maskBench{t: t, tok: tok, vocabulary: constrain.NewVocabulary(tok), peer: startPeer(t, v, tok), ours: &masksSide{}, theirs: &masksSide{}}
	b.mask = make([]uint64, constrain.Words(tok.Size()))
	began := time.Now()
	for i := 0; i < len(files); i += every {
		b.file(files[i])
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Log(err)
	}
	report := map[string]any{
		"command":    "ROUSE_MASKBENCH=FOLDER ROUSE_MASKBENCH_EVERY=N ROUSE_MASKBENCH_VOCAB=FILE.gguf ROUSE_MASKBENCH_PYTHON=PYTHON ROUSE_MASKBENCH_OUT=FILE.json go test -count=1 -timeout 0 -run TestMaskBench ./engine/constrain",
		"at":         began.UTC().Truncate(time.Second),
		"what":       "Each file of MaskBench (guidance-ai/jsonschemabench, ba103c73) in this package, then in llguidance by its Python package, in one run. A step is a mask and an accepted token. Where both compile a schema and give the same answers for its instances, perToken is the time of compiling and of all steps over the number of tokens. All times are in microseconds.",
		"machine":    fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
		"llguidance": b.peer.version, "vocabulary": tok.Size(), "every": every, "files": (len(files) + every - 1) / every, "load": string(bytes.TrimSpace(load)),
		"rouse": b.ours.report(), "peer": b.theirs.report(),
		"both":         map[string]any{"files": b.alike, "tokens": b.tokens, "rouse": b.sums[0].report(b.tokens), "peer": b.sums[1].report(b.tokens)},
		"slowestFiles": b.slowest(), "missed": b.missed,
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if out := os.Getenv("ROUSE_MASKBENCH_OUT"); out != "" {
		if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s", text)
	if b.ours.InvalidTaken > 0 {
		t.Errorf("%d invalid instances were taken", b.ours.InvalidTaken)
	}
}

// maskBench is one run.
type maskBench struct {
	t            *testing.T
	tok          *tokenizer.Tokenizer
	vocabulary   *constrain.Vocabulary
	mask         []uint64
	peer         *peer
	ours, theirs *masksSide
	alike        int // files that both compile and answer the same
	tokens       int // in them
	sums         [2]timing
	files        []fileTimes
	missed       []string
}

// fileTimes are the microseconds of one file.
type fileTimes struct {
	File         string  `json:"file"`
	Rouse, Peer  float64 `json:"-"`
	PerToken     float64 `json:"rousePerToken"`
	PeerPerToken float64 `json:"peerPerToken"`
	LongestStep  float64 `json:"rouseLongestStep"`
	PeerLongest  float64 `json:"peerLongestStep"`
}

// timing is the time of compiling and of steps, in nanoseconds.
type timing struct{ compile, steps []int64 }

func (s *timing) add(o timing) {
	s.compile, s.steps = append(s.compile, o.compile...), append(s.steps, o.steps...)
}

func (s *timing) report(tokens int) map[string]any {
	return map[string]any{"compile": spread(s.compile), "step": spread(s.steps), "perToken": micros(sum(s.compile)+sum(s.steps)) / float64(max(tokens, 1))}
}

// masksSide counts the answers of one implementation.
type masksSide struct {
	timing
	Compiled, Refused, ValidTaken, ValidMissed, InvalidTaken, InvalidRefused, Passing int
}

func (s *masksSide) report() map[string]any {
	return map[string]any{
		"compiled": s.Compiled, "refused": s.Refused, "validTaken": s.ValidTaken, "validMissed": s.ValidMissed,
		"invalidTaken": s.InvalidTaken, "invalidRefused": s.InvalidRefused, "filesAllRight": s.Passing,
		"compile": spread(s.compile), "step": spread(s.steps),
	}
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

func micros(n int64) float64 { return float64(n/10) / 100 }

func spread(list []int64) map[string]float64 {
	slices.Sort(list)
	n := len(list)
	if n == 0 {
		return nil
	}
	return map[string]float64{
		"mean": micros(sum(list) / int64(n)), "p50": micros(list[n/2]), "p90": micros(list[n*9/10]), "p99": micros(list[n*99/100]),
		"p99.9": micros(list[n*999/1000]), "max": micros(list[n-1]),
	}
}

// run is one implementation's result for a file: the answers to its instances, or the reason for none.
type run struct {
	Error   string  `json:"error"`
	Compile int64   `json:"compile"`
	Steps   []int64 `json:"steps"`
	Takes   []bool  `json:"takes"`
}

func (b *maskBench) file(path string) {
	name := filepath.Base(path)
	var file struct {
		Schema string   `json:"schema"`
		Texts  []string `json:"texts"`
		Valid  []bool   `json:"valid"`
	}
	b.peer.ask(b.t, path, &file)
	tests := make([][]int32, len(file.Texts))
	for i, text := range file.Texts {
		tests[i] = b.tok.Encode(text, false)
	}
	ours := b.measure([]byte(file.Schema), tests)
	var theirs run
	line, err := json.Marshal(tests)
	if err != nil {
		b.t.Fatal(err)
	}
	b.peer.ask(b.t, string(line), &theirs)
	b.ours.count(ours, file.Valid)
	b.theirs.count(theirs, file.Valid)
	for i, valid := range file.Valid {
		if ours.Error == "" && ours.Takes[i] && !valid {
			b.t.Errorf("%s takes instance %d, which is invalid: %.300s", name, i, file.Texts[i])
		}
		if theirs.Error == "" && theirs.Takes[i] && valid && (ours.Error != "" || !ours.Takes[i]) {
			why := ours.Error
			if why == "" {
				why = "instance " + strconv.Itoa(i)
			}
			b.missed = append(b.missed, name+": "+why)
			break
		}
	}
	if len(ours.Steps) == 0 || theirs.Error != "" || !slices.Equal(ours.Takes, theirs.Takes) {
		return
	}
	b.alike++
	n := len(ours.Steps)
	b.tokens += n
	b.sums[0].add(timing{[]int64{ours.Compile}, ours.Steps})
	b.sums[1].add(timing{[]int64{theirs.Compile}, theirs.Steps})
	r, p := micros(ours.Compile+sum(ours.Steps)), micros(theirs.Compile+sum(theirs.Steps))
	b.files = append(b.files, fileTimes{name, r, p, r / float64(n), p / float64(n), micros(slices.Max(ours.Steps)), micros(slices.Max(theirs.Steps))})
}

func (s *masksSide) count(r run, valid []bool) {
	if r.Error != "" {
		s.Refused++
		return
	}
	s.Compiled++
	s.add(timing{[]int64{r.Compile}, r.Steps})
	right := true
	for i, takes := range r.Takes {
		right = right && takes == valid[i]
		switch {
		case takes && valid[i]:
			s.ValidTaken++
		case takes:
			s.InvalidTaken++
		case valid[i]:
			s.ValidMissed++
		default:
			s.InvalidRefused++
		}
	}
	if right {
		s.Passing++
	}
}

// slowest returns the files that take the most more time than the peer's.
func (b *maskBench) slowest() []fileTimes {
	slices.SortFunc(b.files, func(x, y fileTimes) int { return int(1000 * ((y.Rouse - y.Peer) - (x.Rouse - x.Peer))) })
	return b.files[:min(len(b.files), 12)]
}

// measure runs this package.
func (b *maskBench) measure(schema []byte, tests [][]int32) (r run) {
	began := time.Now()
	budget := constrain.NewBudget()
	var g constrain.Grammar
	form, err := constrain.Schema(context.Background(), budget, schema)
	if err == nil {
		g, err = constrain.Compile(context.Background(), budget, form, b.vocabulary)
	}
	r.Compile = int64(time.Since(began))
	if err != nil {
		if _, known := errors.AsType[*constrain.FormError](err); !known {
			b.t.Fatal(err)
		}
		return run{Error: err.Error()}
	}
	for _, tokens := range tests {
		m, takes := g.Matcher(), true
		for _, token := range tokens {
			began := time.Now()
			m.Mask(b.mask)
			takes = b.mask[token>>6]>>(token&63)&1 != 0
			if takes && m.Accept(token) != nil {
				takes = false
			}
			r.Steps = append(r.Steps, int64(time.Since(began)))
			if !takes {
				break
			}
		}
		if takes {
			end, _ := b.tok.End()
			m.Mask(b.mask)
			takes = b.mask[end>>6]>>(end&63)&1 != 0
		}
		r.Takes = append(r.Takes, takes)
	}
	return r
}

// peer is the process of the other implementation: it answers each line with a line.
type peer struct {
	in      io.Writer
	out     *bufio.Reader
	version string
}

func startPeer(t *testing.T, v tokenizer.Vocab, tok *tokenizer.Tokenizer) *peer {
	cmd := exec.CommandContext(context.Background(), os.Getenv("ROUSE_MASKBENCH_PYTHON"), "testdata/maskbench.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("ROUSE_MASKBENCH_PYTHON: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("maskbench.py: %v", err)
		}
	})
	end, _ := tok.End()
	head := struct {
		Tokenizer string `json:"tokenizer"`
		End       int32  `json:"end"`
	}{hugging(t, v), end}
	p := &peer{in: in, out: bufio.NewReaderSize(out, 1<<20)}
	line, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	var hello struct{ Version, Python string }
	p.ask(t, string(line), &hello)
	p.version = hello.Version + ", Python " + hello.Python
	return p
}

// hugging writes a byte-level BPE vocabulary as a file of the tokenizers library.
func hugging(t *testing.T, v tokenizer.Vocab) string {
	type object = map[string]any
	vocab, added := map[string]int{}, []object{}
	for id, text := range v.Tokens {
		if v.Types[id] == tokenizer.Control {
			added = append(added, object{"id": id, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		} else {
			vocab[text] = id
		}
	}
	const split = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	text, err := json.Marshal(object{
		"version": "1.0", "added_tokens": added,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": split}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		}},
		"decoder": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":   object{"type": "BPE", "vocab": vocab, "merges": v.Merges, "ignore_merges": true, "fuse_unk": false, "byte_fallback": false},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (p *peer) ask(t *testing.T, line string, answer any) {
	t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("maskbench.py: %v", err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		t.Fatalf("maskbench.py: %v: %.300s", err, text)
	}
}
