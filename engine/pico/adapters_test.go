package pico

import (
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

func TestAdaptersFitTheModel(t *testing.T) {
	f, err := gguf.Parse(GGUF())
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range AdapterPaths {
		a, err := lora.ReadFS(Adapters, path, c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, l := range a.Layers {
			for target, p := range l {
				if p == nil {
					t.Errorf("%s: layer %d has no change of %s", name, i, lora.Target(target))
				}
			}
		}
	}
}
