package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/cli"
	"github.com/rouse-dev/rouse/functions/process"
)

// spawn is the command line and environment of one instance. The function goes
// through the environment: it may hold secrets, and everybody can read arguments.
// The caller holds a.mu.
func (a *agent) spawn(f api.Function, id api.InstanceID, g api.Grant, dir string) (process.Spec, error) {
	declared, err := json.Marshal(f)
	if err != nil {
		return process.Spec{}, err
	}
	listen := api.Endpoint("unix:" + filepath.Join(dir, "fn.sock"))
	if err := api.CheckEndpoint(listen); err != nil {
		return process.Spec{}, fmt.Errorf("set XDG_RUNTIME_DIR to a shorter path: %w", err)
	}
	args := []string{
		"function", "--instance", string(id), "--listen", string(listen), "--dir", dir,
		"--events", string(a.events), "--epoch", strconv.FormatUint(g.Epoch, 10), "--exit-with-parent",
	}
	env := append(os.Environ(), cli.EnvFunction+"="+string(declared), api.EnvTrace+"="+g.Trace)
	gpus := make([]string, 0, len(g.Devices))
	for _, d := range g.Devices {
		if d != api.HostMemory {
			gpus = append(gpus, string(d))
		}
	}
	if len(gpus) > 0 {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
		args = append(args, "--devices", strings.Join(gpus, ","))
	}
	return process.Spec{
		Path: a.cfg.Program, Args: args, Env: env, DeathSignal: deathSignal,
		Lines: a.logOf(f.Name).Write,
	}, nil
}
