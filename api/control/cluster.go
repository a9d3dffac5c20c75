package control

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths between the parts of a cluster.
//
// An instance makes a random token, the credential for its control paths, and sends it to the autoscaler
// ([PathRegister], [PathEvents]), which checks the connection's address, or a proof of the pod's identity, with
// Kubernetes. So a token is tied to its sender.
//
// Calls between autoscaler, activators and kn-rouse carry the token of the Secret [ControlSecret].
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

// Names in a cluster, in the system namespace.
const (
	SystemNamespace     = "knative-serving"
	ActivatorName       = "rouse-activator"  // Deployment, and the label app of its pods
	AgentName           = "rouse-agent"      // Deployment of agents, and the label app of its pods
	AutoscalerName      = "rouse-autoscaler" // Deployment, Service and Lease, and the label app of its pods
	ControlSecret       = "rouse-control"    // Secret
	ControlSecretKey    = "token"
	KeysSecret          = "rouse-keys" // Secret (config/apikey)
	KeysSecretKey       = "keys.yaml"
	LearnedConfigMap    = "rouse-learned" // ConfigMap of the times at which functions are wanted; it may be emptied
	LearnedKey          = "rhythms.json"
	UsageKey            = "usage.json"       // what was used until now
	FrontDoorName       = "rouse"            // Service of the front door
	LabelLeader         = "rouse.dev/leader" // "true" on the leading autoscaler's pod; its Service selects it
	AutoscalerPort      = 8080               // Service port 80
	ActivatorPort       = 8014
	MetricsPort         = 9091 // /metrics; /healthz and /readyz of the autoscaler
	DefaultControlURL   = "http://rouse-autoscaler.knative-serving.svc"
	DefaultFunctionPort = 8080
	FunctionMetricsPort = 9089 // /metrics only
)

// RegisterRequest registers an instance.
type RegisterRequest struct {
	// The pod's name.
	Instance  api.InstanceID `json:"instance"`
	Namespace string         `json:"namespace"`
	// K_REVISION.
	Revision string `json:"revision"`
	// The address is the connection's.
	Port int `json:"port"`
	// A pod of a Knative Deployment learns its role from the answer.
	Role Role `json:"role,omitempty"`
	// Allocated to the pod.
	Devices []api.DeviceID `json:"devices,omitempty"`
	// Of the function's program.
	Version string `json:"version,omitempty"`
	// The content of [ProofFile], if any. It is a secret, valid for [ProofAudience] only.
	Proof string `json:"proof,omitempty"`
}

// A token of the pod's service account that the kubelet mounts, bound to the pod.
const (
	ProofAudience = "rouse-autoscaler"
	ProofFile     = "/var/run/secrets/rouse.dev/proof"
)

// Role is a pod's part in holding a function's GPUs.
type Role string

const (
	RoleInstance  Role = ""          // both
	RoleRequester Role = "requester" // claims GPUs for a provider
	RoleProvider  Role = "provider"  // runs the model on a requester's GPUs
)

// RegisterAnswer configures an instance. Runtime.Env is empty: the container has it.
type RegisterAnswer struct {
	Function api.Function `json:"function"`
	Role     Role         `json:"role,omitempty"`
	// As others reach the instance.
	Endpoint api.Endpoint `json:"endpoint"`
	// The highest of an order or grant: a restarted process has forgotten it.
	Epoch uint64 `json:"epoch"`
	// Of its last known report: a restarted process begins above.
	Seq uint64 `json:"seq,omitempty"`
	// Its previous process slept: the memory may be another's now.
	Asleep bool `json:"asleep,omitempty"`
	// The W3C traceparent of the wake, if known.
	Trace string `json:"trace,omitempty"`
}

// FailRequest answers waiting requests of a function with an error. A zero Status revokes it.
type FailRequest struct {
	Function   api.FunctionName `json:"function"`
	Status     int              `json:"status"`
	Code       string           `json:"code,omitempty"`
	Message    string           `json:"message,omitempty"`
	RetryAfter time.Duration    `json:"retryAfter,omitempty"`
}

// InstanceReport is an instance's status, with the credential for its control paths.
type InstanceReport struct {
	Status api.InstanceStatus `json:"status"`
	Token  string             `json:"token,omitempty"`
	// Held while awake, in shares of their memory.
	GPUs float64 `json:"gpus,omitempty"`
}
