package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// envUsage names a file with the memory in use, a JSON object of bytes by UUID, for accelerators that nvidia-smi does not know.
const envUsage = "ROUSE_ACCELERATOR_MEMORY"

func gpuUsage(ctx context.Context) (map[api.DeviceID]api.Bytes, error) {
	if file := os.Getenv(envUsage); file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", envUsage, err)
		}
		used := map[api.DeviceID]api.Bytes{}
		if err := json.Unmarshal(raw, &used); err != nil {
			return nil, fmt.Errorf("$%s: %s: want a JSON object with bytes by UUID: %w", envUsage, file, err)
		}
		return used, nil
	}
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("nvidia-smi is not installed: %w; set $%s to a file with its output", err, envUsage)
	}
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	return parseUsage(out)
}

func parseUsage(out []byte) (map[api.DeviceID]api.Bytes, error) {
	used := map[api.DeviceID]api.Bytes{}
	for line := range bytes.Lines(out) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		id, amount, found := strings.Cut(text, ",")
		mib, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 64)
		if !found || err != nil || mib < 0 || mib > 1<<40 { // more overflows as bytes
			return nil, fmt.Errorf("nvidia-smi says %q: want a UUID and a number of MiB", text)
		}
		used[api.DeviceID(strings.TrimSpace(id))] = api.Bytes(mib) * api.MiB
	}
	return used, nil
}
