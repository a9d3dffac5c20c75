package api

import "testing"

func TestCheckFunctionName(t *testing.T) {
	for name, right := range map[FunctionName]bool{
		"a": true, "default/a": true, "1team/a-b": true, "t/a": true,
		"": false, "default/": false, "/a": false, "../a": false, "default/..": false, "A b/a": false, "x\ny/a": false, "t-/a": false,
		"a/b/c": false, "default/sim#2": false, "default/bad?": false, "default/%2e%2e": false,
	} {
		if err := name.Check(); (err == nil) != right {
			t.Errorf("%q: %v", name, err)
		}
	}
}
