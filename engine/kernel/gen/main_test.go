package main

import (
	"os"
	"testing"
)

func TestCurrent(t *testing.T) {
	for set, file := range map[string]string{"avx2": "tile_amd64.s", "avx512": "tile512_amd64.s", "neon": "tile_arm64.s"} {
		got, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != generate(set) {
			t.Errorf("%s is not what gen writes: run go generate ./engine/kernel", file)
		}
	}
}
