package manifests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProgramsKnowTheirArguments builds the programs and compares the
// Deployments' arguments with the flags of the programs.
func TestProgramsKnowTheirArguments(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "../cmd/rouse-activator", "../cmd/rouse-autoscaler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, overlay := range Overlays() {
		all := rendered(t, overlay)
		for deployed, name := range map[string]string{"rouse-activator": "rouse-activator", "rouse-autoscaler": "rouse-autoscaler", "rouse-agent": "rouse-activator"} {
			if deployed == "rouse-agent" && overlay != "agent" {
				continue
			}
			c := deployment(t, all, deployed).Spec.Template.Spec.Containers[0]
			if len(c.Command) > 0 {
				t.Errorf("%s: %s has a command: the image's entrypoint is the program", overlay, name)
			}
			for _, arg := range c.Args {
				flag, value, found := strings.Cut(arg, "=")
				if !found || value == "" || !strings.HasPrefix(flag, "--") {
					t.Errorf("%s: %s: write the argument %q as --FLAG=VALUE", overlay, name, arg)
				}
				if !flags(t, filepath.Join(bin, name))[strings.TrimLeft(flag, "-")] {
					t.Errorf("%s: %s has no flag %s", overlay, name, flag)
				}
			}
			program, err := os.ReadFile(filepath.Join(bin, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Env {
				if !bytes.Contains(program, []byte(e.Name)) && !strings.Contains(strings.Join(c.Args, " "), "$("+e.Name+")") {
					t.Errorf("%s: %s does not know the variable %s", overlay, name, e.Name)
				}
			}
		}
	}
}

// flags are those that a program's help names.
func flags(t *testing.T, program string) map[string]bool {
	t.Helper()
	out, _ := exec.Command(program, "--help").CombinedOutput() // some end with 2 after it
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+--?([a-z][a-z-]*)`).FindAllStringSubmatch(string(out), -1) {
		known[m[1]] = true
	}
	if len(known) == 0 {
		t.Fatalf("%s --help names no flags:\n%s", filepath.Base(program), out)
	}
	return known
}
