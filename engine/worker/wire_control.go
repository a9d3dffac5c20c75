package worker

import (
	"encoding/json"
	"fmt"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/sample"
)

// Hello is each side's first frame.
type Hello struct {
	Protocol int `json:"protocol"`
	// Depth is the most batches ahead of their outputs.
	Depth int `json:"depth,omitempty"`
	// Heartbeat is in milliseconds; 0: none.
	Heartbeat int `json:"heartbeat_ms,omitempty"`
	PID       int `json:"pid,omitempty"`
}

// Verb is the kind of an [Op].
type Verb string

const (
	OpLoad          Verb = "load"           // Load → Info
	OpSleep         Verb = "sleep"          // Level: 1 gives memory back, 2 more; Keep. Sequences are forgotten
	OpWake          Verb = "wake"           // with an empty cache, but for kept blocks
	OpLoadAdapter   Verb = "load_adapter"   // Adapter
	OpUnloadAdapter Verb = "unload_adapter" // Adapter.ID
	OpStats         Verb = "stats"          // → Memory
	OpSaveBlocks    Verb = "save_blocks"    // File → Sums; also asleep, for kept blocks
	OpLoadBlocks    Verb = "load_blocks"    // File; an error leaves the blocks in any state
)

// Op is a request besides batches. Its [Reply] has its ID.
type Op struct {
	ID      uint64   `json:"id"`
	Verb    Verb     `json:"op"`
	Load    *Load    `json:"load,omitempty"`
	Level   int      `json:"level,omitempty"`
	Adapter *Adapter `json:"adapter,omitempty"`
	// Keep are the blocks that a sleep of level 1 keeps, if Info.Keeps.
	Keep []int32 `json:"keep,omitempty"`
	File *File   `json:"file,omitempty"`
}

// File has Blocks[i] at Offset + i × Info.BlockBytes.
type File struct {
	Path   string  `json:"path"`
	Offset int64   `json:"offset"`
	Blocks []int32 `json:"blocks"`
	// Sums are 64-bit hashes of the worker's choice. A block with another one is not loaded.
	Sums []uint64 `json:"sums,omitempty"`
}

// Load says which model a worker runs, and how.
type Load struct {
	// Model is a GGUF file, or a name that the worker knows.
	Model string `json:"model"`
	// Device is "cpu" ("" too), "sim" or "cuda".
	Device  string `json:"device,omitempty"`
	Threads int    `json:"threads,omitempty"` // 0: the worker's default
	// Context bounds a sequence, in tokens; 0: the model's.
	Context int `json:"context,omitempty"`
	// Sequences of full length fit in the cache; 0: the worker's default.
	Sequences int `json:"sequences,omitempty"`
	// CacheBytes bounds the KV cache; 0: the worker's default.
	CacheBytes int64 `json:"cache_bytes,omitempty"`
	// TileDir is for repacked weights; "": the worker's default.
	TileDir string `json:"tile_dir,omitempty"`
	// TileLimit is in bytes; 0: the worker's default.
	TileLimit int64 `json:"tile_limit,omitempty"`
	// Rank, from 0, is the worker's of Of shares. Of 0 or 1: it computes all.
	Rank int `json:"rank,omitempty"`
	Of   int `json:"of,omitempty"`
	// Memory is the descriptor of the ranks' shared memory; 0: none.
	Memory int `json:"memory_fd,omitempty"`
	// Projector is the file that makes embeddings of images; "": none.
	Projector string `json:"projector,omitempty"`
	// Options are for one device.
	Options json.RawMessage `json:"options,omitempty"`
}

// Adapter is a LoRA adapter for sequences whose [Spec] has its ID.
type Adapter struct {
	ID   int32  `json:"id"` // above 0
	Name string `json:"name,omitempty"`
	Path string `json:"path,omitempty"`
}

// Info describes a loaded model and its cache.
type Info struct {
	Model model.Config `json:"model"`
	// BlockSize is in positions.
	Blocks    int `json:"blocks"`
	BlockSize int `json:"block_size"`
	// Keeps: sleep can keep blocks. Saves: they can be saved.
	Keeps      bool  `json:"keeps,omitempty"`
	Saves      bool  `json:"saves,omitempty"`
	BlockBytes int64 `json:"block_bytes,omitempty"`
	// Layout names the form of blocks and sums; "": the worker's in Go.
	Layout string `json:"layout,omitempty"`
}

// Reply answers an [Op].
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	// Memory is the model's, in bytes.
	Memory int64    `json:"memory,omitempty"`
	Sums   []uint64 `json:"sums,omitempty"`
}

// Spec is a sequence's constant parameters.
type Spec struct {
	// Adapter is an ID; 0: none.
	Adapter int32 `json:"adapter,omitempty"`
	// Pool asks for a vector: "mean", "last" or "first"; "rank": for the score of two texts.
	Pool string `json:"pool,omitempty"`
	// Index tells a request's continuations apart: it is mixed into the seed.
	Index  int           `json:"index,omitempty"`
	Images []infer.Image `json:"images,omitempty"`

	sample.Params
}

// JSON returns nil for the zero Spec.
func (s *Spec) JSON() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode a sequence's parameters: %w", err)
	}
	if string(b) == "{}" {
		return nil, nil
	}
	return b, nil
}

// ParseSpec inverts [Spec.JSON].
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	if len(b) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("decode a sequence's parameters: %w", err)
	}
	return s, nil
}

// EncodeJSON makes a hello, an op or a reply.
func EncodeJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a frame: %w", err)
	}
	return b, nil
}

// SendJSON sends a hello, an op or a reply.
func SendJSON(c Conn, kind Kind, v any) error {
	b, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	return c.Send(kind, b)
}

// DecodeJSON reads a hello, an op or a reply.
func DecodeJSON(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("decode a frame: %w", err)
	}
	return nil
}
