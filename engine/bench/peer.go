package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// peer runs llama.cpp's own benchmarks, if they are installed.
type peer struct {
	bench, batched string // paths; empty if not installed
	model          string
	threads        int
}

// findPeer looks in dir, or on the PATH. note names the missing programs.
func findPeer(dir, model string, threads int) (p peer, note string) {
	p.model, p.threads = model, threads
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

// single measures a prompt of n tokens, or gen further tokens, once after a warm-up. It returns the better of
// llama.cpp's two kinds of attention, in tokens per second.
func (p peer) single(ctx context.Context, prompt, gen int) (float64, error) {
	out, err := p.run(ctx, p.bench, "-m", p.model, "-p", strconv.Itoa(prompt), "-n", strconv.Itoa(gen), "-t", strconv.Itoa(p.threads),
		"-r", "1", "-fa", "0,1", "-o", "json")
	if err != nil {
		return 0, err
	}
	var rows []struct {
		AvgTS float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return 0, fmt.Errorf("llama-bench printed invalid output: %w", err)
	}
	best := 0.0
	for _, r := range rows {
		best = max(best, r.AvgTS)
	}
	if best == 0 {
		return 0, errors.New("llama-bench printed no result")
	}
	return best, nil
}

// together measures gen further tokens of n sequences in one batch.
func (p peer) together(ctx context.Context, prompt, gen, n int) (float64, error) {
	best := 0.0
	for _, flash := range []string{"0", "1"} {
		out, err := p.run(ctx, p.batched, "-m", p.model, "-npp", strconv.Itoa(prompt), "-ntg", strconv.Itoa(gen), "-npl", strconv.Itoa(n),
			"-t", strconv.Itoa(p.threads), "-fa", flash, "-c", strconv.Itoa(n*(prompt+gen)+64), "--output-format", "jsonl")
		if err != nil {
			return 0, err
		}
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			var row struct {
				SpeedTG float64 `json:"speed_tg"`
			}
			if json.Unmarshal(lines.Bytes(), &row) == nil { // its other lines are not JSON
				best = max(best, row.SpeedTG)
			}
		}
	}
	if best == 0 {
		return 0, errors.New("llama-batched-bench printed no result")
	}
	return best, nil
}

func (p peer) run(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(path), err, text[max(0, len(text)-300):])
	}
	return out, nil
}
