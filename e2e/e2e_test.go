package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rouse-dev/rouse/functions/process"
)

// bin holds the programs under test, and those that stand for others.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "rouse-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin = dir
	// GOFLAGS=-race builds them with the race detector.
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "../cmd/rouse", "../cmd/rouse-function", "../docs/examples/redact", "./fakeruntime", "./tinygguf", "./vllmsim/cmd/vllmsim")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	// The simulator stands for other model servers, under their names.
	for _, name := range []string{"vllm", "llama-server", "ray"} {
		if err := os.Symlink("vllmsim", filepath.Join(bin, name)); err != nil {
			return 1, err
		}
	}
	if err := describe(); err != nil {
		if os.Getenv("CI") != "" {
			return 1, err
		}
		fmt.Fprintln(os.Stderr, "e2e: answers are not judged:", err)
	}
	return m.Run(), nil
}

// TestScripts runs every script, as TestScripts/NAME; with -short only those of the folder basics.
func TestScripts(t *testing.T) {
	folder := "*"
	if testing.Short() {
		folder = "basics"
	}
	files, err := filepath.Glob(filepath.Join("testdata", "script", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	named := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if named[name] != "" {
			t.Errorf("%s and %s have one name: -run could not tell them apart", named[name], file)
		}
		named[name] = file
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		Setup:               setup,
		Cmds:                commands,
		WorkdirRoot:         t.TempDir(), // its own stays where -run chooses some scripts
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// setup gives a script the programs, a folder for sockets, and nothing of the user's own.
func setup(env *testscript.Env) error {
	e, err := newPlace()
	if err != nil {
		return err
	}
	env.Defer(func() {
		if err := e.close(); err != nil {
			env.T().Log(err)
			env.T().FailNow()
		}
	})
	e.dir = env.WorkDir
	env.Values[placeKey{}] = e
	env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, kv := range e.env() {
		name, value, _ := strings.Cut(kv, "=")
		env.Setenv(name, value)
	}
	model, err := filepath.Abs("../engine/pico/pico-q8_0.gguf")
	if err != nil {
		return err
	}
	env.Setenv("PICO", model)
	examples, err := filepath.Abs("../docs/examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("BIN", bin)
	port, err := process.FreePort()
	env.Setenv("FREEPORT", port)
	return err
}

// placeKey finds a script's place among its values.
type placeKey struct{}

func placeOf(ts *testscript.TestScript) *place { return ts.Value(placeKey{}).(*place) }

// errUsage is a command of a script that is written wrongly.
var errUsage = errors.New("wrong arguments, see testdata/script/README.md")
