// Package admin is the contract of the administrative API, which people's tools
// speak: what the paths are and what their answers look like. A server on one
// machine (internal/local) serves it on the user's own socket, the autoscaler of
// a cluster behind the cluster's token; the commands of rouse and of kn-rouse
// read it. It holds types and names only.
//
// A function is addressed as NAMESPACE/NAME; see [FunctionPath].
package admin

import (
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// Paths of the administrative API, beside [control.PathEvents].
const (
	PathInfo      = "/rouse/v1/info"      // GET: who serves
	PathDevices   = "/rouse/v1/devices"   // GET: []Device
	PathFunctions = "/rouse/v1/functions" // GET: []Function; on one machine POST api.Function: declare it
	// PathFunctions + "/NAMESPACE/NAME": GET Function, DELETE; + /wake, /sleep?level=N, /stop: POST;
	// + /logs?tail=N&follow=true: text lines; + /why: []api.Decision; + /wakes: []api.Outline.
)

// Device is the account of one device.
type Device = decide.Line

// Function is all that a server knows of a function.
type Function struct {
	decide.View
	Activator api.Activity `json:"activator"`
}

// FunctionPath is the path of a function, with rest after it ("", "/wake", …).
func FunctionPath(f api.FunctionName, rest string) string {
	return PathFunctions + "/" + f.Namespace() + "/" + f.Name() + rest
}
