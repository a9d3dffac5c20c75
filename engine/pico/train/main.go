// Train makes pico: the commands around train.py that need Go. See ../MODEL_CARD.md for the order and the arguments.
//
//	train tokens -dir DIR -seed N -rows N -row N [-drill] [-style NAME]   training rows for train.py and adapter.py
//	train gguf -from OUT -to FILE                           the model file from train.py's output OUT
//	train base -to OUT                                      the embedded model's weights for adapter.py
//	train adapters -shout OUT -pirate OUT                   the shipped adapters from adapter.py's outputs
//	train card -n N                                         measure the embedded model and write MODEL_CARD.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name a command: tokens, gguf, base, adapters or card")
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := fs.String("dir", "", "folder for the token files")
	seed := fs.Uint64("seed", 1, "seed of the corpus")
	drill := fs.Bool("drill", false, "more of what is hard to learn")
	rows := fs.Int("rows", 1000, "number of rows")
	row := fs.Int("row", contextLength+1, "tokens in a row: the context and one more")
	from := fs.String("from", "", "path of the trained weights without ending: OUT of train.py")
	to := fs.String("to", "engine/pico/pico-q8_0.gguf", "model file to write")
	style := fs.String("style", "", "how the assistant answers: shout or pirate; plain without")
	shout := fs.String("shout", "", "path of the trained adapter shout without ending: OUT of adapter.py")
	pirate := fs.String("pirate", "", "path of the trained adapter pirate without ending")
	n := fs.Int("n", 1000, "held-out questions of each skill")
	card := fs.String("card", "engine/pico/MODEL_CARD.md", "model card to write")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "tokens":
		g := corpus.New(*seed, corpus.Training)
		if *drill {
			g = corpus.NewDrill(*seed)
		}
		apply := func(answer string) string { return answer }
		if *style != "" {
			s, ok := corpus.StyleOf(*style)
			if !ok {
				return fmt.Errorf("no style %q", *style)
			}
			apply = s.Apply
		}
		return writeTokens(*dir, g, apply, *rows, *row)
	case "base":
		return writeBase(*to)
	case "adapters":
		return writeAdapters(*shout, *pirate)
	case "gguf":
		return writeGGUF(*from, *to)
	case "card":
		return writeCard(context.Background(), *card, *n)
	}
	return fmt.Errorf("no command %q: use tokens, gguf, base, adapters or card", args[0])
}
