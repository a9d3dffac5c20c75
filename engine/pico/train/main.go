// Train makes pico again: the commands around train.py and adapter.py that need Go. See ../MODEL_CARD.md for the
// order. Shape, vocabulary and metadata are those of the shipped files.
//
//	train tokens -dir DIR -seed N -rows N -row N [-drill] [-style NAME]   training rows for train.py and adapter.py
//	train base -to OUT                    the embedded model's weights for adapter.py
//	train gguf -from OUT                  the model file from train.py's output OUT, and its digest
//	train adapters -shout OUT -pirate OUT the shipped adapters from adapter.py's outputs
package main

import (
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
		return fmt.Errorf("name a command: tokens, base, gguf or adapters")
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := fs.String("dir", "", "folder for the token files")
	seed := fs.Uint64("seed", 1, "seed of the corpus")
	drill := fs.Bool("drill", false, "more of what is hard to learn")
	rows := fs.Int("rows", 1000, "number of rows")
	row := fs.Int("row", 513, "tokens in a row: the context and one more")
	from := fs.String("from", "", "path of the trained weights without ending: OUT of train.py")
	to := fs.String("to", "", "path of the base weights without ending")
	style := fs.String("style", "", "how the assistant answers: shout or pirate; plain without")
	shout := fs.String("shout", "", "path of the trained adapter shout without ending: OUT of adapter.py")
	pirate := fs.String("pirate", "", "path of the trained adapter pirate without ending")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "tokens":
		g := corpus.New(*seed, corpus.Training)
		if *drill {
			g = corpus.NewDrill(*seed)
		}
		e, err := newEncoder(*style)
		if err != nil {
			return err
		}
		return e.write(*dir, g, *rows, *row)
	case "base":
		return writeBase(*to)
	case "gguf":
		return writeModel(*from)
	case "adapters":
		return writeAdapters(*shout, *pirate)
	}
	return fmt.Errorf("no command %q: use tokens, base, gguf or adapters", args[0])
}
