package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// set is programs that one "go build" makes.
type set struct {
	Name     string
	Module   string            // the folder in build/ whose go.mod pins them
	Programs map[string]string // name: package
	Tags     string
	LDFlags  string // beside -s -w
	Static   bool   // with a C compiler, linked statically
}

const (
	kubernetesVersion = "v1.36.3"
	knativeVersion    = "v0.51.0"
	knVersion         = "v0.50.0"
	containerdVersion = "2.4.2"
)

// sets is every program, the slowest to build first.
func sets() []set {
	const (
		kubernetes = "k8s.io/kubernetes/cmd/"
		version    = "k8s.io/component-base/version."
		containerd = "github.com/containerd/containerd/v2/"
		cni        = "github.com/containernetworking/plugins/plugins/"
		serving    = "knative.dev/serving/cmd/"
		own        = module + "/e2e/cluster/build/"
	)
	return []set{{
		Name: "kubernetes", Module: "k8s",
		Programs: named(kubernetes, "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"),
		LDFlags: "-X " + version + "gitVersion=" + kubernetesVersion + " -X " + version + "gitMajor=1 -X " + version + "gitMinor=36" +
			" -X " + version + "gitTreeState=clean -X " + version + "gitCommit=" + strings.Repeat("0", 40),
	}, {
		Name: "knative", Module: "knative",
		Programs: named(serving, "activator", "autoscaler", "controller", "queue", "webhook"),
	}, {
		Name: "kn", Module: "kn",
		Programs: named("knative.dev/client/cmd/", "kn"),
		LDFlags:  "-X knative.dev/client/pkg/commands/version.Version=" + knVersion,
	}, {
		Name: "coredns", Module: "coredns",
		Programs: map[string]string{"coredns": own + "coredns"},
	}, {
		Name: "containerd", Module: "cri",
		Programs: named(containerd+"cmd/", "containerd", "containerd-shim-runc-v2", "ctr"),
		Tags:     "no_btrfs no_zfs no_devmapper no_aufs",
		LDFlags:  "-X " + containerd + "version.Version=" + containerdVersion,
	}, {
		Name: "runc", Module: "cri",
		Programs: map[string]string{"runc": "github.com/opencontainers/runc"},
		Tags:     "seccomp netgo osusergo", Static: true,
	}, {
		Name: "etcd", Module: "k8s",
		Programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
	}, {
		Name: "cni", Module: "k8s",
		Programs: map[string]string{
			"bridge": cni + "main/bridge", "loopback": cni + "main/loopback",
			"host-local": cni + "ipam/host-local", "portmap": cni + "meta/portmap",
		},
	}, ownSet()}
}

func ownSet() set {
	return set{
		Name: "own", Module: "knative",
		Programs: named(module+"/e2e/cluster/build/knative/cmd/", "fakegpu", "gpuruntime", "hello", "mini-ingress", "pause"),
	}
}

func kwokSet() set {
	return set{Name: "kwok", Module: "kwok", Programs: named("sigs.k8s.io/kwok/cmd/", "kwok")}
}

func named(prefix string, names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = prefix + n
	}
	return m
}

// programs are folders by the name of the set.
type programs map[string]string

func (p programs) path(set, program string) string { return filepath.Join(p[set], program) }

// key returns a hash of all inputs of a set. The files of other modules are pinned by go.sum.
func (s set) key(dir, toolchain string) (string, error) {
	h := sha256.New()
	def, err := json.Marshal(s) // maps are written in the order of their keys
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s\n%s\n", toolchain, def)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ext := filepath.Ext(path)
		if e.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".mod", ".sum"}, ext) {
			return nil
		}
		if ext == ".go" && !s.own() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(h, "%s %d\n%s\n", filepath.ToSlash(rel), len(b), b)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash what %s is built from: %w", s.Name, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func (s set) own() bool {
	for _, pkg := range s.Programs {
		if strings.HasPrefix(pkg, module+"/") {
			return true
		}
	}
	return false
}

type builder struct {
	places Places
	log    *slog.Logger
}

func (b builder) all(ctx context.Context) (programs, error) {
	toolchain, err := b.toolchain(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.sweep(); err != nil {
		return nil, err
	}
	built := programs{}
	var jobs errgroup.Group
	jobs.SetLimit(2)
	for _, s := range sets() {
		dir, there, err := b.find(s, toolchain)
		if err != nil {
			return nil, err
		}
		built[s.Name] = dir
		if !there {
			jobs.Go(func() error { return b.build(ctx, s, dir) })
		}
	}
	return built, jobs.Wait()
}

func (b builder) one(ctx context.Context, s set) (programs, error) {
	toolchain, err := b.toolchain(ctx)
	if err != nil {
		return nil, err
	}
	dir, there, err := b.find(s, toolchain)
	if err == nil && !there {
		err = b.build(ctx, s, dir)
	}
	return programs{s.Name: dir}, err
}

func (b builder) find(s set, toolchain string) (dir string, there bool, err error) {
	key, err := s.key(b.places.build(s.Module), toolchain)
	if err != nil {
		return "", false, err
	}
	dir = filepath.Join(b.places.Cache, "programs", s.Name+"-"+key)
	if _, err := os.Stat(dir); err != nil {
		return dir, false, nil // it is built then
	}
	_ = os.Chtimes(dir, time.Now(), time.Now()) // for the sweep
	return dir, true, nil
}

func (b builder) toolchain(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64").Output()
	if err != nil {
		return "", fmt.Errorf("ask go which version it is: %w", err)
	}
	cc, err := exec.CommandContext(ctx, "gcc", "-dumpfullversion").Output()
	if err != nil {
		return "", fmt.Errorf("ask gcc which version it is: %w", err)
	}
	return strings.Join(strings.Fields(string(out)+" gcc "+string(cc)), " "), nil
}

// build renames a built set into place, so that the cache has only complete ones.
func (b builder) build(ctx context.Context, s set, dir string) error {
	start := time.Now()
	b.log.Info("building", "set", s.Name)
	tmp, err := os.MkdirTemp(mkdir(filepath.Dir(dir)), "tmp-")
	if err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}
	defer os.RemoveAll(tmp)
	flags := "-s -w " + s.LDFlags
	// Compilers run a sixth faster with a larger heap.
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false", "CGO_ENABLED=0", "GOGC=400")
	if s.Static {
		flags += " -extldflags -static"
		env = append(env, "CGO_ENABLED=1")
	}
	args := []string{"build", "-p", strconv.Itoa(runtime.NumCPU()), "-trimpath", "-ldflags", strings.TrimSpace(flags)}
	if s.Tags != "" {
		args = append(args, "-tags", s.Tags)
	}
	if err := b.fetch(ctx, s, env); err != nil {
		return err
	}
	for out, pkgs := range s.outputs(tmp) {
		cmd := exec.CommandContext(ctx, "go", slices.Concat(args, []string{"-o", out}, pkgs)...)
		cmd.Dir, cmd.Env = b.places.build(s.Module), env
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s in %s: %w\n%s", s.Name, cmd.Dir, err, said)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}
	b.log.Info("built", "set", s.Name, "seconds", time.Since(start).Round(100*time.Millisecond).Seconds())
	return os.Chmod(dir, 0o755)
}

// outputs returns the values of -o: a folder for programs that have their package's name, a file for each other.
func (s set) outputs(dir string) map[string][]string {
	m := map[string][]string{}
	for name, pkg := range s.Programs {
		out := filepath.Join(dir, name)
		if filepath.Base(pkg) == name {
			out = dir + string(filepath.Separator)
		}
		m[out] = append(m[out], pkg)
	}
	for _, pkgs := range m {
		slices.Sort(pkgs)
	}
	return m
}

// fetch tries three times: mirrors have bad moments.
func (b builder) fetch(ctx context.Context, s set, env []string) error {
	args := []string{"list", "-deps", "-f", "{{.ImportPath}}"}
	if s.Tags != "" {
		args = append(args, "-tags", s.Tags)
	}
	for _, pkg := range s.Programs {
		args = append(args, pkg)
	}
	var err error
	var out []byte
	for _, pause := range []time.Duration{2 * time.Second, 5 * time.Second, 0} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = b.places.build(s.Module), env
		if out, err = cmd.CombinedOutput(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("fetch the modules of %s: %w: can GOPROXY be reached?\n%s", s.Name, err, tail(out, 2000))
}

func (b builder) sweep() error {
	for _, kind := range []string{"programs", "images"} {
		dir := mkdir(filepath.Join(b.places.Cache, kind))
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("sweep the cache: %w", err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // gone by itself
			}
			age := time.Since(info.ModTime())
			if age > 30*24*time.Hour || strings.HasPrefix(e.Name(), "tmp-") {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					return fmt.Errorf("sweep the cache: %w", err)
				}
			}
		}
	}
	return nil
}

// If mkdir fails, the first use of the folder reports the error.
func mkdir(dir string) string {
	_ = os.MkdirAll(dir, 0o755)
	return dir
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
