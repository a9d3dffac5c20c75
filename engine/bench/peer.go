package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// peer runs llama.cpp's benchmarks.
type peer struct {
	bench, batched string // paths; "": not installed
	model          string
	threads        int
	limit          time.Duration // of a test with one kind of attention
}

// findPeer looks in dir, or on the PATH. note names what is missing.
func findPeer(dir, model string, threads int) (p peer, note string) {
	p.model, p.threads, p.limit = model, threads, 10*time.Minute
	var missing []string
	find := func(name string) string {
		if dir != "" {
			name = filepath.Join(dir, name)
		}
		path, err := exec.LookPath(name)
		if err != nil {
			missing = append(missing, filepath.Base(name))
			return ""
		}
		return path
	}
	p.bench, p.batched = find("llama-bench"), find("llama-batched-bench")
	if len(missing) > 0 {
		where := "on the PATH"
		if dir != "" {
			where = "in " + dir
		}
		note = strings.Join(missing, " and ") + " not found " + where + ": no comparison"
	}
	return p, note
}

// run measures after a warm-up, and returns the better of llama.cpp's two kinds of attention in tokens per second; 0 if
// not installed.
func (p peer) run(ctx context.Context, t *test) (best float64, err error) {
	number := strconv.Itoa
	path, args := p.bench, []string{"-p", number(t.prompt), "-n", "0", "-r", "1", "-o", "jsonl"}
	switch {
	case t.n > 1:
		path = p.batched
		args = []string{"-npp", number(t.prompt), "-ntg", number(t.gen), "-npl", number(t.n), "-c", number(t.n*(t.prompt+t.gen) + 64), "--output-format", "jsonl"}
	case t.gen > 0:
		args[1], args[3] = "0", number(t.gen)
	}
	if path == "" {
		return 0, nil
	}
	for _, flash := range []string{"0", "1"} {
		ctx, cancel := context.WithTimeout(ctx, p.limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, append(args, "-m", p.model, "-t", number(p.threads), "-fa", flash)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			text := strings.TrimSpace(stderr.String())
			return 0, fmt.Errorf("%s, for at most %s: %w: %s", filepath.Base(path), p.limit, err, text[max(0, len(text)-300):])
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			var row struct {
				Bench   float64 `json:"avg_ts"`
				Batched float64 `json:"speed_tg"`
			}
			if json.Unmarshal(lines.Bytes(), &row) == nil { // others are not JSON
				best = max(best, row.Bench, row.Batched)
			}
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("%s printed no result", filepath.Base(path))
	}
	return best, nil
}
