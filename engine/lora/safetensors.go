package lora

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// maxHeader is the format's own library's.
const maxHeader = 100 << 20

// parseSafetensors reads all matrices of a safetensors file (github.com/huggingface/safetensors): eight bytes with
// the length of a JSON object, which names each tensor's type, shape and place, then the tensors.
func parseSafetensors(data []byte) ([]half, error) {
	if len(data) < 8 {
		return nil, errors.New("it is no safetensors file: it is too short")
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) {
		return nil, fmt.Errorf("it is no safetensors file, or it is cut off: its header would have %d of %d bytes", n, len(data)-8)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("its header can't be read: %w", err)
	}
	body := data[8+n:]
	left := len(body)
	var out []half
	for name, raw := range header {
		if name == "__metadata__" {
			continue
		}
		h, size, err := parseTensor(raw, body)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if left -= size; left < 0 {
			return nil, errors.New("its tensors lie one over the other: the file is damaged")
		}
		h.name = name
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b half) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func parseTensor(raw json.RawMessage, body []byte) (h half, bytes int, err error) {
	var t struct {
		Type  string    `json:"dtype"`
		Shape []int     `json:"shape"`
		Place [2]uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return half{}, 0, err
	}
	size := map[string]int{"F32": 4, "F16": 2, "BF16": 2}[t.Type]
	switch {
	case size == 0:
		return half{}, 0, fmt.Errorf("type %s is not supported; supported are F32, F16 and BF16", t.Type)
	case len(t.Shape) != 2:
		return half{}, 0, fmt.Errorf("shape %v: want a matrix", t.Shape)
	case t.Shape[0] < 0 || t.Shape[1] < 0 || t.Shape[0] > 1<<30 || t.Shape[1] > 1<<30:
		return half{}, 0, fmt.Errorf("shape %v is out of range", t.Shape)
	case t.Place[0] > t.Place[1] || t.Place[1] > uint64(len(body)):
		return half{}, 0, fmt.Errorf("bytes %d to %d lie outside the file's %d", t.Place[0], t.Place[1], len(body))
	case t.Place[1]-t.Place[0] != uint64(t.Shape[0])*uint64(t.Shape[1])*uint64(size):
		return half{}, 0, fmt.Errorf("%d bytes do not hold shape %v of %s", t.Place[1]-t.Place[0], t.Shape, t.Type)
	}
	b := body[t.Place[0]:t.Place[1]]
	x := make([]float32, t.Shape[0]*t.Shape[1])
	for i := range x {
		switch t.Type {
		case "F32":
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		case "F16":
			x[i] = gguf.F16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
		default:
			x[i] = gguf.BF16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
	return half{rows: t.Shape[0], cols: t.Shape[1], x: x}, len(b), nil
}
