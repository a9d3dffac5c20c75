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
	// Depth is how many batches the engine sends ahead of their outputs, at most.
	Depth int `json:"depth,omitempty"`
	// Heartbeat is the time between two heartbeats, in milliseconds; 0: none.
	Heartbeat int `json:"heartbeat_ms,omitempty"`
	// PID is the worker's process ID.
	PID int `json:"pid,omitempty"`
}

// Verb says what an [Op] asks for.
type Verb string

// Verbs.
const (
	OpLoad          Verb = "load"           // Load → Info
	OpSleep         Verb = "sleep"          // Level: 1 gives memory back, 2 more of it; sequences are forgotten. Keep
	OpWake          Verb = "wake"           // Computes again, with an empty cache except for the blocks that were kept
	OpLoadAdapter   Verb = "load_adapter"   // Adapter
	OpUnloadAdapter Verb = "unload_adapter" // Adapter.ID
	OpStats         Verb = "stats"          // → Memory
	OpSaveBlocks    Verb = "save_blocks"    // File → Sums: writes cache blocks; also asleep, those that were kept
	OpLoadBlocks    Verb = "load_blocks"    // File: reads cache blocks; an error leaves them in any state
)

// Op is a request of the engine besides batches. ID comes back in the [Reply].
type Op struct {
	ID      uint64   `json:"id"`
	Verb    Verb     `json:"op"`
	Load    *Load    `json:"load,omitempty"`
	Level   int      `json:"level,omitempty"`
	Adapter *Adapter `json:"adapter,omitempty"`
	// Keep are the cache blocks whose contents a sleep of level 1 keeps in memory, for a worker whose Info says that it can.
	Keep []int32 `json:"keep,omitempty"`
	File *File   `json:"file,omitempty"`
}

// File says where cache blocks are in a file: Blocks[i] at Offset + i × Info.BlockBytes, with no gaps.
type File struct {
	Path   string  `json:"path"`
	Offset int64   `json:"offset"`
	Blocks []int32 `json:"blocks"`
	// Sums are the blocks' sums, 64-bit hashes that the kind of worker chooses. A block with another sum is not loaded.
	Sums []uint64 `json:"sums,omitempty"`
}

// Load says which model a worker runs, and how.
type Load struct {
	// Model is the path of a GGUF file, or a name that the worker knows.
	Model string `json:"model"`
	// Device is the kind of worker: "cpu" (the default), "sim", "cuda".
	Device string `json:"device,omitempty"`
	// Threads is the number of threads that compute; 0: the worker's default.
	Threads int `json:"threads,omitempty"`
	// Context bounds a sequence, in tokens; 0: as the model says.
	Context int `json:"context,omitempty"`
	// Sequences is the number of sequences of full length that the cache has room for; 0: the worker's default.
	Sequences int `json:"sequences,omitempty"`
	// CacheBytes limits the key-value cache; 0: the worker's default.
	CacheBytes int64 `json:"cache_bytes,omitempty"`
	// TileDir is where repacked weights are kept; empty: the worker's default.
	TileDir string `json:"tile_dir,omitempty"`
	// TileLimit bounds the files there, in bytes; 0: the worker's default.
	TileLimit int64 `json:"tile_limit,omitempty"`
	// Rank and Of say which share of the model this worker computes. Of 0 and 1: all of it.
	Rank int `json:"rank,omitempty"`
	Of   int `json:"of,omitempty"`
	// Memory is the file descriptor of the memory that all ranks share; 0: none.
	Memory int `json:"memory_fd,omitempty"`
	// Projector is the path of the file that makes embeddings of images; empty: none.
	Projector string `json:"projector,omitempty"`
	// Options are for one kind of device only.
	Options json.RawMessage `json:"options,omitempty"`
}

// Adapter is a LoRA adapter for all sequences whose [Spec] has its ID.
type Adapter struct {
	ID   int32  `json:"id"` // above 0
	Name string `json:"name,omitempty"`
	Path string `json:"path,omitempty"`
}

// Info describes a loaded model and its cache.
type Info struct {
	Model model.Config `json:"model"`
	// Blocks and BlockSize are the cache's geometry: how many blocks, of how many positions.
	Blocks    int `json:"blocks"`
	BlockSize int `json:"block_size"`
	// Keeps says that a sleep of level 1 can keep blocks, Saves that they can be saved. BlockBytes is the size of one
	// block.
	Keeps      bool  `json:"keeps,omitempty"`
	Saves      bool  `json:"saves,omitempty"`
	BlockBytes int64 `json:"block_bytes,omitempty"`
	// Layout names the form of a block's bytes and its sum; empty: the form of the worker in Go. Files of one layout
	// are of no use to a worker with another.
	Layout string `json:"layout,omitempty"`
}

// Reply answers an [Op].
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	// Memory is the model's memory in bytes.
	Memory int64 `json:"memory,omitempty"`
	// Sums are the sums of the saved blocks.
	Sums []uint64 `json:"sums,omitempty"`
}

// Spec holds the parameters of a sequence, which do not change.
type Spec struct {
	// Adapter is the adapter's ID; 0: none.
	Adapter int32 `json:"adapter,omitempty"`
	// Pool asks for a vector: "mean", "last" or "first"; "rank": for the score of a pair of texts.
	Pool string `json:"pool,omitempty"`
	// Index tells the continuations of one request apart: it is mixed into the seed.
	Index int `json:"index,omitempty"`
	// Images are in the prompt.
	Images []infer.Image `json:"images,omitempty"`

	// The other fields are package sample's Params.

	Temperature       float64           `json:"temperature,omitempty"`
	TopK              int               `json:"top_k,omitempty"`
	TopP              float64           `json:"top_p,omitempty"`
	MinP              float64           `json:"min_p,omitempty"`
	RepetitionPenalty float64           `json:"repetition_penalty,omitempty"`
	PresencePenalty   float64           `json:"presence_penalty,omitempty"`
	FrequencyPenalty  float64           `json:"frequency_penalty,omitempty"`
	LogitBias         map[int32]float32 `json:"logit_bias,omitempty"`
	Seed              *int64            `json:"seed,omitempty"`
	Logprobs          bool              `json:"logprobs,omitempty"`
	Top               int               `json:"top,omitempty"`
	// MinTokens is the number of tokens before which no end token may be chosen.
	MinTokens int     `json:"min_tokens,omitempty"`
	Ends      []int32 `json:"ends,omitempty"`
}

// SetParams fills in the sampling parameters.
func (s *Spec) SetParams(p sample.Params) {
	s.Temperature, s.TopK, s.TopP, s.MinP = p.Temperature, p.TopK, p.TopP, p.MinP
	s.RepetitionPenalty, s.PresencePenalty, s.FrequencyPenalty = p.RepetitionPenalty, p.PresencePenalty, p.FrequencyPenalty
	s.LogitBias, s.Seed, s.Logprobs, s.Top = p.LogitBias, p.Seed, p.Logprobs, p.Top
	s.MinTokens, s.Ends = p.MinTokens, p.Ends
	if p.MinTokens == 0 {
		s.Ends = nil
	}
}

// Params returns the sampling parameters.
func (s *Spec) Params() sample.Params {
	return sample.Params{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepetitionPenalty: s.RepetitionPenalty, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		LogitBias: s.LogitBias, Seed: s.Seed, Logprobs: s.Logprobs, Top: s.Top, MinTokens: s.MinTokens, Ends: s.Ends,
	}
}

// JSON returns the frame form of a spec: empty if everything is zero.
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

// ParseSpec returns the inverse of [Spec.JSON].
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

// EncodeJSON makes the payload of a hello, an op or a reply.
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

// DecodeJSON reads the payload of a hello, an op or a reply.
func DecodeJSON(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("decode a frame: %w", err)
	}
	return nil
}
