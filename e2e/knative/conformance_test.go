package knative

import (
	"bufio"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/internal/pack"
)

// TestConformance runs Knative's own suites with our class as the cluster's default: those that ROUSE_CONFORMANCE lists, as folders of
// knative.dev/serving/test. By hand: make deep PART=conformance.
func TestConformance(t *testing.T) {
	suites := strings.Fields(os.Getenv("ROUSE_CONFORMANCE"))
	if len(suites) == 0 {
		t.Skip("Knative's suites run by hand: make deep PART=conformance")
	}
	c := rouse(t)
	inject(t, c)
	kubectl := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
		defer cancel()
		if out, err := c.Kubectl(ctx, args...); err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	dir := t.TempDir()
	// Their modules are ours, and some more for their tests.
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	goTool := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	with := func(verb string, args ...string) string {
		t.Helper()
		return goTool(append([]string{verb, "-modfile=" + filepath.Join(dir, "go.mod"), "-mod=mod"}, args...)...)
	}
	const serving = "knative.dev/serving"
	var images []pack.Image
	for _, program := range strings.Fields(with("list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, serving+"/test/test_images/...")) {
		name := path.Base(program)
		with("build", "-ldflags=-s -w", "-o", filepath.Join(dir, name), program)
		images = append(images, pack.Image{
			Name: "dev.local/" + name + ":v1", Arch: runtime.GOARCH, Entrypoint: []string{"/ko-app/" + name},
			Programs: map[string]string{"/ko-app/" + name: filepath.Join(dir, name)},
		})
	}
	tar := filepath.Join(dir, "images.tar")
	if err := pack.Write(tar, images); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(t.Context(), tar); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(goTool("list", "-m", "-f", "{{.Dir}}", serving), "test/config")
	t.Cleanup(func() {
		kubectl("-n", "knative-serving", "patch", "configmap", "config-autoscaler", "--type=json", "-p", `[{"op":"remove","path":"/data/pod-autoscaler-class"}]`)
		kubectl("delete", "-f", "testdata/conformance.yaml", "-f", filepath.Join(config, "cluster-resources.yaml"), "--ignore-not-found")
	})
	kubectl("apply", "-f", filepath.Join(config, "cluster-resources.yaml"))
	kubectl("apply", "-f", filepath.Join(config, "test-resources.yaml"), "-f", "testdata/conformance.yaml")
	kubectl("label", "namespace", "serving-tests", "serving-tests-alt", "conformance=knative", "--overwrite")
	kubectl("annotate", "namespace", "serving-tests", "serving-tests-alt", "rouse.dev/max-min-scale=10", "--overwrite")
	kubectl("-n", "knative-serving", "patch", "configmap", "config-autoscaler", "--type=merge", "-p", `{"data":{"pod-autoscaler-class":"gpu.autoscaling.rouse.dev"}}`)
	ingress, err := url.Parse(c.IngressURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			program := filepath.Join(dir, strings.ReplaceAll(suite, "/", "-")+".test")
			with("test", "-c", "-tags=e2e", "-o", program, serving+"/test/"+suite)
			cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.parallel=4", "-test.timeout=60m", "-test.run="+os.Getenv("ROUSE_CONFORMANCE_RUN"),
				"--resolvabledomain=false", "--ingressendpoint="+ingress.Host, "--dockerrepo=dev.local", "--tag=v1", "--disable-logstream", "--enable-beta")
			// The suites look up how the gateway's ports are mapped: of a Service without port 80, it is not.
			cmd.Env = append(os.Environ(), "SYSTEM_NAMESPACE=knative-serving", "KUBECONFIG="+c.Kubeconfig, "GATEWAY_NAMESPACE_OVERRIDE=knative-serving", "GATEWAY_OVERRIDE=controller")
			said, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for lines := bufio.NewReader(said); err == nil; {
				var line string
				line, err = lines.ReadString('\n')
				all.WriteString(line)
				if strings.HasPrefix(strings.TrimSpace(line), "---") {
					t.Log(strings.TrimRight(line, "\n"))
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v:\n%s", err, all.String())
			}
		})
	}
}
