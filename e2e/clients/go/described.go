//go:build described

package clients

// The module's folder _testdata/examples has OpenAI's descriptions.
import _ "github.com/ogen-go/ogen/ogenregex"
