package runtime

import (
	"bytes"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// stillInUse is what each of vLLM's workers says when it has fallen asleep. The second number is
// of its whole GPU: what other processes use of it is counted.
var stillInUse = lazyregexp.New(`Sleep mode .*freed -?[0-9.]+ GiB memory, ([0-9.]+) GiB memory is still in use`)

// StillInUse reads from a line of a server's output how much of a GPU is in use, whoever uses it, after
// the server has fallen asleep.
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

// noRoom are what model servers say, in lower case, where too little memory of a GPU is free: the
// parts of one line, in their order.
var noRoom = [][]string{
	{"cuda", "out of memory"}, {"torch.outofmemoryerror"}, {"hip out of memory"}, // PyTorch, vLLM's allocator, llama.cpp
	{"free memory on device", "is less than desired"},   // vLLM
	{"no available memory for the cache blocks"},        // vLLM
	{"not enough memory", "mem-fraction-static"},        // SGLang
	{"unable to allocate", "buffer"},                    // llama.cpp, Ollama
	{"failed to allocate", "buffer"},                    // the same
	{"error in memory profiling", "not properly clean"}, // vLLM: another gave some back or took some meanwhile
}

// NoRoom returns the first line of what a model server says that tells of too little free memory of a GPU;
// empty: there is none.
func NoRoom(output string) string { return saying(output, noRoom) }
