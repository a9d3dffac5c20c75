package runtime

import (
	"bytes"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// stillInUse matches the line that each of vLLM's workers prints when it has fallen asleep. The second number covers its whole GPU,
// including other processes.
var stillInUse = lazyregexp.New(`Sleep mode .*freed -?[0-9.]+ GiB memory, ([0-9.]+) GiB memory is still in use`)

// StillInUse reads the used memory of a GPU, by any process, from the line that a server prints after it has fallen asleep.
func StillInUse(line []byte) (used api.Bytes, said bool) {
	if !bytes.Contains(line, []byte("still in use")) {
		return 0, false
	}
	match := stillInUse().FindSubmatch(line)
	if match == nil {
		return 0, false
	}
	gib, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil || !(gib >= 0 && gib < float64(api.MaxDeviceMemory/api.GiB)) {
		return 0, false
	}
	return api.Bytes(gib * float64(api.GiB)), true
}

// noRoom are messages of model servers about too little free GPU memory. The last one is vLLM's where another process freed or took some
// meanwhile.
const noRoom = `
cuda … out of memory
torch.outofmemoryerror
hip out of memory
free memory on device … is less than desired
no available memory for the cache blocks
not enough memory … mem-fraction-static
unable to allocate … buffer
failed to allocate … buffer
error in memory profiling … not properly clean
`

// NoRoom returns the first line of a model server's output about too little free GPU memory; empty: there is none.
func NoRoom(output string) string { return saying(output, noRoom) }
