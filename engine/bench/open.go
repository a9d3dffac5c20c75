package bench

import (
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// shipped is the path of the embedded model.
const shipped = pico.Name

// open loads the model and returns the size of its file.
func open(cfg Config) (*cpu.Runner, int64, error) {
	if cfg.Path == shipped {
		f, err := gguf.Parse(pico.GGUF())
		if err != nil {
			return nil, 0, err
		}
		r, err := cpu.New(f, runnerConfig(cfg))
		if err != nil {
			f.Close()
		}
		return r, int64(len(pico.GGUF())), err
	}
	r, err := cpu.Open(cfg.Path, runnerConfig(cfg))
	if err != nil {
		return nil, 0, err
	}
	size, err := ggufname.Size(cfg.Path)
	return r, size, err
}
