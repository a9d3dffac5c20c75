package cli

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/config"
)

// acceptFlags select the functions that front doors may create on this machine.
type acceptFlags struct {
	accept agent.Accept
	kinds  []string
}

func (f *acceptFlags) add(s *pflag.FlagSet) {
	s.StringSliceVar(&f.accept.Functions, "accept-functions", nil, "functions that the front doors may have created on this machine, as `patterns` such as default/*: a function is code that runs here (default: none)")
	s.StringSliceVar(&f.kinds, "accept-runtimes", []string{api.RuntimeEngine}, "`runtimes` of such functions; command lets them run any program")
	s.StringSliceVar(&f.accept.Models, "accept-models", config.AcceptedModels, "`models` and adapters of such functions: references, or beginnings of references that end in a slash, such as https://models.example.com/ or /srv/models/")
	s.IntVar(&f.accept.Max, "accept-max", 16, "how many such functions there may be at once")
}

// config applies them to a server's configuration, which has the front doors to join.
func (f *acceptFlags) config(cfg *local.Config) error {
	cfg.AcceptKinds = f.kinds
	if cfg.Join == nil {
		if len(f.accept.Functions) > 0 {
			return errors.New("--accept-functions: say for which front door (--join)")
		}
		return nil
	}
	cfg.Join.Accept = f.accept
	return cfg.Join.Validate()
}
