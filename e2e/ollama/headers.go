//go:build headers

package ollama

import _ "github.com/gen2brain/malgo" // miniaudio.h lies in the root of this module
