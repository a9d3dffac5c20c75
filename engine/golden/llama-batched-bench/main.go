// Command llama-batched-bench measures sequences that are decoded together, as llama.cpp's own llama-batched-bench does, with
// the same flags and JSON fields as far as `rouse engine bench` uses them.
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
	Threads int     `json:"n_threads"`
	Flash   int     `json:"flash_attn"`
	PP      int     `json:"pp"`
	TG      int     `json:"tg"`
	PL      int     `json:"pl"`
	TPP     float64 `json:"t_pp"`
	SpeedPP float64 `json:"speed_pp"`
	TTG     float64 `json:"t_tg"`
	SpeedTG float64 `json:"speed_tg"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "llama-batched-bench:", err)
		os.Exit(1)
	}
}

func run() error {
	path := flag.String("m", "", "model file")
	prompt := flag.Int("npp", 64, "tokens of each prompt")
	gen := flag.Int("ntg", 32, "tokens to generate for each sequence")
	parallel := flag.String("npl", "16", "sequences, a list")
	threads := flag.Int("t", 4, "threads")
	flash := flag.Int("fa", 0, "flash attention: 0 or 1")
	flag.Int("c", 0, "context; ignored, there is room for all")
	flag.String("output-format", "jsonl", "output: jsonl")
	flag.Parse()
	model, err := peer.Load(*path)
	if err != nil {
		return err
	}
	for _, n := range strings.Split(*parallel, ",") {
		pl, err := strconv.Atoi(n)
		if err != nil {
			return err
		}
		r, err := peer.New(model, pl*(*prompt+*gen+8), pl, *threads, *flash == 1)
		if err != nil {
			return err
		}
		one := result{Threads: *threads, Flash: *flash, PP: *prompt, TG: *gen, PL: pl}
		for range 2 { // the first is the warm-up
			pp, err := r.Prompt(*prompt, pl)
			if err != nil {
				return err
			}
			tg, err := r.Generate(*prompt, *gen, pl)
			if err != nil {
				return err
			}
			one.TPP, one.TTG = pp.Seconds(), tg.Seconds()
		}
		one.SpeedPP, one.SpeedTG = float64(*prompt*pl)/one.TPP, float64(*gen*pl)/one.TTG
		if err := json.NewEncoder(os.Stdout).Encode(one); err != nil {
			return err
		}
	}
	return nil
}
