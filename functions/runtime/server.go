package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// server is the common part of adapters for servers that are not ours.
type server struct {
	Plain
	names
	cfg    Config
	client *client
}

func newServer(cfg Config, c *client, learn bool) server {
	return server{names: names{clients: clientNames(cfg), learn: learn}, cfg: cfg, client: c}
}

func (s *server) Failure(path string, status int, body []byte) []byte {
	return failure(path, status, body)
}

func (s *server) fresh() {
	s.client.forget()
	s.names.forget()
}

func (s *server) Request(_ string, body *jsonfield.Object) *api.Error {
	s.rename(body)
	return nil
}

func (s *server) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	return s.Canary(ctx, e, "")
}

func (s *server) Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error) {
	return s.canary(ctx, e, adapter, "")
}

func (s *server) Probe(ctx context.Context, e api.Endpoint) error {
	model, err := s.at(ctx, s.client, e)
	if err != nil {
		return err
	}
	return s.client.probe(ctx, e, model)
}

func (s *server) attached() (Launch, bool) {
	if s.cfg.Spec.Endpoint == "" {
		return Launch{}, false
	}
	return Launch{Attach: true, Endpoint: s.cfg.Spec.Endpoint}, true
}

func (s *server) Find() error {
	_, _, err := s.find(nil)
	return err
}

// find returns the first word as a path.
func (s *server) find(env []string) (argv, environment []string, err error) {
	argv = s.cfg.Spec.Command
	environment = slices.Concat(s.cfg.Env, env, s.cfg.Spec.Env)
	if s.cfg.Spec.Endpoint != "" || len(argv) == 0 {
		return argv, environment, nil
	}
	path, err := FindProgram(argv[0], environment)
	if err != nil {
		return nil, nil, fmt.Errorf("runtime %s: %w", s.cfg.Spec.Kind, err)
	}
	return append([]string{path}, argv[1:]...), environment, nil
}

// launch puts our options before the user's, which win.
func (s *server) launch(e api.Endpoint, options, env []string) (Launch, error) {
	argv, env, err := s.find(env)
	if err != nil {
		return Launch{}, err
	}
	return Launch{Path: argv[0], Args: slices.Concat(argv[1:], options, s.cfg.Spec.Args), Env: env, Endpoint: e}, nil
}

// launchWith replaces the placeholders in the user's command line.
func (s *server) launchWith(words *strings.Replacer, e api.Endpoint, env []string) (Launch, error) {
	filled := server{cfg: s.cfg}
	for _, list := range []*[]string{&filled.cfg.Spec.Command, &filled.cfg.Spec.Args, &filled.cfg.Spec.Env} {
		*list = slices.Clone(*list)
		for i, word := range *list {
			(*list)[i] = words.Replace(word)
		}
	}
	return filled.launch(e, nil, env)
}

// checkAttach refuses settings that can't affect a server that somebody else starts.
func checkAttach(spec api.Runtime) error {
	switch {
	case spec.Endpoint == "":
		return nil
	case len(spec.Command) > 0 || len(spec.Args) > 0:
		return errors.New("it has both an endpoint and a command or options: with an endpoint somebody else starts the server; give the options to its container, or remove the endpoint")
	}
	return api.CheckEndpoint(spec.Endpoint)
}

// FindProgram finds an executable as a shell with env would.
func FindProgram(name string, env []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, checkProgram(name)
	}
	path := process.Variable(env, "PATH")
	if path == "" {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if full := filepath.Join(dir, name); filepath.IsAbs(dir) && checkProgram(full) == nil {
			return full, nil
		}
	}
	return "", noProgramf("the program %q is in no folder of PATH (%s): install it, add its folder to the runtime's environment variable PATH, or set the runtime's command to its path", name, path)
}

func noProgramf(format string, args ...any) error { return lasting{fmt.Errorf(format, args...)} }

func checkProgram(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return noProgramf("there is no program %s: install it, or set the runtime's command to where it is", path)
	case err != nil:
		return fmt.Errorf("find the program: %w", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return noProgramf("%s is no program that may be executed: set the runtime's command to one", path)
	}
	return nil
}

// socket returns an endpoint that nobody else can reach, and removes the last start's socket.
func (c Config) socket(name string) (e api.Endpoint, path string, err error) {
	if e, path, err = c.socketPath(name); err != nil {
		return "", "", fmt.Errorf("runtime %s: %w", c.Spec.Kind, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("runtime %s: remove the old socket: %w", c.Spec.Kind, err)
	}
	return e, path, nil
}

func (c Config) socketPath(name string) (e api.Endpoint, path string, err error) {
	if c.Dir == "" {
		return "", "", errors.New("no folder for its socket")
	}
	path = filepath.Join(c.Dir, name+".sock")
	e = api.Endpoint("unix:" + path)
	if err := api.CheckEndpoint(e); err != nil {
		return "", "", fmt.Errorf("choose a folder with a shorter path: %w", err)
	}
	return e, path, nil
}

// loopback returns a port, 0 for a free one, which everybody on the machine can reach: for servers without sockets.
func loopback(fixed int) (e api.Endpoint, port string, err error) {
	if port = strconv.Itoa(fixed); fixed == 0 {
		if port, err = process.FreePort(); err != nil {
			return "", "", fmt.Errorf("the runtime: %w", err)
		}
	}
	return api.Endpoint("http://127.0.0.1:" + port), port, nil
}
