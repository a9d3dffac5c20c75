package control

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths between the parts of a cluster.
//
// An instance makes a random token when it starts, the credential for its control paths, and sends it as a bearer
// token with what it posts to the autoscaler ([PathRegister], [PathEvents]). The autoscaler compares the
// connection's address with Kubernetes' address of the pod, or has Kubernetes check a proof of the pod's identity:
// a token is only ever tied to its own sender.
//
// Calls between autoscaler, activators and kn-rouse carry the cluster's token, from the Secret [ControlSecret].
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
	ActivatorName       = "rouse-activator"  // Deployment; its pods have the label app=rouse-activator
	AgentName           = "rouse-agent"      // Deployment of agents; its pods have the label app=rouse-agent
	AutoscalerName      = "rouse-autoscaler" // Deployment, Service and Lease; its pods have the label app=rouse-autoscaler
	ControlSecret       = "rouse-control"    // Secret
	ControlSecretKey    = "token"
	KeysSecret          = "rouse-keys" // Secret with the clients' keys (config/apikey)
	KeysSecretKey       = "keys.yaml"
	LearnedConfigMap    = "rouse-learned" // ConfigMap with the times at which functions are usually wanted; it may be emptied
	LearnedKey          = "rhythms.json"
	UsageKey            = "usage.json"       // in the same ConfigMap, what was used until now
	FrontDoorName       = "rouse"            // Service of the front door
	LabelLeader         = "rouse.dev/leader" // "true" on the leading autoscaler's pod; its Service selects it
	AutoscalerPort      = 8080               // events, joins and administration; Service port 80
	ActivatorPort       = 8014
	MetricsPort         = 9091 // /metrics of activator and autoscaler, /healthz and /readyz of the autoscaler
	DefaultControlURL   = "http://rouse-autoscaler.knative-serving.svc"
	DefaultFunctionPort = 8080
	FunctionMetricsPort = 9089 // /metrics of an instance and nothing else
)

// RegisterRequest registers an instance.
type RegisterRequest struct {
	// Instance is the pod's name.
	Instance  api.InstanceID `json:"instance"`
	Namespace string         `json:"namespace"`
	// Revision is the Knative revision (K_REVISION).
	Revision string `json:"revision"`
	// Port accepts the instance's requests; the address is the connection's.
	Port int `json:"port"`
	// Role is empty for a pod of a Knative Deployment, which learns its role from the answer.
	Role Role `json:"role,omitempty"`
	// Devices are the GPUs allocated to the pod.
	Devices []api.DeviceID `json:"devices,omitempty"`
	// Version is the version of the function's program.
	Version string `json:"version,omitempty"`
	// Proof is the content of [ProofFile]; empty: there is none. It is a secret, valid for [ProofAudience] only.
	Proof string `json:"proof,omitempty"`
}

// The proof of a pod's identity: a token of its service account that the kubelet mounts and that is bound to the
// pod.
const (
	ProofAudience = "rouse-autoscaler"
	ProofFile     = "/var/run/secrets/rouse.dev/proof"
)

// Role is a pod's role in holding a function's GPUs.
type Role string

const (
	RoleInstance  Role = ""          // claims its GPUs and runs the model
	RoleRequester Role = "requester" // claims GPUs only, for a provider
	RoleProvider  Role = "provider"  // runs the model on the GPUs that a requester claims
)

// RegisterAnswer configures an instance. The function's Runtime.Env is empty: the container has its environment.
type RegisterAnswer struct {
	Function api.Function `json:"function"`
	Role     Role         `json:"role,omitempty"`
	// Endpoint is the instance's own address as others reach it.
	Endpoint api.Endpoint `json:"endpoint"`
	// Epoch is the highest of an order or grant for the instance: a process that restarts in its pod has forgotten
	// it.
	Epoch uint64 `json:"epoch"`
	// Seq is the number of its last known report. A restarted process begins above it, even if its clock was set
	// back.
	Seq uint64 `json:"seq,omitempty"`
	// Asleep: it starts asleep, without a runtime, because its previous process was: the memory may belong to
	// another now.
	Asleep bool `json:"asleep,omitempty"`
	// Trace is the W3C traceparent of the wake that caused the start, if known.
	Trace string `json:"trace,omitempty"`
}

// FailRequest has an activator answer all requests waiting for a function with an error. A zero Status revokes it.
type FailRequest struct {
	Function   api.FunctionName `json:"function"`
	Status     int              `json:"status"`
	Code       string           `json:"code,omitempty"`
	Message    string           `json:"message,omitempty"`
	RetryAfter time.Duration    `json:"retryAfter,omitempty"`
}

// InstanceReport forwards an instance's status to an activator, with the credential for its control paths.
type InstanceReport struct {
	Status api.InstanceStatus `json:"status"`
	Token  string             `json:"token,omitempty"`
	// GPUs is how many GPUs the instance holds while awake, in shares of their memory.
	GPUs float64 `json:"gpus,omitempty"`
}
