package inventory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// gpuReserve is never allocated on a GPU: contexts and fragmentation take it.
const gpuReserve = 256 * api.MiB

// gpus runs nvidia-smi. A machine without it has no GPUs.
func (c Config) gpus(ctx context.Context) ([]Device, error) {
	out, err := c.query(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseGPUs(out)
}

// parseGPUs converts nvidia-smi's output to devices.
func parseGPUs(out string) ([]Device, error) {
	us, err := parseUsage(out)
	if err != nil {
		return nil, err
	}
	var gpus []Device
	for _, u := range us {
		gpus = append(gpus, u.NewDevice())
	}
	return gpus, nil
}

// mebibytes parses a number of MiB. Devices that share the host's memory print "[N/A]".
func mebibytes(s string) (api.Bytes, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(s), " MiB"), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("memory %q: want a number of MiB", s)
	}
	return api.Bytes(n) * api.MiB, nil
}
