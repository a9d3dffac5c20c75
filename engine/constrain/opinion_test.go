package constrain_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// judged is a schema with texts of its grammar, for a validator in another language.
type judged struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Texts  []string        `json:"texts"`
}

// secondOpinion asks Ajv about texts, if testdata/suite has it: npm ci there, or make deep PART=schemas.
func secondOpinion(t *testing.T, all []judged) {
	t.Helper()
	folder := filepath.Join("testdata", "suite")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "ajv")); err != nil {
		t.Log("Ajv is not asked: npm ci in testdata/suite installs it")
		return
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "texts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := json.NewEncoder(f)
	for _, j := range all {
		// Ajv takes an address beside $ref for a base URI. Before 2019 it is none.
		if strings.Contains(j.Name, "prevents a sibling") {
			continue
		}
		if err := e.Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "check.mjs", f.Name())
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Ajv: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, l := range lines[:len(lines)-1] {
		t.Errorf("Ajv: %.600s", l)
	}
	t.Logf("Ajv: %s", lines[len(lines)-1])
}
