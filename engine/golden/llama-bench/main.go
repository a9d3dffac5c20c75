// Command llama-bench measures the llama.cpp inside Ollama as llama.cpp's own llama-bench does, with the same flags and JSON
// fields as far as `rouse engine bench` uses them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine/golden/internal/peer"
)

type result struct {
	Backends string    `json:"backends"`
	Model    string    `json:"model_filename"`
	Threads  int       `json:"n_threads"`
	Flash    bool      `json:"flash_attn"`
	Prompt   int       `json:"n_prompt"`
	Gen      int       `json:"n_gen"`
	AvgNS    float64   `json:"avg_ns"`
	AvgTS    float64   `json:"avg_ts"`
	StdTS    float64   `json:"stddev_ts"`
	Samples  []float64 `json:"samples_ts"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "llama-bench:", err)
		os.Exit(1)
	}
}

func run() error {
	path := flag.String("m", "", "model file")
	prompt := flag.Int("p", 512, "tokens of the prompt; 0 skips")
	gen := flag.Int("n", 128, "tokens to generate; 0 skips")
	threads := flag.Int("t", 4, "threads")
	reps := flag.Int("r", 5, "repetitions")
	flash := flag.String("fa", "0", "flash attention: 0, 1 or both as 0,1")
	flag.String("o", "json", "output: json")
	flag.Parse()
	model, err := peer.Load(*path)
	if err != nil {
		return err
	}
	var out []result
	for _, f := range strings.Split(*flash, ",") {
		on, err := strconv.ParseBool(f)
		if err != nil {
			return err
		}
		r, err := peer.New(model, max(*prompt, *gen)+64, 1, *threads, on)
		if err != nil {
			return err
		}
		measure := func(p, g int) error {
			one := result{Backends: "CPU", Model: *path, Threads: *threads, Flash: on, Prompt: p, Gen: g}
			for i := range *reps + 1 { // the first is the warm-up
				r.Clear()
				d, err := r.Prompt(max(p, 1), 1)
				if p == 0 && err == nil {
					d, err = r.Generate(1, g, 1)
				}
				if err != nil {
					return err
				}
				if i > 0 {
					one.Samples = append(one.Samples, float64(p+g)/d.Seconds())
					one.AvgNS += float64(d.Nanoseconds()) / float64(*reps)
				}
			}
			one.AvgTS, one.StdTS = peer.Stats(one.Samples)
			out = append(out, one)
			return nil
		}
		if *prompt > 0 {
			if err := measure(*prompt, 0); err != nil {
				return err
			}
		}
		if *gen > 0 {
			if err := measure(0, *gen); err != nil {
				return err
			}
		}
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
