package inventory

import (
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// Usage is the use of one GPU, or slice, by all programs.
type Usage struct {
	ID   api.DeviceID
	Name string
	// Total is 0 if unknown.
	Total api.Bytes
	Used  api.Bytes
}

// NewDevice excludes what others use now: no instance runs on it.
func (u Usage) NewDevice() Device {
	return Device{ID: u.ID, Name: u.Name, Total: u.Total, Capacity: max(0, u.Total-u.Used-gpuReserve)}
}

// Unaccounted returns what is neither excluded from d's capacity nor held by instances.
func (d Device) Unaccounted(used, held api.Bytes) api.Bytes {
	outside := max(0, d.Total-d.Capacity-gpuReserve) // others' from the beginning
	return min(max(0, used-outside-held), d.Capacity)
}

// Poll asks nvidia-smi. [errors.ErrUnsupported]: there is none.
func (c Config) Poll(ctx context.Context) ([]Usage, error) {
	c = c.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	out, err := c.query(ctx)
	if err != nil && !strings.Contains(out, "GPU-") {
		if strings.Contains(out+err.Error(), "No devices were found") {
			return nil, nil
		}
		return nil, err
	}
	var seen []Usage
	for line := range strings.Lines(out) { // a lost GPU's line must not hide the others
		us, err := parseUsage(line)
		if err == nil {
			seen = append(seen, us...)
		}
	}
	return seen, nil
}

// query also returns the output with an error.
func (c Config) query(ctx context.Context) (string, error) {
	path, err := exec.LookPath(c.NvidiaSMI)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("list GPUs: %s is not installed: %w", c.NvidiaSMI, errors.ErrUnsupported)
	}
	if err != nil {
		return "", fmt.Errorf("list GPUs: %w", err)
	}
	out, err := c.run(ctx, path, "--query-gpu=uuid,name,memory.total,memory.used,mig.mode.current", "--format=csv,noheader,nounits")
	if strings.Contains(out, enabled) {
		more, failed := c.slices(ctx, path)
		if failed != nil { // they are not gone because nobody can be asked
			return "", failed
		}
		out += more
	}
	return out, err
}

// run also returns the output with an error.
func (c Config) run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = c.Timeout / 10 // a child that keeps the pipe open must not block us
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("list GPUs: %s: %w", c.NvidiaSMI, context.Cause(ctx))
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), fmt.Errorf("list GPUs: %s: %w: %s", c.NvidiaSMI, err, strings.TrimSpace(string(exit.Stderr)+string(out)))
		}
		return "", fmt.Errorf("list GPUs: %s: %w", c.NvidiaSMI, err)
	}
	return string(out), nil
}

// enabled is the MIG mode of a GPU that is used by slices only.
const enabled = "Enabled"

// slices returns lines of the slices of GPUs in MIG mode. Of compute instances that share a GPU instance's memory the
// first counts.
func (c Config) slices(ctx context.Context, path string) (out string, err error) {
	list, err1 := c.run(ctx, path, "-L")
	details, err2 := c.run(ctx, path, "-q", "-x")
	var log struct {
		Slices []struct {
			Index  string `xml:"index"`
			Shares string `xml:"gpu_instance_id"`
			Total  string `xml:"fb_memory_usage>total"`
			Used   string `xml:"fb_memory_usage>used"`
		} `xml:"gpu>mig_devices>mig_device"`
	}
	listed := regexp.MustCompile(`MIG (\S+) .*\(UUID: (\S+)\)`).FindAllStringSubmatch(list, -1) // in the same order
	err = errors.Join(err1, err2, xml.Unmarshal([]byte(details), &log))
	if err == nil && len(listed) != len(log.Slices) {
		err = fmt.Errorf("-L has %d, -q has %d", len(listed), len(log.Slices))
	}
	if err != nil {
		return "", fmt.Errorf("list the slices of GPUs: %w", err)
	}
	var seen []string // of one GPU
	for k, s := range log.Slices {
		if s.Index == "0" {
			seen = nil
		}
		if !slices.Contains(seen, s.Shares) {
			seen = append(seen, s.Shares)
			out += fmt.Sprintf("%s, MIG %s, %s, %s\n", listed[k][2], listed[k][1], s.Total, s.Used)
		}
	}
	return out, nil
}

// parseUsage parses lines of "uuid, name, total MiB, used MiB", and the MIG mode if known.
func parseUsage(out string) ([]Usage, error) {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = -1
	r.LazyQuotes = true
	records, err := r.ReadAll()
	if slices.ContainsFunc(records, func(rec []string) bool { return len(rec) < 4 }) {
		err = csv.ErrFieldCount
	}
	if err != nil {
		return nil, fmt.Errorf("list GPUs: want lines of uuid, name, memory.total, memory.used: %w", err)
	}
	var us []Usage
	seen := map[string]bool{}
	for _, rec := range records {
		if rec[len(rec)-1] == enabled {
			continue
		}
		total, err1 := mebibytes(rec[2])
		used, err2 := mebibytes(rec[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("list GPUs: %s (%s): %w", rec[1], rec[0], err)
		}
		if rec[0] == "" || seen[rec[0]] {
			return nil, fmt.Errorf("list GPUs: %q is no identifier of its own", rec[0])
		}
		seen[rec[0]] = true
		us = append(us, Usage{ID: api.DeviceID(rec[0]), Name: rec[1], Total: total, Used: used})
	}
	return us, nil
}
