package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// slack is by how much ledger and nvidia-smi may differ: contexts and fragments, which the capacity leaves out.
const slack = 256 << 20

func (b *gpuBench) ledger(ctx context.Context, p *gpuPart) error {
	var env []string
	if b.small {
		var err error
		if env, err = b.simulated(ctx); err != nil {
			return err
		}
		p.note("the simulator stands for vLLM, the device and nvidia-smi")
		manifest := gpuFunction("held", map[string]string{"rouse.dev/runtime": "vllm", "rouse.dev/model": "sim/llama-8b", "rouse.dev/device-memory": strconv.FormatInt(73<<30, 10)})
		if err := p.goOn(ctx, b.ledgerOf(ctx, p, "vLLM", manifest, env)); err != nil {
			return err
		}
		if err := b.torch(); err != nil {
			p.note("the engine: left out, %v", err)
			return nil
		}
	} else if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return lacks("nvidia-smi is not on the PATH")
	}
	size, promised := min(2e9, float64(b.facts.Free)/4), b.facts.Free*3/4
	if b.small {
		size, promised = b.fileWeights, 1<<30
	}
	path, err := b.modelFile(size)
	if err != nil {
		return err
	}
	manifest := gpuFunction("held", map[string]string{"rouse.dev/runtime": "engine", "rouse.dev/model": path, "rouse.dev/device-memory": strconv.FormatInt(promised, 10)},
		"--device", "cuda", "--python", b.python, "--max-model-len", "2048", "--max-num-seqs", "4", "--threads", "1")
	return b.ledgerOf(ctx, p, "engine", manifest, env)
}

// ledgerOf does it for a manifest's function, which is called held.
func (b *gpuBench) ledgerOf(ctx context.Context, p *gpuPart, who, manifest string, env []string) error {
	before, err := smi(ctx, env)
	if err != nil {
		return err
	}
	u, err := b.startUp(ctx, manifest, env...)
	if err != nil {
		return err
	}
	defer u.Stop()
	if _, err := u.firstByte(ctx, gpuCompletion("held", 4)); err != nil {
		return fmt.Errorf("%s: %w: %s", who, err, u.Words())
	}
	for _, state := range []string{"awake", "asleep at level 1", "asleep at level 2", "unloaded"} {
		if err := u.become(ctx, state); err != nil {
			return fmt.Errorf("%s, %s: %w: %s", who, state, err, u.Words())
		}
		if err := u.compare(ctx, p, who, state, before, env); err != nil {
			return err
		}
	}
	return nil
}

func (u *Up) become(ctx context.Context, state string) error {
	switch state {
	case "asleep at level 1":
		_, err := u.sleep(ctx, "held", api.Level1)
		return err
	case "asleep at level 2":
		if _, err := u.firstByte(ctx, gpuCompletion("held", 4)); err != nil {
			return err
		}
		_, err := u.sleep(ctx, "held", api.Level2)
		return err
	case "unloaded":
		return u.stopFunction(ctx, "held")
	}
	return nil
}

// settles is how long ledger and nvidia-smi may take to agree.
const settles = 20 * time.Second

// heldBytes is the use of the device by three sources.
type heldBytes struct {
	// by the ledger: a sleeper that may be woken at any time counts as if awake
	account int64
	// by the instance: measured, or the most that it may use if nvidia-smi does not name its processes. An awake one
	// reports nothing.
	reported int64
	// by nvidia-smi, beyond the use before the test
	used int64
}

func (h heldBytes) fault(state string) string {
	switch {
	case state == "unloaded" && (h.account != 0 || h.used > slack):
		return "something is held, and nothing runs"
	case h.account < h.used-slack:
		return "more is used than the ledger says"
	case strings.HasPrefix(state, "asleep") && h.reported < h.used-slack:
		return "more is used than the instance reports"
	}
	return ""
}

func (u *Up) compare(ctx context.Context, p *gpuPart, who, state string, before map[string]int64, env []string) error {
	var h heldBytes
	deadline := time.Now().Add(settles)
	if err := await(ctx, 50*time.Millisecond, func() (settled bool, err error) {
		h, err = u.held(ctx, before, env)
		return h.fault(state) == "" || time.Now().After(deadline), err
	}); err != nil {
		return err
	}
	const mib = 1 << 20
	p.beside(who+", "+state+": given away by the ledger", "MiB", float64(h.account)/mib, float64(h.used)/mib, "nvidia-smi")
	p.beside(who+", "+state+": reported by the instance", "MiB", float64(h.reported)/mib, float64(h.used)/mib, "nvidia-smi")
	if fault := h.fault(state); fault != "" {
		return fmt.Errorf("%s, %s: %s: the ledger has given away %d MiB, the instance reports %d MiB, nvidia-smi says %d MiB", who, state, fault, h.account/mib, h.reported/mib, h.used/mib)
	}
	return nil
}

func (u *Up) held(ctx context.Context, before map[string]int64, env []string) (h heldBytes, err error) {
	after, err := smi(ctx, env)
	if err != nil {
		return h, err
	}
	devices, err := u.Devices(ctx)
	if err != nil {
		return h, err
	}
	f, err := u.Function(ctx, "held")
	if err != nil {
		return h, err
	}
	matched := false
	for _, d := range devices {
		_, known := before[string(d.ID)]
		matched = matched || known
	}
	if !matched {
		return h, lacks("nvidia-smi and the ledger have no device in common: in MIG mode the parts of a GPU have names of their own")
	}
	for _, d := range devices {
		if was, known := before[string(d.ID)]; known { // the host is not
			h.account += int64(d.Awake + d.Rising + d.Reserved + d.Asleep + d.Leaving)
			h.used += after[string(d.ID)] - was
		}
	}
	for _, i := range f.Instances {
		h.reported += int64(i.Memory.PerDevice)
	}
	return h, nil
}

// smi is in bytes.
func smi(ctx context.Context, env []string) (map[string]int64, error) {
	program := "nvidia-smi"
	for _, kv := range env { // where it is found decides
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			program = filepath.Join(filepath.SplitList(path)[0], program)
		}
	}
	cmd := exec.CommandContext(ctx, program, "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w: %s", err, out)
	}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi says %q: %w", out, err)
	}
	used, hidden := map[string]int64{}, []string(nil)
	for _, row := range rows {
		if len(row) != 2 {
			return nil, fmt.Errorf("nvidia-smi says %q", row)
		}
		mib, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil { // [N/A], [Insufficient Permissions]
			hidden = append(hidden, strings.Join(row, ": "))
			continue
		}
		used[row[0]] = mib << 20
	}
	if len(used) == 0 {
		return nil, lacks("nvidia-smi does not say what is used of a device (%s): in MIG mode and in some containers it does not", strings.Join(hidden, "; "))
	}
	return used, nil
}

// gpuFunction is a manifest of one function that sleeps only on an order.
func gpuFunction(name string, annotations map[string]string, args ...string) string {
	var all strings.Builder
	if annotations["rouse.dev/rehearse"] == "" {
		all.WriteString("        rouse.dev/rehearse: never\n")
	}
	for k, v := range annotations {
		fmt.Fprintf(&all, "        %s: %q\n", k, v)
	}
	var words []string
	for _, a := range args {
		words = append(words, strconv.Quote(a))
	}
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/sleep-after: "0"
        rouse.dev/unload-after: "0"
        rouse.dev/hold-timeout: 20m
        rouse.dev/start-timeout: 20m
%s    spec:
      timeoutSeconds: 1200
      containers: [{image: model-server, args: [%s], resources: {limits: {nvidia.com/gpu: 1}}}]
`, name, all.String(), strings.Join(words, ", "))
}

func gpuCompletion(model string, tokens int) map[string]any {
	return map[string]any{"model": model, "prompt": "hello there", "max_tokens": tokens, "temperature": 0, "stream": true}
}
