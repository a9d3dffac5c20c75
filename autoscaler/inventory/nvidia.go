package inventory

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// gpuReserve is left alone on each GPU: contexts and fragmentation take it.
const gpuReserve = 256 * api.MiB

// gpus runs nvidia-smi. A machine without it has no GPUs.
func (c Config) gpus(ctx context.Context) ([]Device, error) {
	path, err := exec.LookPath(c.NvidiaSMI)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, "--query-gpu=uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")
	cmd.WaitDelay = c.Timeout / 10 // a child that keeps the pipe open does not keep us
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("list GPUs: %s: %w", c.NvidiaSMI, context.Cause(ctx))
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("list GPUs: %s: %w: %s", c.NvidiaSMI, err, strings.TrimSpace(string(exit.Stderr)+string(out)))
		}
		return nil, fmt.Errorf("list GPUs: %s: %w", c.NvidiaSMI, err)
	}
	return parseGPUs(string(out))
}

// parseGPUs reads lines of "uuid, name, total MiB, used MiB". What others use
// now is not ours to give.
func parseGPUs(out string) ([]Device, error) {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 4
	r.LazyQuotes = true
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: want lines of uuid, name, memory.total, memory.used: %w", err)
	}
	var gpus []Device
	seen := map[string]bool{}
	for _, rec := range records {
		total, err1 := mebibytes(rec[2])
		used, err2 := mebibytes(rec[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("list GPUs: %s (%s): %w", rec[1], rec[0], err)
		}
		if rec[0] == "" || seen[rec[0]] {
			return nil, fmt.Errorf("list GPUs: %q is no identifier of its own", rec[0])
		}
		seen[rec[0]] = true
		gpus = append(gpus, Device{
			ID: api.DeviceID(rec[0]), Name: rec[1], Total: total,
			Capacity: max(0, total-used-gpuReserve),
		})
	}
	return gpus, nil
}

// mebibytes reads a count of MiB. Devices that share the host's memory say "[N/A]".
func mebibytes(s string) (api.Bytes, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("memory %q: want a number of MiB", s)
	}
	return api.Bytes(n) * api.MiB, nil
}
