package main

import (
	"os"
	"testing"
)

func TestCurrent(t *testing.T) {
	got, err := os.ReadFile("../tile512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != generate() {
		t.Error("tile512_amd64.s is not what gen512 writes: run go generate ./engine/kernel")
	}
}
