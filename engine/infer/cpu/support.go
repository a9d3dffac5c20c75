package cpu

import (
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// supported refuses models with features or tensor types that the forward pass does not have.
func supported(m *model.Model) error {
	if f := m.Features(); len(f) > 0 {
		return fmt.Errorf("the model needs %s, which this forward pass does not have", strings.Join(f, ", "))
	}
	var err error
	check := func(x *model.Matrix) {
		switch x.Type {
		case gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0:
		default:
			err = fmt.Errorf("the model has matrices of type %s, which this forward pass does not have: use a file in F32, F16, BF16 or Q8_0", x.Type)
		}
	}
	check(&m.Embed)
	check(&m.Output)
	for i := range m.Layers {
		m.Layers[i].Matrices(check)
	}
	return err
}
