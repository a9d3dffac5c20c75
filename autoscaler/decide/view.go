package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// View is all that the autoscaler knows of one function, for people.
type View struct {
	Function  api.Function         `json:"function"`
	Instances []api.InstanceStatus `json:"instances"`
	// Waiting and Running are the sums over all activators.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Desired is how many instances are wanted awake; Scale says where that comes from, where it is
	// neither demand nor min-scale.
	Desired int    `json:"desired"`
	Scale   *Scale `json:"scale,omitempty"`
	// LastRequest is when the last request came, zero if none ever did.
	LastRequest time.Time `json:"lastRequest"`
	// Need is what one awake instance takes: declared, measured or assumed.
	Need api.Memory `json:"need"`
	// Learned is the experience with its instances.
	Learned inventory.Experience `json:"learned"`
	// Granted are the instances that activators may wake without asking.
	Granted []api.InstanceID `json:"granted,omitempty"`
	// Failures in a row, the last one's message, and when the next try may be.
	Failures  int       `json:"failures,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// Waits says what the function waits for; empty if it does not.
	Waits string `json:"waits,omitempty"`
}
