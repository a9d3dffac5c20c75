package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

const (
	configFile  = "adapter_config.json"
	weightsFile = "adapter_model.safetensors"
)

// peftConfig is the part of adapter_config.json that is used (huggingface.co/docs/peft, LoraConfig).
type peftConfig struct {
	Type         string             `json:"peft_type"`
	Rank         int                `json:"r"`
	Alpha        float64            `json:"lora_alpha"`
	AlphaOf      map[string]float64 `json:"alpha_pattern"`
	RSLoRA       bool               `json:"use_rslora"`
	DoRA         bool               `json:"use_dora"`
	Bias         string             `json:"bias"`
	LoraBias     bool               `json:"lora_bias"`
	FanInFanOut  bool               `json:"fan_in_fan_out"`
	ModulesSaved []string           `json:"modules_to_save"`
}

func (p *peftConfig) check() error {
	switch {
	case !strings.EqualFold(p.Type, "LORA"):
		return fmt.Errorf("peft_type is %q: only LORA is supported", p.Type)
	case p.Rank < 1 || p.Rank > MaxRank:
		return fmt.Errorf("r is %d: want 1 to %d", p.Rank, MaxRank)
	case math.IsNaN(p.Alpha) || math.IsInf(p.Alpha, 0):
		return fmt.Errorf("lora_alpha is %v: want a number", p.Alpha)
	case p.DoRA:
		return errors.New("use_dora is set: DoRA is not supported, merge the adapter into the model instead")
	case p.Bias != "" && p.Bias != "none" || p.LoraBias:
		return fmt.Errorf("bias is %q: trained biases are not supported, want \"none\"", p.Bias)
	case p.FanInFanOut:
		return errors.New("fan_in_fan_out is set: transposed matrices are not supported")
	case len(p.ModulesSaved) > 0:
		return fmt.Errorf("modules_to_save is %q: whole modules in an adapter are not supported, merge it into the model instead", p.ModulesSaved)
	}
	return nil
}

// A pattern's key is a regular expression that matches the end of the module's name.
func (p *peftConfig) scale(module string, rank int) (float32, error) {
	alpha, matched := p.Alpha, ""
	for _, key := range slices.Sorted(maps.Keys(p.AlphaOf)) {
		re, err := regexp.Compile(`(^|.*\.)(` + key + `)$`)
		if err != nil {
			return 0, fmt.Errorf("alpha_pattern %q is no regular expression: %w", key, err)
		}
		if !re.MatchString(module) {
			continue
		}
		if matched != "" && p.AlphaOf[key] != alpha {
			return 0, fmt.Errorf("alpha_pattern has %q and %q for %s: want one", matched, key, module)
		}
		alpha, matched = p.AlphaOf[key], key
	}
	if p.RSLoRA {
		return float32(alpha / math.Sqrt(float64(rank))), nil
	}
	return float32(alpha / float64(rank)), nil
}

var peftName = lazyregexp.New(`^(?:base_model\.model\.)?((?:\w+\.)*?layers\.(\d{1,6})\.(?:self_attn|mlp)\.(\w+))\.lora_([AB])(?:\.default)?\.weight$`)

var peftTargets = map[string][]Target{
	"q_proj": {Q}, "k_proj": {K}, "v_proj": {V}, "o_proj": {O}, "gate_proj": {Gate}, "up_proj": {Up}, "down_proj": {Down},
	"qkv_proj": {Q, K, V}, "gate_up_proj": {Gate, Up},
}

// ReadPEFT reads an adapter from a folder that the PEFT library wrote.
func ReadPEFT(fsys fs.FS, c model.Config) (*Adapter, error) {
	data, err := fs.ReadFile(fsys, configFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: want a folder that PEFT saved, or a GGUF file", configFile)
	}
	if err != nil {
		return nil, err
	}
	var p peftConfig
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	data, err = readFile(fsys, weightsFile, c)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: adapter_model.bin can't be read, save the adapter with safe_serialization=True", weightsFile)
	}
	if err != nil {
		return nil, err
	}
	halves, err := parseSafetensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFile, err)
	}
	return p.assemble(halves, c)
}

func (p *peftConfig) assemble(halves []half, c model.Config) (*Adapter, error) {
	b := &builder{c: c}
	byName := map[string]half{}
	for _, h := range halves {
		byName[h.name] = h
	}
	for _, h := range halves {
		m := peftName().FindStringSubmatch(h.name)
		if m == nil || peftTargets[m[3]] == nil {
			return nil, misplaced(h.name)
		}
		counterpart := map[string]string{"A": "lora_B", "B": "lora_A"}[m[4]]
		other, ok := byName[strings.Replace(h.name, "lora_"+m[4], counterpart, 1)]
		if !ok {
			return nil, fmt.Errorf("tensor %q has no counterpart %s", h.name, counterpart)
		}
		if m[4] == "B" {
			continue
		}
		scale, err := p.scale(m[1], max(h.rows, 1))
		if err != nil {
			return nil, err
		}
		targets := peftTargets[m[3]]
		heads := map[Target]int{Q: c.Heads, K: c.KVHeads}[targets[0]]
		if !c.RopeNeoX && len(targets) == 1 && heads > 0 && other.rows == heads*c.HeadDim {
			other.x = interleave(other.x, heads, c.HeadDim, other.cols)
		}
		layer, _ := strconv.Atoi(m[2])
		b.add(layer, targets, found{h, other, scale})
	}
	return b.adapter()
}

// interleave reorders the rows of queries and keys: the two numbers that rotate together are half a head apart in
// Hugging Face's layout, side by side in GGUF files of the llama architecture.
func interleave(x []float32, heads, headDim, cols int) []float32 {
	out := make([]float32, len(x))
	for h := range heads {
		for j := range headDim {
			from := h*headDim + j%2*(headDim/2) + j/2
			copy(out[(h*headDim+j)*cols:][:cols], x[from*cols:][:cols])
		}
	}
	return out
}
