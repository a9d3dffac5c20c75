package api

import "time"

// Activity describes the load of one function, for people, as seen by one activator or by all together.
type Activity struct {
	Waiting     int           `json:"waiting"`
	OldestAge   time.Duration `json:"oldestAge"`
	HeldBytes   Bytes         `json:"heldBytes"`
	Running     int           `json:"running"`
	LastRequest time.Time     `json:"lastRequest"`
	// Waking is the instance that the activator is waking; empty: none.
	Waking InstanceID `json:"waking,omitempty"`
	// Failed is the reason why requests are refused; empty: they are accepted.
	Failed string `json:"failed,omitempty"`
	// LostNames lists the service's names that belong to another function, each with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// WrongFallbacks says of each fallback that helps nothing why.
	WrongFallbacks []string `json:"wrongFallbacks,omitempty"`
	// Instances holds the last report of each instance.
	Instances []InstanceStatus `json:"instances"`
}
