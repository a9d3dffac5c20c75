package control

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths between the parts of a cluster.
//
// An instance owns the credential for its control paths: it makes a random token
// when it starts and sends it as a bearer token with everything that it posts to
// the autoscaler ([PathRegister], [PathEvents]). The autoscaler takes the instance's
// address from where the connection comes from and compares it with what
// Kubernetes says of the pod; so a token is only ever tied to its own sender.
//
// Between autoscaler, activators and kn-rouse every call carries the cluster's
// token, from the Secret [ControlSecret] in the system namespace.
const (
	PathRegister = "/rouse/v1/join"   // at the autoscaler, POST RegisterRequest: RegisterAnswer
	PathReport   = "/rouse/v1/report" // at an instance, POST without a body or credential: send a report now; 202

	PathGrants    = "/rouse/v1/grants"    // at an activator, POST Grant: 204
	PathRevoke    = "/rouse/v1/revoke"    // at an activator, POST Grant: 204 once no wake under it is under way or can begin
	PathFail      = "/rouse/v1/fail"      // at an activator, POST FailRequest: 204
	PathInstances = "/rouse/v1/instances" // at an activator, POST InstanceReport: 204
	PathStats     = "/rouse/v1/stats"     // at an activator, GET ?function=NAMESPACE/NAME: its view of the function; POST: send its demand now, 204
	PathUsage     = "/rouse/v1/usage"     // at an activator, POST UsageMessage of another activator: UsageMessage
)

// Names in a cluster. All lie in the system namespace, knative-serving.
const (
	SystemNamespace     = "knative-serving"
	ActivatorName       = "rouse-activator"  // Deployment; its pods have the label app=rouse-activator
	AgentName           = "rouse-agent"      // Deployment of agents, activators for front doors elsewhere; its pods have the label app=rouse-agent
	AutoscalerName      = "rouse-autoscaler" // Deployment, Service and Lease; its pods have the label app=rouse-autoscaler
	ControlSecret       = "rouse-control"    // Secret with the key "token"
	ControlSecretKey    = "token"
	KeysSecret          = "rouse-keys" // Secret with the keys of clients (config/apikey), in the key "keys.yaml"
	KeysSecretKey       = "keys.yaml"
	LearnedConfigMap    = "rouse-learned" // ConfigMap with what leaders have learned of when functions are wanted, in the key "rhythms.json"; it may be emptied
	LearnedKey          = "rhythms.json"
	FrontDoorName       = "rouse"                                       // Service of the front door
	LabelLeader         = "rouse.dev/leader"                            // "true" on the pod of the autoscaler that decides; its Service selects it
	AutoscalerPort      = 8080                                          // events, joins and administration; Service port 80
	ActivatorPort       = 8014                                          // the activator's control paths
	MetricsPort         = 9091                                          // /metrics of activator and autoscaler, /healthz and /readyz of the autoscaler
	DefaultControlURL   = "http://rouse-autoscaler.knative-serving.svc" // where instances join
	DefaultFunctionPort = 8080
	FunctionMetricsPort = 9089 // /metrics of an instance, and nothing else: for Prometheus
)

// RegisterRequest is how an instance introduces itself.
type RegisterRequest struct {
	// Instance is the pod's name, Namespace its namespace.
	Instance  api.InstanceID `json:"instance"`
	Namespace string         `json:"namespace"`
	// Revision is the Knative revision (K_REVISION).
	Revision string `json:"revision"`
	// Port is where the instance takes requests; the address is that of the connection.
	Port int `json:"port"`
	// Role is what the pod was made for; empty for a pod of a Knative Deployment, which
	// learns its role from the answer.
	Role Role `json:"role,omitempty"`
	// Devices are the GPUs that it was given.
	Devices []api.DeviceID `json:"devices,omitempty"`
	// Version is the function's program's.
	Version string `json:"version,omitempty"`
}

// Role is the part of a pod in how a function holds its GPUs.
type Role string

// Roles.
const (
	RoleInstance  Role = ""          // claims its GPUs and runs the model
	RoleRequester Role = "requester" // claims GPUs only, for a provider
	RoleProvider  Role = "provider"  // runs the model on the GPUs that a requester claims
)

// RegisterAnswer tells an instance what it is. The function's Runtime.Env is empty:
// the container has its environment already.
type RegisterAnswer struct {
	Function api.Function `json:"function"`
	// Role is the part that the pod has to play.
	Role Role `json:"role,omitempty"`
	// Endpoint is the instance's own address as others reach it.
	Endpoint api.Endpoint `json:"endpoint"`
	// Epoch is the highest that it was ordered or granted with, that of its start at first: a
	// process that begins anew in its pod has forgotten what it had seen.
	Epoch uint64 `json:"epoch"`
	// Seq is the number of the last report that is known of it: those of a process that begins
	// anew are higher, though its clock may have been set back.
	Seq uint64 `json:"seq,omitempty"`
	// Asleep says that it begins asleep, without a runtime: it was asleep when its process before
	// ended, and what it would need awake may be another's by now.
	Asleep bool `json:"asleep,omitempty"`
	// Trace is the W3C traceparent of the wake that it was started for; empty: none is known.
	Trace string `json:"trace,omitempty"`
}

// FailRequest has an activator answer all that waits for a function with an error. A
// zero Status takes it back.
type FailRequest struct {
	Function   api.FunctionName `json:"function"`
	Status     int              `json:"status"`
	Code       string           `json:"code,omitempty"`
	Message    string           `json:"message,omitempty"`
	RetryAfter time.Duration    `json:"retryAfter,omitempty"`
}

// InstanceReport passes an instance's status on to an activator, with the
// credential for its control paths.
type InstanceReport struct {
	Status api.InstanceStatus `json:"status"`
	Token  string             `json:"token,omitempty"`
}
