package process

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// GPUMemory returns the memory that a process and its descendants hold of the GPU of which they hold most, according to nvidia-smi. found
// is false if that lists none of them: in a container it may not see them. It returns when ctx ends, even if nvidia-smi hangs in its
// driver.
func GPUMemory(ctx context.Context, pid int) (held api.Bytes, found bool, err error) {
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-compute-apps=pid,gpu_uuid,used_gpu_memory", "--format=csv,noheader,nounits")
	cmd.WaitDelay = 100 * time.Millisecond
	type output struct {
		text []byte
		err  error
	}
	ended := make(chan output, 1) // buffered: there may be no receiver any more
	go func() {                   // not awaited if it hangs
		text, err := cmd.Output()
		ended <- output{text, err}
	}()
	var out output
	select {
	case out = <-ended:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		out.err = context.Cause(ctx)
	}
	if out.err != nil {
		return 0, false, fmt.Errorf("nvidia-smi lists no processes: %w", out.err)
	}
	held, found = heldBy(string(out.text), descent(pid))
	return held, found, nil
}

// heldBy reads lines of "pid, UUID of a GPU, MiB". Those without a number, such as "[N/A]", are skipped.
func heldBy(lines string, pids []int) (most api.Bytes, found bool) {
	on := make(map[string]api.Bytes)
	for line := range strings.Lines(lines) {
		fields := strings.Split(line, ",")
		if len(fields) != 3 {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(fields[0]))
		if err != nil || !slices.Contains(pids, pid) {
			continue
		}
		mib, err := strconv.ParseInt(strings.TrimSpace(fields[2]), 10, 64)
		if err != nil || mib < 0 || mib > int64(api.MaxDeviceMemory/api.MiB) {
			continue
		}
		found = true
		on[fields[1]] += api.Bytes(mib) * api.MiB
		most = max(most, on[fields[1]])
	}
	return most, found
}
