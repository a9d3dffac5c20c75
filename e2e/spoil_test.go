package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// spoils make a bad model of a good one: each changes a few bytes, as a broken
// download or a strange converter does, and keeps the rest.
var spoils = map[string]func([]byte) ([]byte, error){
	"empty":     func([]byte) ([]byte, error) { return nil, nil },
	"truncated": func(b []byte) ([]byte, error) { return b[:len(b)/2], nil },
	"header":    func(b []byte) ([]byte, error) { return b[:40], nil },
	"magic":     func(b []byte) ([]byte, error) { return append([]byte("GGML"), b[4:]...), nil },
	"version":   func(b []byte) ([]byte, error) { b[4] = 99; return b, nil },
	"architecture": func(b []byte) ([]byte, error) {
		return b, change(b, "general.architecture", 4+8, []byte("mamba"))
	},
	"vocabulary": func(b []byte) ([]byte, error) {
		return b, change(b, "tokenizer.ggml.tokens", -len("tokenizer.ggml.tokens"), []byte("tokenizer.ggml.gone!!"))
	},
	// A tensor's name is followed by the number of its dimensions (two), these, its type and its offset.
	"quantisation": func(b []byte) ([]byte, error) {
		return b, change(b, "token_embd.weight", 4+8+8, binary.LittleEndian.AppendUint32(nil, 24))
	},
	"bounds": func(b []byte) ([]byte, error) {
		return b, change(b, "token_embd.weight", 4+8+8+4, binary.LittleEndian.AppendUint64(nil, 1<<40))
	},
	"overflow": func(b []byte) ([]byte, error) {
		return b, change(b, "token_embd.weight", 4, binary.LittleEndian.AppendUint64(nil, 1<<62))
	},
}

// change writes at a distance behind the first appearance of name.
func change(b []byte, name string, distance int, with []byte) error {
	at := bytes.Index(b, []byte(name))
	if at < 0 {
		return fmt.Errorf("the model has no %q", name)
	}
	copy(b[at+len(name)+distance:], with)
	return nil
}

// spoil HOW FILE: write a bad model to a file.
func spoilCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || spoils[args[0]] == nil {
		ts.Fatalf("spoil: %v", errUsage)
	}
	good, err := os.ReadFile(ts.Getenv("PICO"))
	ts.Check(err)
	bad, err := spoils[args[0]](good)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bad, 0o600))
}
